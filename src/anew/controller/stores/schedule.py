"""Scheduled repushes: the pure decision of `anew.core.schedule`, fed with what is, and its outcome kept."""

from __future__ import annotations

from dataclasses import dataclass

from anew.api.models import NodeReport
from anew.catalog.change import Operation
from anew.controller.engine.context import Context
from anew.controller.engine.pause import cluster_paused
from anew.controller.engine.schedules import running_scheduled
from anew.controller.stores.records import change_store
from anew.controller.stores.replicas import replicas_of
from anew.core.condition import Facts
from anew.core.feed import FeedPartition
from anew.core.rebuild import SubjectId
from anew.core.schedule import Circumstances, Decision, ScheduleState, decide
from anew.core.stores.rebuild import STORE
from anew.core.stores.store import Store, pending_changes


@dataclass(frozen=True, slots=True)
class RepushSchedule:
    """The schedule of a store's repushes; see `Scheduled`."""

    context: Context
    store: Store
    reports: list[NodeReport]
    what: str = "repush"

    @property
    def subject(self) -> SubjectId:
        """The store."""
        return SubjectId(STORE, self.store.uid, self.store.name)

    @property
    def schedule(self) -> str | None:
        """Its setting."""
        return self.store.config.repush_schedule

    @property
    def state(self) -> ScheduleState | None:
        """What the store keeps of it."""
        return self.store.schedule

    def decide(self) -> Decision:
        """See `Scheduled.decide`."""
        return decision_of(self.context, self.store, self.reports)

    def idle(self) -> str | None:
        """There is always something to repush: `repush_when` was asked already."""
        return None

    def keep(self, operation: Operation, state: ScheduleState | None) -> bool:
        """See `Scheduled.keep`."""
        judged, kept = self.store, False

        def change(present: Store) -> tuple[Store, tuple[()]]:
            nonlocal kept
            kept = present.schedule == judged.schedule and present.config == judged.config
            return (present.model_copy(update={"schedule": state}) if kept else present), ()

        change_store(self.context, judged.uid, operation, change)
        return kept


def decision_of(context: Context, store: Store, reports: list[NodeReport]) -> Decision:
    """What the schedule says now, and why."""
    making, deferred = store.in_the_making(), store.deferred()
    waiting = making if making is not None else deferred
    busy = None if waiting is None else f"{waiting.name_in(store.name)} is {waiting.status.value}"
    circumstances = Circumstances(
        paused=cluster_paused(context) or store.paused or store.schedule_held,
        busy=busy,
        has_version=any(store.current.values()),
        running_scheduled=running_scheduled(context),
        limit=context.limits.scheduled_rebuilds,
        writes=store.config.writes,
    )
    schedule = store.config.repush_schedule or ""
    facts = facts_of(store, reports, context.clock())
    return decide(schedule, store.config.repush_when, facts, store.schedule, circumstances, context.clock())


def facts_of(store: Store, reports: list[NodeReport], now_ms: int) -> Facts:
    """What a condition is judged on: the current version, by its manifest and the last reports of its replicas."""
    serving = max(store.current, key=lambda fabric: store.current[fabric], default="")
    current = store.version(store.current.get(serving, 0))
    if current is None or current.manifest is None:
        return Facts(stale=False, unsorted_share=0.0, tombstone_share=0.0, age_ms=0, rows=0, feed_records=0)
    reached: dict[FeedPartition, int] = {}
    for replica in replicas_of(reports, store, current).values():
        for at, offset in replica.position.items():
            reached[at] = max(offset, reached.get(at, offset))
    start = current.fabrics[serving].start
    feed_records = sum(max(0, offset - start.get(at, offset)) for at, offset in reached.items())
    rows, tombstones = current.manifest.rows, current.manifest.tombstones
    return Facts(
        stale=bool(pending_changes(store.config, current.config)),
        unsorted_share=feed_records / max(rows + feed_records, 1),
        tombstone_share=tombstones / max(rows + tombstones, 1),
        age_ms=now_ms - current.created_at_ms,
        rows=rows,
        feed_records=feed_records,
    )
