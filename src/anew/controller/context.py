"""What every part of the controller works with, and the one way to change a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from anew.api.models import LogLocation
from anew.catalog.change import Change, Operation, Put, PutStore
from anew.catalog.interface import Catalog
from anew.controller.apart import Failing
from anew.controller.attention import Attention
from anew.controller.hearing import Hearing
from anew.core.errors import Failed, InvalidRequest, NotFound, Refused
from anew.core.plan import Plan
from anew.core.retention import REPUSH_SOURCE_WAIT_SECONDS
from anew.core.store import Store
from anew.core.suggest import did_you_mean
from anew.core.tables.plan import TablePlan
from anew.deepstore.interface import DeepStore
from anew.log.interface import Log
from anew.loops.guarded import Loops
from anew.registry.interface import SchemaRegistry

_ATTEMPTS = 20
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Fabric:
    """One data centre as the controller reaches it."""

    name: str
    log: Log
    log_location: LogLocation
    deep_store: DeepStore


@dataclass(frozen=True, slots=True)
class Limits:
    """The controller's own settings; times in seconds.

    Attributes:
        lease_seconds: A driver that gave no sign of life for so long is lost.
        node_alive_seconds: A node that did not report for so long is not alive.
        node_lost_seconds: From then on its replicas are put on other nodes.
        ready_deadline_seconds: A version that is not ready after so long has failed (rule R17).
        reclaim_grace_seconds: How long files and log records stay after nobody needs them.
        low_water_interval_seconds: How often low-water marks are moved.
        repush_source_wait_seconds: How long a version between two plain repushes stays.
        scheduled_rebuilds: How many scheduled repushes may be under way, over all stores.
        scheduled_start_seconds: A scheduled repush that has not begun after so long has failed.
        failure_shown_seconds: For so long a rebuild that failed is told as a problem, unless it was seen.
    """

    lease_seconds: float = 120.0
    node_alive_seconds: float = 6.0
    node_lost_seconds: float = 60.0
    ready_deadline_seconds: float = 1_800.0
    reclaim_grace_seconds: float = 600.0
    low_water_interval_seconds: float = 60.0
    repush_source_wait_seconds: int = REPUSH_SOURCE_WAIT_SECONDS
    scheduled_rebuilds: int = 2
    scheduled_start_seconds: float = 180.0
    failure_shown_seconds: float = 86_400.0

    @property
    def takeover_seconds(self) -> float:
        """A driver that was silent for so long may be replaced; several of its signs of life are due by then."""
        return min(15.0, self.lease_seconds / 2)


def _launches_nothing(subject: str, request_id: str) -> None:
    raise Failed("no_launcher", f"nothing starts drivers here: {subject}, {request_id}")


@dataclass(frozen=True, slots=True)
class Context:
    """The controller's collaborators.

    Attributes:
        clock: The time in ms since the epoch.
        new_id: A fresh unique id.
        release: This release's version, for answers.
        launch: Starts a driver process for a scheduled repush: (store, request id).
        launch_refresh: Starts one for a scheduled refresh: (table, request id).
        attention: Since when this controller listens to drivers and nodes.
        hearing: What nodes reported last.
        registry: Where the ids of schemas come from; None: from the catalog.
        loops: The loops of the controller's process.
        failing: The steps of its rounds that fail, and since when.
    """

    catalog: Catalog
    fabrics: Mapping[str, Fabric]
    clock: Callable[[], int]
    new_id: Callable[[], str]
    limits: Limits = field(default_factory=Limits)
    release: str = "0"
    launch: Callable[[str, str], None] = _launches_nothing
    launch_refresh: Callable[[str, str], None] = _launches_nothing
    attention: Attention = field(default_factory=Attention)
    hearing: Hearing = field(default_factory=Hearing)
    registry: SchemaRegistry | None = None
    loops: Loops = field(default_factory=lambda: Loops(lambda: 0))
    failing: dict[str, Failing] = field(default_factory=dict)

    def reclaim_due_ms(self) -> int:
        """When the grace ends of what is noted now as to be reclaimed."""
        return self.clock() + int(self.limits.reclaim_grace_seconds * 1000)

    def operation(self, what: str, subject: str, actor: str, **detail: object) -> Operation:
        """A line of history for a change that is about to be made."""
        return Operation(self.new_id(), self.clock(), actor, what, subject, dict(detail))


def store_named(context: Context, name: str) -> Store:
    """The live store of that name.

    Raises:
        NotFound: ``unknown_store``, with the nearest name.
    """
    store = context.catalog.store(name)
    if store is None:
        known = [other.name for other in context.catalog.stores()]
        raise NotFound(
            "unknown_store",
            f"there is no store {name}",
            found=name,
            expected=", ".join(known) if known else "none is there yet",
            hint=did_you_mean(name, known),
        )
    return store


def made_before(context: Context, request_id: str | None, body_hash: str) -> str | None:
    """What a request of that id made, as the catalog keeps it; None for a new one, or one without an id (rule R22).

    Raises:
        InvalidRequest: ``request_id_reused``: that was with another body.
    """
    known = None if request_id is None else context.catalog.request(request_id)
    if known is None:
        return None
    if known.body_hash != body_hash:
        raise request_id_reused(request_id, known.body_hash)
    return known.result


def request_id_reused(request_id: str | None, body_hash: str) -> InvalidRequest:
    """The error of a request whose id was used before with another body (rule R22)."""
    return InvalidRequest(
        "request_id_reused",
        "the request id was used before with another body",
        found=request_id,
        expected=f"a new id for a new request; this one is of {body_hash}",
    )


def check_unaltered(plan: Plan | TablePlan) -> None:
    """Check that a plan is still the one that its id was made of.

    Raises:
        InvalidRequest: ``plan_altered``.
    """
    if plan.id != plan.value_id():
        raise InvalidRequest(
            "plan_altered", "the plan was changed after it was made", found=plan.id, expected=plan.value_id()
        )


def change_store(
    context: Context, uid: str, operation: Operation, change: Callable[[Store], tuple[Store, tuple[Put, ...]]]
) -> Store:
    """Load, change by a pure function, commit by compare-and-swap; again when somebody else was faster.

    ``change`` returns the next store and what is to be committed with it; returning the very same store and nothing
    else commits nothing.

    Raises:
        Refused: What ``change`` refuses; ``revision_conflict`` after many losses.
        NotFound: ``unknown_store``: it was deleted meanwhile.
    """

    def changed() -> Store:
        store = context.catalog.store_by_uid(uid)
        if store is None:
            raise NotFound("unknown_store", "the store is gone", found=uid)
        after, puts = change(store)
        if after == store and not puts:
            return store
        context.catalog.commit(Change(operation, (PutStore(after, store.revision), *puts)))
        return after.model_copy(update={"revision": store.revision + 1})

    return again_on_conflict(changed)


def again_on_conflict(act: Callable[[], _T]) -> _T:
    """Load, decide and commit; again when somebody else was faster.

    Raises:
        Refused: What ``act`` refuses; ``revision_conflict`` after many losses.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return act()
        except Refused as error:
            if error.code != "revision_conflict" or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable: the last attempt raises or returns")
