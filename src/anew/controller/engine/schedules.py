"""Scheduled rebuilds of all kinds: what became of a start, and how many are under way."""

from __future__ import annotations

from typing import Protocol

import structlog

from anew.catalog.change import Operation
from anew.controller.engine.context import Context
from anew.core.errors import AnewError
from anew.core.rebuild import RebuildStatus, SubjectId
from anew.core.schedule import Decision, ScheduleState, failed, request_id_of, started, succeeded

_LOG = structlog.get_logger("anew.controller")
_WELL = frozenset({RebuildStatus.SUCCEEDED, RebuildStatus.PARTLY})


class Scheduled(Protocol):
    """What has a schedule: one of a subject's."""

    @property
    def subject(self) -> SubjectId:
        """What is rebuilt."""

    @property
    def what(self) -> str:
        """What its rebuilds are called: ``repush``."""

    @property
    def schedule(self) -> str | None:
        """When; None without one."""

    @property
    def state(self) -> ScheduleState | None:
        """What is kept of it."""

    def decide(self) -> Decision:
        """What the schedule says now."""

    def idle(self) -> str | None:
        """Why there is nothing to do although it is time; None where there is."""

    def keep(self, operation: Operation, state: ScheduleState | None) -> bool:
        """Keep a state unless somebody else was faster; whether it was kept."""


def step(context: Context, one: Scheduled) -> None:
    """Take a schedule one step further: learn what became of a start, or decide on the next one.

    A start is written down before the driver is launched, so that of several controllers one launches; a controller
    that dies between the two leaves a start that never begins, which counts as failed after a while.
    """
    state = one.state
    if one.schedule is None:
        if state is not None:
            _keep(context, one, None, "schedule ended")
        return
    if state is not None and state.request_id is not None:
        after = outcome_of(context, state)
        if after is not None:
            _keep(context, one, after, f"scheduled {one.what} ended")
        return
    decision = one.decide()
    if not decision.start or decision.due_ms is None:
        if decision.state != state:
            _keep(context, one, decision.state, "schedule considered")
        return
    now_ms, idle = context.clock(), one.idle()
    if idle is not None:
        considered = {"considered_ms": now_ms, "reasons": (idle,)}
        _keep(context, one, decision.state.model_copy(update=considered), f"nothing to {one.what}")
        return
    request_id = request_id_of(one.subject.uid, decision.due_ms, decision.state.failures)
    if _keep(context, one, started(decision.state, request_id, now_ms), f"scheduled {one.what}"):
        launch(context, one.subject, request_id)


def _keep(context: Context, one: Scheduled, state: ScheduleState | None, what: str) -> bool:
    detail = {} if state is None else {"reasons": list(state.reasons), "failures": state.failures}
    return one.keep(context.operation(what, one.subject.name, "controller", **detail), state)


def outcome_of(context: Context, state: ScheduleState) -> ScheduleState | None:
    """The state after the start that is under way ended; None while it goes on."""
    known = None if state.request_id is None else context.catalog.request(state.request_id)
    if known is None:
        late = context.clock() - state.started_ms > context.limits.scheduled_start_seconds * 1000
        return failed(state, context.clock()) if late else None
    rebuild = context.catalog.rebuild(known.result)
    if rebuild is None or not rebuild.ended:
        return None
    return succeeded(state) if rebuild.status in _WELL else failed(state, context.clock())


def running_scheduled(context: Context) -> int:
    """How many scheduled rebuilds are under way, of all subjects."""
    states = (state for subject in context.subjects.all for state in subject.schedules(context))
    return sum(state.request_id is not None for state in states)


def launch(context: Context, of: SubjectId, request_id: str) -> None:
    """Start the driver of a scheduled rebuild, whose start is noted."""
    try:
        context.launch(of.kind, of.name, request_id)
        _LOG.info("scheduled_rebuild", of=of.name, kind=of.kind, request=request_id)
    except (AnewError, OSError) as error:
        # The start stays noted; it counts as failed when no rebuild of it begins.
        _LOG.error("launch_failed", of=of.name, kind=of.kind, request=request_id, error=str(error))
