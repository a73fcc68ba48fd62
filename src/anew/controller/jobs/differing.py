"""What the next generation of a job would change, and which ways to it are open now."""

from __future__ import annotations

from anew.api.jobs.requests import PlanGeneration
from anew.api.jobs.views import JobDiff, WayView
from anew.controller.engine.context import Context
from anew.controller.jobs.planning import plan_generation
from anew.core.errors import InvalidRequest, Refused
from anew.core.jobs.diff import WAYS, changes_between
from anew.core.jobs.job import Job
from anew.core.jobs.plan import DEPLOY, Mode

_ONCE_STOPPED = frozenset({"generation_runs", "driver_alive"})
"""Refusals that a stop takes away."""


def diff_of(context: Context, job: Job, request: PlanGeneration) -> JobDiff:
    """What differs between the live generation and what is asked for; nothing is made.

    Raises:
        Refused: ``nothing_live``.
        InvalidRequest, NotFound, Unreachable: As `plan_generation`, of a draft.
    """
    live = job.live_generation()
    draft = plan_generation(context, job, request.model_copy(update={"draft": True}))
    output = context.outputs.of_kind(job.output.kind)
    return JobDiff(
        job=job.name,
        live=live.number,
        changes=changes_between(job.line(), draft, by_key=output.by_key),
        ways=tuple(_way(context, job, request, mode) for mode in WAYS),
    )


def _way(context: Context, job: Job, request: PlanGeneration, mode: Mode) -> WayView:
    # A deployment has no start: it goes on where the live generation ends.
    nowhere = {"start": None, "clamp": False, "from_oldest_available": False} if mode == DEPLOY else {}
    asked = request.model_copy(update={"mode": mode, "draft": False, **nowhere})
    try:
        plan = plan_generation(context, job, asked)
    except (Refused, InvalidRequest) as error:
        if error.code in _ONCE_STOPPED:
            return WayView(way=mode, open=True, code=None, why=("once the live generation is stopped: --stop",))
        return WayView(way=mode, open=False, code=error.code, why=(str(error),))
    return WayView(way=mode, open=True, code=None, why=plan.why)
