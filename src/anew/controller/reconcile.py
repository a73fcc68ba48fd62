"""The reconciler: looks at what is, compares it with what should be, and takes the next step. Level-triggered.

Every step is a compare-and-swap on the store, so that several controllers may run it side by side and a crash
anywhere leaves work that the next round finds again.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial

import structlog

from anew.api.models import NodeReport, ReplicaReport, ReplicaState
from anew.catalog.change import PutRebuild
from anew.controller.apart import Apart
from anew.controller.context import Context, change_store
from anew.controller.deadletters import set_aside
from anew.controller.feeds import ends_of, ensure_feeds, look_at_partitions, open_and_close, to_be_told
from anew.controller.nodes import heard_nodes, live_reports, replicas_of, usable_nodes
from anew.controller.pausing import pause_among
from anew.controller.readiness import judge, within_lag_limits
from anew.controller.rebuilds import end_rebuild, expire
from anew.controller.reclaim import collect, move_low_water, reclaim_due
from anew.controller.remembering import Memory
from anew.controller.scheduling import step as step_schedule
from anew.controller.tables.stepping import step_table
from anew.controller.versiontopics import make_version_topics
from anew.core import lifecycle
from anew.core.assignment import assign
from anew.core.errors import Refused, Unreachable
from anew.core.integrity import OF_THE_BASE, OF_THE_LOG
from anew.core.rebuild import DRIVEN_STAGES, Rebuild, RebuildStatus, Stage, advance, end
from anew.core.store import SERVABLE, Store, Version, VersionStatus
from anew.core.tables.rebuild import TableRebuild

_LOG = structlog.get_logger("anew.controller")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a round goes by, read once: what is decided on it holds, or loses against whoever was faster.

    Attributes:
        running: Store uid → its rebuilds that run; ``refreshing``: table uid → its own.
        reports: Fabric → the last reports of the nodes that are alive; ``usable``: those that may get replicas.
        paused: Whether the cluster is.
    """

    running: Mapping[str, list[Rebuild]]
    refreshing: Mapping[str, list[TableRebuild]]
    reports: Mapping[str, list[NodeReport]]
    usable: Mapping[str, list[str]]
    paused: bool


@dataclass(slots=True)
class Reconciler:
    """Runs rounds; keeps nothing that matters beyond one round.

    Attributes:
        context: The controller's collaborators.
        clock_seconds: A monotonic clock, by which a controller notices that it stood still.
    """

    context: Context
    clock_seconds: Callable[[], float] = time.monotonic
    _low_water_at_ms: int = field(default=0)
    _memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing remembered."""
        self._memory = Memory(self.context)
        self._listen()

    def round(self) -> None:
        """Take each store one step further; an error of one store does not hold up the others.

        Raises:
            AnewError: What all need does not answer.
            ExceptionGroup: What nobody foresaw in the steps of some; all others had theirs.
        """
        self._listen()
        seen = self._look()
        # Read after the rebuilds: a version of each of these is in its store.
        live = self.context.catalog.stores()
        apart = Apart(self.context.loops.loop("reconciler").progressed)
        for store in live:
            self._step(store, seen, apart)
        for rebuild in _of_deleted({store.uid for store in live}, seen.running):
            with apart.step(f"rebuild {rebuild.id} of {rebuild.store}"):
                self._finish(rebuild.store_uid, rebuild)
        for table in self.context.catalog.tables():
            with apart.step(f"table {table.name}"):
                running = seen.refreshing.get(table.uid, ())
                step_table(self.context, table, running, seen.usable[table.fabric], seen.reports[table.fabric])
        set_aside(self.context, apart)
        reclaim_due(self.context, apart)
        now_ms = self.context.clock()
        if now_ms - self._low_water_at_ms >= self.context.limits.low_water_interval_seconds * 1000:
            self._low_water_at_ms = now_ms
            for store in self.context.catalog.stores():
                logs = {("low water", feed.fabric) for feed in store.feeds}
                if apart.away.isdisjoint(logs):
                    with apart.step(f"low water of {store.name}", needs=logs):
                        move_low_water(self.context, store)
                        look_at_partitions(self.context, store)
        self._memory.remember(apart)
        apart.note(self.context.failing, now_ms)
        apart.end()

    def remember(self) -> None:
        """Write down in the deep stores what a lost catalog is made again from.

        Raises:
            AnewError: The catalog does not answer.
            ExceptionGroup: What nobody foresaw.
        """
        apart = Apart()
        self._memory.remember(apart)
        apart.end()

    def _listen(self) -> None:
        limits = self.context.limits
        self.context.attention.listen(self.context.clock(), self.clock_seconds(), limits.lease_seconds / 2)

    def _look(self) -> _Seen:
        running = defaultdict[str, list[Rebuild]](list)
        for rebuild in self.context.catalog.rebuilds(store_uid=None, running_only=True):
            running[rebuild.store_uid].append(rebuild)
        refreshing = defaultdict[str, list[TableRebuild]](list)
        for of_table in self.context.catalog.table_rebuilds(table_uid=None, running_only=True):
            refreshing[of_table.table_uid].append(of_table)
        nodes, flags = heard_nodes(self.context), self.context.catalog.flags()
        return _Seen(
            running,
            refreshing,
            live_reports(self.context, self.context.fabrics, nodes),
            usable_nodes(self.context, self.context.fabrics, nodes, flags),
            pause_among(flags) is not None,
        )

    def _step(self, store: Store, seen: _Seen, apart: Apart) -> None:
        name = store.name
        with apart.step(f"topics of {name}"):
            store = self._with_topics(store)
            make_version_topics(self.context, store)
        for rebuild in seen.running.get(store.uid, ()):
            with apart.step(f"rebuild {rebuild.id} of {name}"):
                self._step_rebuild(store, rebuild, seen.reports)
        for fabric in store.fabrics:
            with apart.step(f"replicas of {name} in {fabric}"):
                self._reassign(store, fabric, seen)
        if store.paused is None and not seen.paused:
            with apart.step(f"retention of {name}"):
                collect(self.context, store)
        with apart.step(f"schedule of {name}"):
            step_schedule(self.context, store, [report for found in seen.reports.values() for report in found])

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

    def _step_rebuild(self, store: Store, rebuild: Rebuild, reports: Mapping[str, list[NodeReport]]) -> None:
        now_ms = self.context.clock()
        if rebuild.stage in DRIVEN_STAGES:
            heard = self.context.attention.listened_for(self.context.limits.lease_seconds, now_ms)
            if heard and now_ms > rebuild.lease_until_ms:
                expire(self.context, rebuild)
            return
        version = lifecycle.existing(store, rebuild.version)
        for fabric in version.statuses:
            self._step_version(store, rebuild, fabric, reports[fabric])
        swapped = self.context.catalog.store_by_uid(store.uid)
        if swapped is not None and swapped.current != store.current:
            self._with_topics(swapped)
        self._finish(store.uid, rebuild)

    def _step_version(self, store: Store, rebuild: Rebuild, fabric: str, reports: list[NodeReport]) -> None:
        version = lifecycle.existing(store, rebuild.version)
        now_ms = self.context.clock()
        if version.statuses[fabric] not in (VersionStatus.LOADING, VersionStatus.READY):
            return
        readiness = judge(store, version, fabric, reports)
        if version.statuses[fabric] is VersionStatus.READY and readiness.caught_up:
            # Judged again: a node may have lost a replica since it was ready.
            self._swap(store, version, fabric)
        elif readiness.errors:
            error = f"replicas of version {version.number} failed: {'; '.join(readiness.errors)}"
            end_rebuild(self.context, rebuild, RebuildStatus.FAILED, error, "controller")
        elif version.statuses[fabric] is VersionStatus.LOADING and readiness.caught_up and not version.must_close:
            change = partial(lifecycle.caught_up, number=version.number, fabric=fabric, now_ms=now_ms)
            self._change(store, "ready", version, _if_still(store, change))
        elif now_ms - version.since_ms[fabric] > self.context.limits.ready_deadline_seconds * 1000:
            why = "nearline writes could not be closed" if readiness.caught_up else readiness.why
            error = f"version {version.number} was not ready in time: {why}"
            end_rebuild(self.context, rebuild, RebuildStatus.FAILED, error, "controller")
        elif version.statuses[fabric] is VersionStatus.READY:
            _LOG.info("swap_waits", store=store.name, version=version.number, why=readiness.why)
        elif readiness.caught_up:
            self._close(store, version)
        elif readiness.loaded and version.ready_target is None:
            target = version.stop
            if target is None:
                target = ends_of(self.context.fabrics, store.feeds_of(version))
            self._change(store, "aim", version, lambda s: lifecycle.aim(s, version.number, target))

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
        feeds = store.feeds_of(version)
        if not version.closing:
            self._change(store, "close writes", version, lambda s: lifecycle.begin_closing(s, version.number))
        elif all(feed.closed for feed in feeds):
            ends = ends_of(self.context.fabrics, feeds)
            self._change(store, "freeze stop", version, lambda s: lifecycle.freeze_stop(s, version.number, ends))

    def _finish(self, uid: str, rebuild: Rebuild) -> None:
        """Bring the rebuild's record in line with what became of its version.

        Who waited for its end may write at once: it has not ended while a log is to be told that it may accept writes.
        """
        store, present = self.context.catalog.store_by_uid(uid), self.context.catalog.rebuild(rebuild.id)
        if store is None or present is None or present.ended:
            return
        statuses = lifecycle.existing(store, rebuild.version).statuses
        asked = lifecycle.existing(store, rebuild.version).defer_swap
        done = {VersionStatus.CURRENT, VersionStatus.DEFERRED} if asked else {VersionStatus.CURRENT}
        if store.deleted_at_ms is None and to_be_told(store):
            self._advance(rebuild, store)
            return
        if done.issuperset(statuses.values()):
            outcome, error = RebuildStatus.SUCCEEDED, None
        elif all(status not in (VersionStatus.LOADING, VersionStatus.READY) for status in statuses.values()):
            outcome, error = RebuildStatus.PARTLY, lifecycle.existing(store, rebuild.version).error
        else:
            self._advance(rebuild, store)
            return
        now_ms = self.context.clock()

        def change(present: Store) -> tuple[Store, tuple[PutRebuild, ...]]:
            newest = self.context.catalog.rebuild(rebuild.id)
            if newest is None or newest.ended:
                return present, ()
            done = end(advance(newest, Stage.SWAP, now_ms), outcome, error, now_ms)
            return present, (PutRebuild(done, newest.revision),)

        operation = self.context.operation(f"rebuild {outcome.value}", store.name, "controller", rebuild=rebuild.id)
        change_store(self.context, uid, operation, change)
        _LOG.info("rebuild_ended", rebuild=rebuild.id, store=store.name, status=outcome.value, error=error)

    def _advance(self, rebuild: Rebuild, store: Store) -> None:
        ready = lifecycle.existing(store, rebuild.version).statuses.values()
        if rebuild.stage is Stage.LOAD and all(status is not VersionStatus.LOADING for status in ready):
            with contextlib.suppress(Refused):
                moved = advance(rebuild, Stage.SWAP, self.context.clock())
                self.context.catalog.put_rebuild(moved, rebuild.revision)

    def _change(self, store: Store, what: str, version: Version, change: lifecycle.Change) -> Store:
        operation = self.context.operation(
            what, store.name, "controller", version=version.number, rebuild=version.rebuild
        )
        changed = change_store(self.context, store.uid, operation, lambda present: (change(present), ()))
        _LOG.info("store_changed", what=what, store=store.name, current=changed.current, revision=changed.revision)
        return changed

    # -- replicas ----------------------------------------------------------------------------------------------------

    def _reassign(self, store: Store, fabric: str, seen: _Seen) -> None:
        """Give lost nodes' replicas to others; a node is let go only after its successors are ready (rule R25)."""
        nodes = seen.usable[fabric]
        if not nodes:
            return
        for number in [version.number for version in store.versions]:
            version = lifecycle.existing(store, number)
            if version.statuses.get(fabric) not in SERVABLE or fabric not in version.assignment:
                continue
            held = version.assignment[fabric]
            patience_ms = int(self.context.limits.node_lost_seconds * 1000)
            wanted = next_assignment(store, version, fabric, nodes, seen.reports[fabric], patience_ms)
            if wanted != held:
                change = partial(lifecycle.reassign, number=version.number, fabric=fabric, assignment=wanted)
                store = self._change(store, "reassign", version, _if_still(store, change))


def _of_deleted(live: Set[str], running: Mapping[str, list[Rebuild]]) -> list[Rebuild]:
    """Rebuilds whose store was deleted between their last swap and the round that would end their records.

    A store with a version in the making cannot be deleted, so nothing else of such a rebuild is left to do.
    """
    return [rebuild for uid in running.keys() - live for rebuild in running[uid]]


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


def next_assignment(
    store: Store,
    version: Version,
    fabric: str,
    nodes: list[str],
    reports: list[NodeReport],
    patience_ms: int,
) -> dict[int, tuple[str, ...]]:
    """The assignment to work towards now: successors join at once, predecessors leave when these are ready.

    Nodes that are not lost keep what they hold; nothing moves only for the sake of balance while a version is alive.
    A successor is ready when it says so of *this* store revision: a node that was let go and is wanted again may have
    reported before it heard of either, and be about to drop what it has (rule R25). And it has come to the end of what
    it reads: with the base alone it would take readers back to before what they wrote. A replica that has not got on
    for longer than ``patience_ms`` on a node that is alive is given to another node, where there is one.
    """
    held = version.assignment[fabric]
    found = replicas_of(reports, store, version)
    wanted_count = min(version.config.replicas, len(nodes))
    sick = {place for place, replica in found.items() if _is_sick(replica, patience_ms)}
    short = {p for p, holders in held.items() if _short(holders, version.config.replicas, nodes)}
    if not short and not sick and all(len(holders) <= wanted_count for holders in held.values()):
        return held

    def is_ready(node: str, partition: int) -> bool:
        return _holds(found.get((node, partition)), store, version)

    balanced = assign(version.config.partitions, version.config.replicas, nodes, held) if short else {}
    load = Counter(node for holders in held.values() for node in holders)
    result = dict(held)
    for partition, holders in held.items():
        wanted = balanced[partition] if partition in short else holders
        ill = {node for node in (*holders, *wanted) if (node, partition) in sick}
        if ill:
            wanted = _without_sick(wanted, holders, ill, nodes, wanted_count, load)
        elif partition not in short:
            # Who got well again, or came back, needs no successor any more: the youngest go.
            wanted = tuple(node for node in holders if is_ready(node, partition))[:wanted_count]
            if len(holders) <= wanted_count or len(wanted) < wanted_count:
                continue
        ready = all(is_ready(node, partition) for node in wanted)
        result[partition] = wanted if ready else tuple(dict.fromkeys((*holders, *wanted)))
    return result


def _without_sick(
    wanted: tuple[str, ...], holders: tuple[str, ...], ill: Set[str], nodes: list[str], count: int, load: Counter[str]
) -> tuple[str, ...]:
    """Who is to hold a partition instead of nodes on which it does not get on; these only where nobody else can.

    Who holds it already stays, or is a successor that has joined; then come those with the least ``load``, which rises.
    """
    joined = [node for node in dict.fromkeys((*wanted, *holders)) if node in nodes and node not in ill]
    free = sorted((node for node in nodes if node not in joined and node not in ill), key=lambda n: (load[n], n))
    chosen = (*joined, *free, *(node for node in holders if node in ill and node in nodes))[:count]
    load.update(node for node in chosen if node not in holders)
    return chosen


def _is_sick(replica: ReplicaReport, patience_ms: int) -> bool:
    """Whether it fails for reasons of its node: what is wrong with a base or with the log is wrong everywhere."""
    fails = replica.state is ReplicaState.ERROR or (replica.state is ReplicaState.PENDING and replica.error is not None)
    return fails and replica.stuck_ms > patience_ms and replica.error_code not in OF_THE_BASE | OF_THE_LOG


def _holds(replica: ReplicaReport | None, store: Store, version: Version) -> bool:
    """Whether a replica can stand for one that leaves: it holds what that one holds, and not the base alone."""
    return (
        replica is not None
        and replica.state is ReplicaState.APPLYING
        and replica.store_revision >= store.revision
        and replica.arrived
        and replica.stuck_ms == 0
        and within_lag_limits(replica, version)
    )


def _short(holders: tuple[str, ...], replicas: int, nodes: list[str]) -> bool:
    usable = [node for node in holders if node in nodes]
    return len(usable) < min(replicas, len(nodes)) or len(usable) < len(holders)
