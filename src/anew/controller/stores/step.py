"""A round for one store: its topics, its rebuilds, its replicas, its retention and its schedule, a step each."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from anew.api.models import NodeReport
from anew.controller.engine.apart import Apart
from anew.controller.engine.context import Context
from anew.controller.engine.ending import Ending, end_badly
from anew.controller.engine.records import change_rebuild
from anew.controller.engine.schedules import step as step_schedule
from anew.controller.engine.seen import Seen
from anew.controller.engine.subjects import Step
from anew.controller.stores.feeds import ends_of, ensure_feeds, open_and_close, to_be_told
from anew.controller.stores.leaving import let_leave
from anew.controller.stores.output import write_bases
from anew.controller.stores.placing import next_assignment
from anew.controller.stores.readiness import judge
from anew.controller.stores.reclaim import collect
from anew.controller.stores.records import change_store
from anew.controller.stores.schedule import RepushSchedule
from anew.controller.stores.versiontopics import make_version_topics
from anew.core.errors import Refused, Unreachable
from anew.core.feed import PositionMap
from anew.core.rebuild import DRIVEN_STAGES, RebuildStatus, Stage, advance, end
from anew.core.stores import lifecycle
from anew.core.stores.following import bases_to_write
from anew.core.stores.rebuild import StoreRebuild
from anew.core.stores.store import IN_THE_MAKING, SERVABLE, Store, Version, VersionStatus
from anew.core.stores.transitions import VersionEvent

_LOG = structlog.get_logger("anew.controller")


@dataclass(frozen=True, slots=True)
class StoreSteps:
    """Takes stores further; every step is a compare-and-swap on the store.

    Attributes:
        context: The controller's collaborators.
    """

    context: Context

    def step(self, store: Store, seen: Seen, apart: Apart) -> None:
        """Take a store one step further; an error in one of its steps does not hold up the others."""
        name = store.name
        store = self.step_rebuilds(store, seen, apart)
        for fabric in store.fabrics:
            with apart.step(f"replicas of {name} in {fabric}"):
                store = self._reassign(store, fabric, seen)
        if store.paused is None and not seen.paused:
            with apart.step(f"retention of {name}"):
                collect(self.context, store)
                let_leave(self.context, store)
        with apart.step(f"schedule of {name}"):
            reports = [report for found in seen.reports.values() for report in found]
            step_schedule(self.context, RepushSchedule(self.context, store, reports))

    def step_rebuilds(self, store: Store, seen: Seen, apart: Apart) -> Store:
        """Take a store's topics and rebuilds one step further; the store as it was when its topics were looked at."""
        with apart.step(f"topics of {store.name}"):
            store = self._with_topics(store)
            make_version_topics(self.context, store)
        if bases_to_write(store):
            with apart.step(f"empty bases of {store.name}"):
                write_bases(self.context, store)
        for rebuild in seen.running_of(store.uid, StoreRebuild):
            with apart.step(f"rebuild {rebuild.id} of {store.name}"):
                self._step_rebuild(store, rebuild, seen.reports)
        return store

    def _with_topics(self, store: Store) -> Store:
        """The store, its topics as they should be as far as the logs answer; nothing else waits for them."""
        try:
            if not all(feed.ready for feed in store.feeds):
                store = ensure_feeds(self.context, store.uid)
            return open_and_close(self.context, store)
        except Unreachable as error:
            _LOG.warning("topics_wait", store=store.name, **error.to_json())
        present = self.context.catalog.store_by_uid(store.uid)
        return store if present is None else present

    # -- rebuilds ----------------------------------------------------------------------------------------------------

    def _step_rebuild(self, store: Store, rebuild: StoreRebuild, reports: Mapping[str, list[NodeReport]]) -> None:
        if rebuild.stage in DRIVEN_STAGES:
            return
        for fabric in lifecycle.existing(store, rebuild.version).fabrics:
            # What was decided for the fabric before is in it: else the change would be refused as outdated.
            present = self.context.catalog.store_by_uid(store.uid)
            if present is not None:
                self._step_version(present, rebuild, fabric, reports[fabric])
        swapped = self.context.catalog.store_by_uid(store.uid)
        if swapped is not None and swapped.current != store.current:
            self._with_topics(swapped)
        self.finish(rebuild)

    def _step_version(self, store: Store, rebuild: StoreRebuild, fabric: str, reports: list[NodeReport]) -> None:
        version = lifecycle.existing(store, rebuild.version)
        there, now_ms = version.fabrics[fabric], self.context.clock()
        if there.status not in (VersionStatus.LOADING, VersionStatus.READY):
            return
        readiness = judge(store, version, fabric, reports)
        if there.status is VersionStatus.READY and readiness.caught_up:
            # Judged again: a node may have lost a replica since it was ready.
            self._swap(store, version, fabric)
        elif readiness.errors:
            error = f"replicas of version {version.number} failed: {'; '.join(readiness.errors)}"
            self._fail(store, rebuild, version, fabric, error)
        elif there.status is VersionStatus.LOADING and readiness.caught_up and not store.must_close(version):
            change = partial(lifecycle.caught_up, number=version.number, fabric=fabric, now_ms=now_ms)
            self._change(store, "ready", version, _if_still(store, change))
        elif now_ms - there.since_ms > self.context.limits.ready_deadline_seconds * 1000:
            why = "nearline writes could not be closed" if readiness.caught_up else readiness.why
            error = f"version {version.number} was not ready in time: {why}"
            self._fail(store, rebuild, version, fabric, error)
        elif there.status is VersionStatus.READY:
            _LOG.info("swap_waits", store=store.name, version=version.number, why=readiness.why)
        elif readiness.caught_up:
            self._close(store, version)
        elif readiness.loaded and there.ready_target is None:
            target = self._target(store, version)
            self._change(store, "aim", version, lambda s: lifecycle.aim(s, version.number, fabric, target))

    def _target(self, store: Store, version: Version) -> PositionMap:
        """What a version must reach to be ready: its stop, and of feeds without one the ends of this instant (R17)."""
        stop = PositionMap() if version.stop is None else version.stop
        closed = {at.feed for at in stop}
        without_stop = tuple(feed for feed in store.feeds_of(version) if feed.id not in closed)
        return stop.merged(ends_of(self.context.fabrics, without_stop))

    def _fail(self, store: Store, rebuild: StoreRebuild, version: Version, fabric: str, error: str) -> None:
        """What fails in one fabric ends there; the rebuild fails where no other fabric has the version, or will."""
        if not version.has(SERVABLE | IN_THE_MAKING, version.fabrics.keys() - {fabric}):
            end_badly(self.context, rebuild, Ending(RebuildStatus.FAILED, error, "controller"))
            return
        change = partial(
            lifecycle.end_badly,
            number=version.number,
            event=VersionEvent.FAIL,
            error=error,
            now_ms=self.context.clock(),
            fabric=fabric,
        )
        self._change(store, f"fail in {fabric}", version, _if_still(store, change))

    def _swap(self, store: Store, version: Version, fabric: str) -> None:
        change = partial(_swapped_when_ready, version.number, fabric, self.context.clock())
        swaps = change(store).current.get(fabric) == version.number
        self._change(store, "swap" if swaps else "defer swap", version, change)

    def _close(self, store: Store, version: Version) -> None:
        """End nearline writes for a version that is as far as they are (rule R10), a step in each round.

        (1) The catalog says that none is accepted; (2) the logs accept none; (3) their ends are the version's stop, and
        what it must reach. A crash after any step leaves a state that the next round goes on from; when the version
        ends badly, writes are accepted again.
        """
        if not version.closing:
            self._change(store, "close writes", version, lambda s: lifecycle.begin_closing(s, version.number))
        elif all(feed.closed for feed in store.real_time_feeds_of(version)):
            ends = ends_of(self.context.fabrics, store.feeds_of(version))
            self._change(store, "freeze stop", version, lambda s: lifecycle.freeze_stop(s, version.number, ends))

    def finish(self, rebuild: StoreRebuild) -> None:
        """Bring the rebuild's record in line with what became of its version.

        Who waited for its end may write at once: it has not ended while a log is to be told that it may accept writes.
        """
        store, present = self.context.catalog.store_by_uid(rebuild.store_uid), self.context.catalog.rebuild(rebuild.id)
        if store is None or present is None or present.ended:
            return
        version = lifecycle.existing(store, rebuild.version)
        done = {VersionStatus.CURRENT, *([VersionStatus.DEFERRED] if version.defer_swap else [])}
        if store.deleted_at_ms is None and to_be_told(store):
            self._advance(rebuild, store)
            return
        statuses = set(version.statuses.values())
        if statuses <= done:
            outcome, error = RebuildStatus.SUCCEEDED, None
        elif statuses.isdisjoint((VersionStatus.LOADING, VersionStatus.READY)):
            outcome, error = RebuildStatus.PARTLY, version.error
        else:
            self._advance(rebuild, store)
            return
        now_ms = self.context.clock()

        def step(newest: StoreRebuild) -> Step[StoreRebuild] | None:
            return None if newest.ended else (end(advance(newest, Stage.SWAP, now_ms), outcome, error, now_ms), ())

        operation = self.context.operation(f"rebuild {outcome.value}", store.name, "controller", rebuild=rebuild.id)
        change_rebuild(self.context, rebuild, operation, step)
        _LOG.info("rebuild_ended", rebuild=rebuild.id, store=store.name, status=outcome.value, error=error)

    def _advance(self, rebuild: StoreRebuild, store: Store) -> None:
        version = lifecycle.existing(store, rebuild.version)
        if rebuild.stage is Stage.LOAD and not version.has({VersionStatus.LOADING}):
            with contextlib.suppress(Refused):
                moved = advance(rebuild, Stage.SWAP, self.context.clock())
                self.context.catalog.put_rebuild(moved, rebuild.revision)

    def _change(self, store: Store, what: str, version: Version, change: lifecycle.Change) -> Store:
        operation = self.context.operation(
            what, store.name, "controller", version=version.number, rebuild=version.rebuild
        )
        changed = change_store(self.context, store.uid, operation, lambda present: (change(present), ()))
        if changed.revision != store.revision:
            _LOG.info("store_changed", what=what, store=store.name, current=changed.current, revision=changed.revision)
        return changed

    # -- replicas ----------------------------------------------------------------------------------------------------

    def _reassign(self, store: Store, fabric: str, seen: Seen) -> Store:
        """Give lost nodes' replicas to others; a node is let go only after its successors are ready (rule R25)."""
        nodes = seen.usable[fabric]
        if not nodes:
            return store
        for number in [version.number for version in store.versions]:
            version = lifecycle.existing(store, number)
            if version.status_in(fabric) not in SERVABLE:
                continue
            held = version.fabrics[fabric].assignment
            patience_ms = int(self.context.limits.node_lost_seconds * 1000)
            wanted = next_assignment(store, version, fabric, nodes, seen.reports[fabric], patience_ms)
            if wanted != held:
                change = partial(lifecycle.reassign, number=version.number, fabric=fabric, assignment=wanted)
                store = self._change(store, "reassign", version, _if_still(store, change))
        return store


def _swapped_when_ready(number: int, fabric: str, now_ms: int, store: Store) -> Store:
    return lifecycle.swap_when_ready(store, number, fabric, now_ms)


def _if_still(judged: Store, change: lifecycle.Change) -> lifecycle.Change:
    """The change, if the store is still the one that was judged; else nothing: the next round judges it again.

    Two controllers may judge at once. What one decided from reports of nodes that the other has let go since would
    leave a version with nobody who holds it (rule R25).
    """

    def changed(present: Store) -> Store:
        return change(present) if present.revision == judged.revision else present

    return changed
