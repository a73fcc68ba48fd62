"""Stores as a subject of rebuilds: each rebuild makes one version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from anew.api.rebuilds import StoreStart
from anew.catalog.change import Put, PutReclaim, PutStore, Reclaim
from anew.controller.engine.context import Context
from anew.controller.engine.drivers import first_line
from anew.controller.engine.subjects import Begun, Step, Subject
from anew.controller.stores.begin import begin
from anew.controller.stores.readiness import load_progress
from anew.controller.stores.reclaim import RECLAIMS
from anew.controller.stores.records import change_store, store_named, store_of
from anew.controller.stores.versiontopics import make_version_topics
from anew.core.errors import Refused
from anew.core.rebuild import Progress, RebuildStatus
from anew.core.schedule import ScheduleState
from anew.core.stores import lifecycle
from anew.core.stores.plan import Plan
from anew.core.stores.rebuild import STORE, StoreRebuild
from anew.core.stores.store import IN_THE_MAKING, Store, VersionStatus, source_digest
from anew.core.stores.transitions import VersionEvent
from anew.segments.layout import version_path

_EVENTS = {RebuildStatus.FAILED: VersionEvent.FAIL, RebuildStatus.KILLED: VersionEvent.KILL}


class StoreSubject(Subject[StoreRebuild, Plan]):
    """Stores."""

    name: ClassVar[str] = STORE
    record = StoreRebuild
    plan = Plan
    start = StoreStart
    reclaims = RECLAIMS

    def begin(self, context: Context, plan: Plan, opening: Mapping[str, Any]) -> Begun[StoreRebuild]:
        """See `Subject.begin`."""
        return begin(context, plan, opening)

    def begun(self, context: Context, rebuild: StoreRebuild) -> None:
        """Make the topics that the version's base goes through."""
        if rebuild.plan.target.config.through_log:
            make_version_topics(context, store_of(context, rebuild))

    def document(self, context: Context, rebuild: StoreRebuild) -> Store:
        """The store."""
        return store_of(context, rebuild)

    def detail(self, rebuild: StoreRebuild) -> Mapping[str, object]:
        """The version."""
        return {"version": rebuild.version}

    def finished(self, context: Context, rebuild: StoreRebuild) -> Step[StoreRebuild]:
        """A version is sealed; its rebuild ends with its swap.

        Raises:
            Refused: ``not_sealed``.
        """
        raise Refused(
            "not_sealed",
            f"the rebuild {rebuild.id} ends when its version serves",
            found="finish",
            expected="a seal",
            hint=f"anew rebuild show {rebuild.id}",
        )

    def taken_over(self, context: Context, before: StoreRebuild, after: StoreRebuild) -> Step[StoreRebuild]:
        """The version is made in a directory of the new epoch; all of it is built again."""
        present = store_of(context, before)
        version = lifecycle.existing(present, before.version)
        path = version_path(present.uid, version.number, before.id, after.epoch)
        due_ms = context.reclaim_due_ms()
        left = (
            PutReclaim(Reclaim(f"{version.path}@{fabric}", "tree", fabric, version.path, due_ms, "its driver is gone"))
            for fabric in version.fabrics
        )
        store = lifecycle.take_over(present, version.number, after.epoch, path)
        return after.model_copy(update={"progress": Progress()}), (PutStore(store, present.revision), *left)

    def ended(self, context: Context, before: StoreRebuild, ended: StoreRebuild) -> tuple[Put, ...]:
        """The version ends with its rebuild.

        Raises:
            Refused: ``swapped_already``: the version is not in the making any more.
        """
        present = store_of(context, before)
        _check_in_the_making(present, before)
        event, error = _EVENTS[ended.status], first_line(ended.error or "")
        return (
            PutStore(lifecycle.end_badly(present, before.version, event, error, context.clock()), present.revision),
        )

    def give_up(self, context: Context, rebuild: StoreRebuild, actor: str) -> bool:
        """Kill the version of an ended rebuild where it waits: to be swapped, or to be taken."""
        now_ms, error = context.clock(), f"given up by {actor}"
        done = False

        def change(present: Store) -> tuple[Store, tuple[()]]:
            nonlocal done
            version = present.version(rebuild.version)
            done = version is not None and version.has({VersionStatus.DEFERRED, VersionStatus.PENDING})
            if not done:
                return present, ()
            return lifecycle.end_badly(present, rebuild.version, VersionEvent.KILL, error, now_ms), ()

        detail = {"rebuild": rebuild.id, **self.detail(rebuild)}
        change_store(
            context, rebuild.store_uid, context.operation("give up version", rebuild.store, actor, **detail), change
        )
        return done

    def uid_of(self, context: Context, name: str) -> str:
        """See `Subject.uid_of`."""
        return store_named(context, name).uid

    def well_since(self, context: Context) -> Mapping[str, int]:
        """When each was made, or its newest version was begun that went, or may go, into service."""
        return {store.name: max(store.created_at_ms, _sealed_ms(store)) for store in context.catalog.stores()}

    def schedules(self, context: Context) -> Iterable[ScheduleState]:
        """See `Subject.schedules`."""
        return (store.schedule for store in context.catalog.stores() if store.schedule is not None)

    def shown_plan(self, plan: Plan) -> dict[str, Any]:
        """The plan with the sources of partitioners as their hashes; its id is that of the whole."""
        shown = plan.shown()
        for side, config in (("source", plan.source.config), ("target", plan.target.config)):
            if config is not None:
                shown[side]["config"]["partitioner_source"] = source_digest(config) or ""
        return shown

    def view(self, context: Context, rebuild: StoreRebuild) -> dict[str, Any]:
        """Its version, what it read and wrote, and how many replicas have loaded it."""
        fingerprint = rebuild.fingerprint
        return {
            "version": rebuild.version,
            "ledger": None if rebuild.ledger is None else rebuild.ledger.counts(),
            "fingerprint": None
            if fingerprint is None
            else {"source": f"{fingerprint.source:016x}", "target": f"{fingerprint.target:016x}"},
            "progress": load_progress(context, rebuild).model_dump(),
        }

    def again(self, rebuild: StoreRebuild) -> str:
        """See `Subject.again`."""
        return f"start a new one for {rebuild.store}"


def _sealed_ms(store: Store) -> int:
    """When the newest version was begun that went, or may go, into service; 0 without one."""
    return max((version.created_at_ms for version in store.versions if version.readable), default=0)


def _check_in_the_making(store: Store, rebuild: StoreRebuild) -> None:
    version = lifecycle.existing(store, rebuild.version)
    if not version.has(IN_THE_MAKING):
        raise Refused(
            "swapped_already",
            f"version {rebuild.version} of {store.name} is complete",
            found={fabric: status.value for fabric, status in version.statuses.items()},
            expected="a version in the making",
            hint=f"to go back: anew rollback {store.name}",
        )
