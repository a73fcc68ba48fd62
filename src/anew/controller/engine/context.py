"""What every part of the controller works with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from anew.api.location import LogLocation
from anew.api.waiting import wait_seconds
from anew.catalog.change import Operation
from anew.catalog.interface import Catalog
from anew.controller.engine.apart import Failing
from anew.controller.engine.attention import Attention
from anew.controller.engine.nodereports import NodeReports
from anew.controller.engine.outputs import NO_OUTPUTS, Outputs
from anew.controller.engine.subjects import NO_SUBJECTS, Subjects
from anew.controller.engine.watch import Watch
from anew.core.errors import Failed
from anew.core.jobs.catchup import CatchUp
from anew.core.rowretention import REPUSH_SOURCE_WAIT_SECONDS, RowRetention
from anew.deepstore.interface import DeepStore
from anew.log.interface import Log
from anew.loops.guarded import Loops
from anew.registry.interface import SchemaRegistry


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
        low_water_interval_seconds: How often low-water marks are moved, and retention of topics is applied.
        repush_source_wait_seconds: How long a version between two plain repushes stays.
        scheduled_rebuilds: How many scheduled repushes may be under way, over all stores.
        scheduled_start_seconds: A scheduled repush that has not begun after so long has failed.
        row_retention: How long the catalog keeps rows that nothing depends on.
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
    row_retention: RowRetention = field(default_factory=RowRetention)

    @property
    def takeover_seconds(self) -> float:
        """A driver that was silent for so long may be replaced; several of its signs of life are due by then."""
        return min(15.0, self.lease_seconds / 2)


Launch = Callable[[str, str, str], None]
"""Starts a driver process for a scheduled rebuild: (kind of subject, its name, request id)."""


def _launches_nothing(kind: str, name: str, request_id: str) -> None:
    raise Failed("no_launcher", f"nothing starts drivers here: {kind} {name}, {request_id}")


class DriverLogs(Protocol):
    """What drivers of generations logged on this machine."""

    def rebuilds(self) -> Collection[str]:
        """The ids of the rebuilds of which there are logs."""

    def trim(self, rebuild_id: str, *, is_over: bool, older_ms: int) -> None:
        """Remove logs of a rebuild that were not written to for longer than ``older_ms``.

        All of one that is over, of another one all but those of its last drivers.
        """


class _NoLogs:
    def rebuilds(self) -> Collection[str]:
        return ()

    def trim(self, rebuild_id: str, *, is_over: bool, older_ms: int) -> None:
        raise AssertionError(f"there are no logs of {rebuild_id}: {is_over}, {older_ms}")


@dataclass(frozen=True, slots=True)
class Context:
    """The controller's collaborators.

    Attributes:
        clock: The time in ms since the epoch.
        new_id: A fresh unique id.
        release: This release's version, for answers.
        launch: Starts drivers of scheduled rebuilds.
        subjects: What can be rebuilt.
        outputs: What jobs can write into.
        attention: Since when this controller listens to drivers and nodes.
        node_reports: What nodes reported last.
        registry: Where the ids of schemas come from; None: from the catalog.
        loops: The loops of the controller's process.
        failing: The steps of its rounds that fail, and since when.
        catching_up: Uid of a job and number of a generation → what the looks at it have found.
        driver_logs: What drivers logged on this machine.
        pause: Waits for so many seconds, between two looks at what may be otherwise in a moment.
        watch: Those who wait for the catalog to move.
    """

    catalog: Catalog
    fabrics: Mapping[str, Fabric]
    clock: Callable[[], int]
    new_id: Callable[[], str]
    limits: Limits = field(default_factory=Limits)
    release: str = "0"
    launch: Launch = _launches_nothing
    subjects: Subjects = NO_SUBJECTS
    outputs: Outputs = NO_OUTPUTS
    attention: Attention = field(default_factory=Attention)
    node_reports: NodeReports = field(default_factory=NodeReports)
    registry: SchemaRegistry | None = None
    loops: Loops = field(default_factory=lambda: Loops(lambda: 0))
    failing: dict[str, Failing] = field(default_factory=dict)
    catching_up: dict[tuple[str, int], CatchUp] = field(default_factory=dict)
    driver_logs: DriverLogs = field(default_factory=_NoLogs)
    pause: Callable[[float], None] = wait_seconds
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        """Let others wait for the catalog."""
        object.__setattr__(self, "watch", Watch(self.catalog.revision))

    def lease_until_ms(self) -> int:
        """Until when a lease holds that is renewed now."""
        return self.clock() + int(self.limits.lease_seconds * 1000)

    def reclaim_due_ms(self) -> int:
        """When the grace ends of what is noted now as to be reclaimed."""
        return self.clock() + int(self.limits.reclaim_grace_seconds * 1000)

    def operation(self, what: str, subject: str, actor: str, **detail: object) -> Operation:
        """A line of history for a change that is about to be made."""
        return Operation(self.new_id(), self.clock(), actor, what, subject, dict(detail))
