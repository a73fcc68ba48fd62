"""Cut-overs: at once, once a generation has caught up, or at a time."""

from __future__ import annotations

from anew.api.jobs.requests import CutOver
from anew.api.jobs.views import CutOverAnswer
from anew.catalog.change import Operation, Put
from anew.controller.engine.context import Context
from anew.controller.jobs.looks import looks_of
from anew.controller.jobs.records import change_job, job_named
from anew.core.errors import Refused
from anew.core.jobs import job as jobs
from anew.core.jobs.cutover import PlannedCut
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.job import Job

_PASSES = frozenset({"not_caught_up", "not_served", "not_sealed", "plan_outdated"})
"""Refusals that pass with time, or because somebody was faster."""


def cut_over(context: Context, name: str, request: CutOver, actor: str) -> CutOverAnswer:
    """Let a generation serve instead of the live one, in one commit; the other way round it is a cut back.

    Where it is to be done later, that is noted, and the rounds do it.

    Raises:
        NotFound: ``unknown_job``, ``unknown_generation``.
        Refused: ``not_caught_up``, ``nothing_to_cut_over``, ``generation_over``, ``output_not_whole``, and what the
            output refuses.
    """
    job = job_named(context, name)
    number = request.generation if request.generation is not None else _waiting(job)
    if request.when_caught_up or request.not_before_ms is not None:
        return _planned(context, job, number, request, actor)
    operation = context.operation("cut over", name, actor, generation=number, before=job.live, forced=request.force)
    _go_over(context, job, number, operation, force=request.force)
    return CutOverAnswer(job=name, live=number, before=job.live)


def _go_over(
    context: Context, job: Job, number: int, operation: Operation, *, force: bool = False, as_planned: bool = False
) -> None:
    """Let a generation serve, in one commit.

    Args:
        context: The controller's collaborators.
        job: The job as it was looked at.
        number: The generation.
        operation: What the history has.
        force: Also while it has not caught up.
        as_planned: Only while that is what is planned.
    """

    def change(present: Job) -> tuple[Job, tuple[Put, ...]]:
        # The condition is the live generation: whatever else was rebuilt meanwhile does not matter.
        if present.live != job.live or (as_planned and present.planned_cut != job.planned_cut):
            raise _moved(job, present)
        return serving(context, present, number, force=force)

    change_job(context, job.uid, operation, change)


def serving(context: Context, job: Job, number: int, *, force: bool) -> tuple[Job, tuple[Put, ...]]:
    """The job with another generation live, and what that changes of its output.

    Raises:
        NotFound: ``unknown_generation``.
        Refused: As `cut_over`.
    """
    after = jobs.cut_over(job, number, looks_of(context, job, number), force=force)
    before = None if job.live is None else job.generation(job.live).writes_to
    output = context.outputs.of_kind(job.output.kind)
    return after, output.cut_over(context, job.output.name, before, job.generation(number).writes_to)


def cut_planned(context: Context, job: Job) -> None:
    """Do a cut-over that was planned, once it may be done; one that means nothing any more is called off.

    A refusal that does not pass with time is shown with the job, and it is tried again in each round.
    """
    planned = job.planned_cut
    if planned is None:
        return
    generation = job.find(planned.generation)
    if job.live != planned.before or generation is None or generation.over:
        operation = context.operation("call off cut over", job.name, "controller", generation=planned.generation)
        _note_after(context, job, None, operation)
        return
    if planned.not_before_ms is not None and context.clock() < planned.not_before_ms:
        return
    error = _why_never(job, generation)
    try:
        said = {"generation": planned.generation, "before": job.live, "planned": True}
        operation = context.operation("cut over", job.name, planned.actor, **said)
        _go_over(context, job, planned.generation, operation, as_planned=True)
    except Refused as refused:
        error = error if refused.code in _PASSES else str(refused)
    else:
        return
    if error != planned.error:
        noted = planned.model_copy(update={"error": error})
        _note_after(context, job, noted, context.operation("cut over refused", job.name, "controller", error=error))


def _why_never(job: Job, generation: Generation) -> str | None:
    """Why a generation does not catch up unless somebody does something; None: it may."""
    if generation.status in (GenerationStatus.RUNNING, GenerationStatus.PLANNED):
        return None
    return f"it is {generation.status.value}, and does not get on: anew job run {job.name}@{generation.number}"


def _note_after(context: Context, job: Job, planned: PlannedCut | None, operation: Operation) -> None:
    """Note what is planned, where that is what was planned when it was looked at; else somebody was faster."""

    def change(present: Job) -> tuple[Job, tuple[Put, ...]]:
        is_same = present.planned_cut == job.planned_cut
        return (present.model_copy(update={"planned_cut": planned}) if is_same else present), ()

    change_job(context, job.uid, operation, change)


def call_off(context: Context, name: str, actor: str) -> Job:
    """Take a planned cut-over back; where none is planned nothing changes.

    Raises:
        NotFound: ``unknown_job``.
    """
    job = job_named(context, name)
    if job.planned_cut is None:
        return job
    number = job.planned_cut.generation
    return _note(context, job, None, context.operation("call off cut over", name, actor, generation=number))


def _planned(context: Context, job: Job, number: int, request: CutOver, actor: str) -> CutOverAnswer:
    """Note a cut-over that is to happen later. What no time changes is refused at once."""
    jobs.check_takes_place(job, number)
    planned = PlannedCut(generation=number, before=job.live, not_before_ms=request.not_before_ms, actor=actor)
    said = {"generation": number, "before": job.live, "not_before_ms": request.not_before_ms}
    _note(context, job, planned, context.operation("plan cut over", job.name, actor, **said))
    return CutOverAnswer(job=job.name, live=job.live or 0, before=None, planned=planned)


def _note(context: Context, job: Job, planned: PlannedCut | None, operation: Operation) -> Job:
    """Note what is planned, unless another generation serves by now."""

    def change(present: Job) -> tuple[Job, tuple[Put, ...]]:
        if planned is not None and present.live != planned.before:
            raise _moved(job, present)
        return present.model_copy(update={"planned_cut": planned}), ()

    return change_job(context, job.uid, operation, change)


def _moved(job: Job, present: Job) -> Refused:
    return Refused(
        "plan_outdated",
        f"something else was done with {job.name} meanwhile",
        found=f"live {present.live}, planned {present.planned_cut}",
        expected=f"live {job.live}, planned {job.planned_cut}",
        hint=f"anew job show {job.name}",
    )


def _waiting(job: Job) -> int:
    waiting = job.in_work
    if waiting is None:
        raise Refused(
            "nothing_to_cut_over",
            f"no generation of {job.name} is to take the live one's place",
            found=f"live {job.live}",
            expected="a rewind that has caught up",
            hint=f"anew job rewind {job.name}",
        )
    return waiting.number
