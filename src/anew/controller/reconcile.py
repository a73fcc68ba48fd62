"""The reconciler: looks at what is, compares it with what should be, and takes the next step. Level-triggered.

Every step is a compare-and-swap on the store, so that several controllers may run it side by side and a crash
anywhere leaves work that the next round finds again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from anew.controller.engine.apart import Apart
from anew.controller.engine.context import Context
from anew.controller.engine.expire import expire_lost
from anew.controller.engine.pause import cluster_paused
from anew.controller.engine.seen import Seen, look, running_rebuilds
from anew.controller.jobs.archives import ArchiveUpkeep
from anew.controller.jobs.logs import LogUpkeep
from anew.controller.jobs.step import step_deleted_job, step_job
from anew.controller.restore.records import Memory
from anew.controller.stores.deadletters import set_aside
from anew.controller.stores.feeds import look_at_partitions
from anew.controller.stores.lowwater import move_low_water
from anew.controller.stores.replicas import indexed
from anew.controller.stores.step import StoreSteps
from anew.controller.tables.step import step_table
from anew.controller.topics.holding import HeldTopics
from anew.controller.topics.making import add_announced_partitions, make_announced
from anew.controller.topics.upkeep import TopicRetention
from anew.controller.upkeep.forgetting import Forgetting
from anew.controller.upkeep.reclaim import reclaim_due
from anew.core.rebuild import Rebuild
from anew.core.stores.rebuild import StoreRebuild


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
    _forgetting: Forgetting = field(init=False)
    _topic_retention: TopicRetention = field(init=False)
    _held_topics: HeldTopics = field(init=False)
    _archives: ArchiveUpkeep = field(init=False)
    _logs: LogUpkeep = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing remembered."""
        self._memory = Memory(self.context)
        self._forgetting = Forgetting(self.context)
        self._topic_retention = TopicRetention(self.context)
        self._held_topics = HeldTopics(self.context)
        self._archives = ArchiveUpkeep(self.context)
        self._logs = LogUpkeep(self.context)
        self._listen()

    def round(self) -> None:
        """Take each store and table one step further, then do what keeps the house, in one thread.

        Raises:
            AnewError: What all need does not answer.
            ExceptionGroup: What nobody foresaw in the steps of some; all others had theirs.
        """
        self._in_steps("reconciler", self._advance, self._keep)

    def advance(self) -> None:
        """Take each store and table one step further; an error of one does not hold up the others.

        Raises:
            AnewError, ExceptionGroup: As `round`.
        """
        self._in_steps("reconciler", self._advance)

    def hurry(self) -> None:
        """Take rebuilds of stores one step further, and nothing else: what becomes ready is swapped at once.

        What nobody foresaw is logged, and told by the round that follows, which meets it too: all others have theirs.

        Raises:
            AnewError: What all need does not answer.
        """
        running = running_rebuilds(self.context)
        if not running:
            return
        apart = Apart(self.context.loops.loop("reconciler").progressed)
        seen, stores = self._look(running), StoreSteps(self.context)
        for uid in running:
            store = self.context.catalog.store_by_uid(uid)
            if store is not None and store.deleted_at_ms is None:
                stores.step_rebuilds(store, seen, apart)
        apart.note(self.context.failing, self.context.clock())

    def keep(self) -> None:
        """Reclaim, truncate, forget and remember. Beside `advance`: no swap waits for any of it.

        Raises:
            AnewError, ExceptionGroup: As `round`.
        """
        self._in_steps("upkeep", self._keep)

    def _in_steps(self, loop: str, *parts: Callable[[Apart], None]) -> None:
        apart = Apart(self.context.loops.loop(loop).progressed)
        for part in parts:
            part(apart)
        apart.note(self.context.failing, self.context.clock())
        apart.end()

    def _look(self, running: Mapping[str, list[Rebuild]]) -> Seen:
        seen = look(self.context, running)
        return replace(seen, reports=indexed(seen.reports))

    def _advance(self, apart: Apart) -> None:
        self._listen()
        seen = self._look(running_rebuilds(self.context))
        # Read after the rebuilds: a version of each of these is in its store.
        live = self.context.catalog.stores()
        expire_lost(self.context, (rebuild for found in seen.running.values() for rebuild in found), apart)
        stores = StoreSteps(self.context)
        for store in live:
            stores.step(store, seen, apart)
        for rebuild in _of_deleted({store.uid for store in live}, seen):
            with apart.step(f"rebuild {rebuild.id} of {rebuild.store}"):
                stores.finish(rebuild)
        for job in self.context.catalog.jobs():
            with apart.step(f"job {job.name}"):
                step_job(self.context, job)
        for job in self.context.catalog.deleted_jobs():
            with apart.step(f"deleted job {job.name}"):
                step_deleted_job(self.context, job)
        for table in self.context.catalog.tables():
            with apart.step(f"table {table.name}"):
                step_table(self.context, table, seen.usable[table.fabric], seen.reports[table.fabric])
        for topic in self.context.catalog.topics():
            needs = {("topics", topic.fabric)}
            if (not topic.ready or topic.growing_to is not None) and apart.away.isdisjoint(needs):
                with apart.step(f"topic {topic.name}", needs=needs):
                    make_announced(self.context, topic.uid)
                    add_announced_partitions(self.context, topic.uid)

    def _keep(self, apart: Apart) -> None:
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
        if cluster_paused(self.context) is None:
            self._forgetting.step(apart)
            self._held_topics.step(apart)
            self._topic_retention.step(apart)
            self._archives.step(apart)
            self._logs.step(apart)
        self._memory.remember(apart)

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


def _of_deleted(live: set[str], seen: Seen) -> list[StoreRebuild]:
    """Rebuilds whose store was deleted between their last swap and the round that would end their records.

    A store with a version in the making cannot be deleted, so nothing else of such a rebuild is left to do.
    """
    return [rebuild for uid in seen.running.keys() - live for rebuild in seen.running_of(uid, StoreRebuild)]
