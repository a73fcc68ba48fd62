"""Scheduled repushes: the pure decision of `anew.core.schedule`, fed with what is, and its outcome kept."""

from __future__ import annotations

import structlog

from anew.api.models import NodeReport
from anew.controller.context import Context, change_store
from anew.controller.nodes import replicas_of
from anew.controller.pausing import cluster_paused
from anew.core.condition import Facts
from anew.core.errors import AnewError
from anew.core.feed import FeedPartition
from anew.core.rebuild import RebuildStatus
from anew.core.schedule import Circumstances, Decision, ScheduleState, decide, failed, request_id_of, started, succeeded
from anew.core.store import Store, pending_changes

_LOG = structlog.get_logger("anew.controller")
_WELL = frozenset({RebuildStatus.SUCCEEDED, RebuildStatus.PARTLY})


def step(context: Context, store: Store, reports: list[NodeReport]) -> None:
    """Take a store's schedule one step further: learn what became of a start, or decide on the next one.

    A start is written down before the driver is launched, so that of several controllers one launches; a controller
    that dies between the two leaves a start that never begins, which counts as failed after a while.
    """
    state = store.schedule
    if store.config.repush_schedule is None:
        if state is not None:
            _put(context, store, None, "schedule ended")
        return
    if state is not None and state.request_id is not None:
        after = outcome_of(context, state)
        if after is not None:
            _put(context, store, after, "scheduled repush ended")
        return
    decision = decision_of(context, store, reports)
    if decision.start and decision.due_ms is not None:
        request_id = request_id_of(store.uid, decision.due_ms, decision.state.failures)
        now_ms = context.clock()
        if _put(context, store, started(decision.state, request_id, now_ms), "scheduled repush"):
            _launch(context, store, request_id)
    elif decision.state != state:
        _put(context, store, decision.state, "schedule considered")


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
    current = store.version(max(store.current.values(), default=0))
    if current is None or current.manifest is None:
        return Facts(stale=False, unsorted_share=0.0, tombstone_share=0.0, age_ms=0, rows=0, feed_records=0)
    reached: dict[FeedPartition, int] = {}
    for replica in replicas_of(reports, store, current).values():
        for at, offset in replica.position.items():
            reached[at] = max(offset, reached.get(at, offset))
    feed_records = sum(max(0, offset - current.start.get(at, offset)) for at, offset in reached.items())
    rows, tombstones = current.manifest.rows, current.manifest.tombstones
    return Facts(
        stale=bool(pending_changes(store.config, current.config)),
        unsorted_share=feed_records / max(rows + feed_records, 1),
        tombstone_share=tombstones / max(rows + tombstones, 1),
        age_ms=now_ms - current.created_at_ms,
        rows=rows,
        feed_records=feed_records,
    )


def outcome_of(context: Context, state: ScheduleState) -> ScheduleState | None:
    """The state after the start that is under way ended; None while it goes on."""
    known = None if state.request_id is None else context.catalog.request(state.request_id)
    if known is None:
        late = context.clock() - state.started_ms > context.limits.scheduled_start_seconds * 1000
        return failed(state, context.clock()) if late else None
    rebuild = context.catalog.rebuild(known.result) or context.catalog.table_rebuild(known.result)
    if rebuild is None or not rebuild.ended:
        return None
    return succeeded(state) if rebuild.status in _WELL else failed(state, context.clock())


def running_scheduled(context: Context) -> int:
    """How many scheduled rebuilds are under way, of stores and of tables."""
    states = [store.schedule for store in context.catalog.stores()]
    states += [table.schedule_state for table in context.catalog.tables()]
    return sum(state is not None and state.request_id is not None for state in states)


def _launch(context: Context, store: Store, request_id: str) -> None:
    try:
        context.launch(store.name, request_id)
        _LOG.info("scheduled_repush", store=store.name, request=request_id)
    except (AnewError, OSError) as error:
        # The start stays noted; it counts as failed when no rebuild of it begins.
        _LOG.error("launch_failed", store=store.name, request=request_id, error=str(error))


def _put(context: Context, store: Store, state: ScheduleState | None, what: str) -> bool:
    """Keep a state unless somebody else was faster; whether it was kept."""
    detail = {} if state is None else {"reasons": list(state.reasons), "failures": state.failures}
    operation = context.operation(what, store.name, "controller", **detail)
    kept = False

    def change(present: Store) -> tuple[Store, tuple[()]]:
        nonlocal kept
        kept = present.schedule == store.schedule and present.config == store.config
        return (present.model_copy(update={"schedule": state}) if kept else present), ()

    change_store(context, store.uid, operation, change)
    return kept
