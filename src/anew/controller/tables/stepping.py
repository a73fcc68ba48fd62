"""A round of the reconciler for one table: lost drivers, slots of lost nodes, the refresh task."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from anew.api.models import NodeReport
from anew.api.tables import PlanRefresh
from anew.controller.context import Context
from anew.controller.pausing import cluster_paused
from anew.controller.scheduling import outcome_of, running_scheduled
from anew.controller.tables.planning import plan_refresh
from anew.controller.tables.rebuilds import expire
from anew.controller.tables.records import change_table
from anew.controller.tables.serving import reassign
from anew.core.condition import Facts
from anew.core.errors import AnewError
from anew.core.rebuild import DRIVEN_STAGES
from anew.core.schedule import Circumstances, ScheduleState, decide, request_id_of, started
from anew.core.tables.rebuild import TableRebuild
from anew.core.tables.table import Table

_LOG = structlog.get_logger("anew.controller")
_NO_FACTS = Facts(stale=True, unsorted_share=0.0, tombstone_share=0.0, age_ms=0, rows=0, feed_records=0)


def step_table(
    context: Context, table: Table, running: Iterable[TableRebuild], nodes: list[str], reports: list[NodeReport]
) -> None:
    """Take a table one step further; ``running`` are its rebuilds that did run when the round began."""
    _expire_lost(context, running)
    table = reassign(context, table, nodes, reports)
    _step_schedule(context, table)


def _expire_lost(context: Context, running: Iterable[TableRebuild]) -> None:
    now_ms = context.clock()
    if not context.attention.listened_for(context.limits.lease_seconds, now_ms):
        return
    for rebuild in running:
        if rebuild.stage in DRIVEN_STAGES and now_ms > rebuild.lease_until_ms:
            expire(context, rebuild)


def _step_schedule(context: Context, table: Table) -> None:
    """Learn what became of a scheduled refresh, or decide on the next one; a start is noted before it is launched."""
    schedule, state = table.settings.refresh.schedule, table.schedule_state
    if schedule is None:
        if state is not None:
            _put(context, table, None, "schedule ended")
        return
    if state is not None and state.request_id is not None:
        after = outcome_of(context, state)
        if after is not None:
            _put(context, table, after, "scheduled refresh ended")
        return
    now_ms = context.clock()
    decision = decide(schedule, None, _NO_FACTS, state, _circumstances(context, table), now_ms)
    if not decision.start or decision.due_ms is None:
        if decision.state != state:
            _put(context, table, decision.state, "schedule considered")
        return
    if not plan_refresh(context, table, PlanRefresh()).segments:
        considered = {"considered_ms": now_ms, "reasons": ("no segment is to be refreshed",)}
        _put(context, table, decision.state.model_copy(update=considered), "nothing to refresh")
        return
    request_id = request_id_of(table.uid, decision.due_ms, decision.state.failures)
    if _put(context, table, started(decision.state, request_id, now_ms), "scheduled refresh"):
        _launch(context, table, request_id)


def _circumstances(context: Context, table: Table) -> Circumstances:
    running = context.catalog.table_rebuilds(table_uid=table.uid, running_only=True)
    return Circumstances(
        paused=cluster_paused(context),
        busy=None if not running else f"{running[0].id} is running",
        has_version=True,
        running_scheduled=running_scheduled(context),
        limit=context.limits.scheduled_rebuilds,
        writes=True,
    )


def _launch(context: Context, table: Table, request_id: str) -> None:
    try:
        context.launch_refresh(table.name, request_id)
        _LOG.info("scheduled_refresh", table=table.name, request=request_id)
    except (AnewError, OSError) as error:
        # The start stays noted; it counts as failed when no rebuild of it begins.
        _LOG.error("launch_failed", table=table.name, request=request_id, error=str(error))


def _put(context: Context, table: Table, state: ScheduleState | None, what: str) -> bool:
    """Keep a state unless somebody else was faster; whether it was kept."""
    kept = False

    def change(present: Table) -> tuple[Table, tuple[()]]:
        nonlocal kept
        kept = present.schedule_state == table.schedule_state and present.settings == table.settings
        return (present.model_copy(update={"schedule_state": state}) if kept else present), ()

    detail = {} if state is None else {"reasons": list(state.reasons), "failures": state.failures}
    change_table(context, table.uid, context.operation(what, table.name, "controller", **detail), change)
    return kept
