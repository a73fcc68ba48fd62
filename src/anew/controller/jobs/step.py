"""A round for one job: outputs are made, drivers started, and generations looked at."""

from __future__ import annotations

from anew.api.jobs.requests import DropGeneration
from anew.catalog.change import DropBatches, Put, PutReclaim, Reclaim
from anew.controller.engine.context import Context
from anew.controller.engine.drivers import heard_at_ms
from anew.controller.engine.records import find_of
from anew.controller.jobs.batches import NO_LEASE
from anew.controller.jobs.changing import drop
from anew.controller.jobs.cutting import cut_planned
from anew.controller.jobs.looks import ends_of, look
from anew.controller.jobs.records import change_deleted_job, change_job, job_named, position_of, with_record
from anew.core.errors import AnewError
from anew.core.jobs import job as jobs
from anew.core.jobs.batch import EVERY_BATCH, behind
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.job import Job
from anew.core.jobs.places import folder_of
from anew.core.jobs.rebuild import JOB, JobRebuild
from anew.core.rebuild import Stage


def step_job(context: Context, job: Job) -> None:
    """Take a job one step further."""
    for generation in job.generations:
        if _writes_for_nobody(context, job, generation):
            drop(context, job.name, DropGeneration(generation=generation.number, force=True), "controller")
            job = job_named(context, job.name)
        elif generation.status is GenerationStatus.PLANNED:
            job = _make(context, job, generation)
        elif generation.status is GenerationStatus.RUNNING:
            job = _drive(context, job, generation)
        elif generation.status is GenerationStatus.RETIRED:
            job = _reclaim(context, job, generation)
    look(context, job)
    cut_planned(context, job)
    if job.live is None:
        _serve_first(context, job)


def _writes_for_nobody(context: Context, job: Job, generation: Generation) -> bool:
    """Whether another one took its place, and readers can never be sent back to it.

    What it wrote is gone; or the one that took its place was itself followed by another.
    """
    number, waiting = generation.number, job.in_work
    if generation.over or number == job.live or job.live is None or (waiting is not None and waiting.number == number):
        return False
    if waiting is None and not job.can_come_back(number):
        return True
    output = context.outputs.of_kind(job.output.kind)
    return not output.can_serve_again(context, job.output.name, generation.writes_to)


def step_deleted_job(context: Context, job: Job) -> None:
    """Let go of what the generations of a deleted job own."""
    for generation in job.generations:
        if generation.status is GenerationStatus.RETIRED:
            job = _reclaim(context, job, generation)


def _make(context: Context, job: Job, generation: Generation) -> Job:
    """Make the output of a planned generation; the first one of a job runs at once where nobody said otherwise."""
    output = context.outputs.of_kind(job.output.kind)
    if output.made(context, job.output.name, generation.writes_to) is None:
        return job
    operation = context.operation("generation ready", job.name, "controller", generation=generation.number)
    now_ms = context.clock()
    return change_job(
        context, job.uid, operation, lambda present: (jobs.made_ready(present, generation.number, now_ms), ())
    )


def _drive(context: Context, job: Job, generation: Generation) -> Job:
    """Start a driver where none is at work: intent first, so that of two controllers one starts it."""
    record, now_ms = find_of(context, generation.rebuild, JobRebuild), context.clock()
    number = generation.number
    # One that was silent for so long may be replaced: whatever it appends from then on does not count.
    limit_seconds = context.limits.takeover_seconds
    is_silent = now_ms - heard_at_ms(context, record) >= limit_seconds * 1000
    if record.driver and not (is_silent and context.attention.listened_for(limit_seconds, now_ms)):
        return _note_well(context, job, generation) if record.stage is Stage.BUILD else job
    if now_ms < generation.retry_at_ms:
        return job
    if record.driver or generation.launched:
        why = "its driver was lost" if record.driver else "a driver was started, and did not report"
        return _note_lost(context, job, generation, f"{why}: anew job logs {job.name}@{number}")
    operation = context.operation("start driver", job.name, "controller", generation=number)
    seconds, is_first = context.limits.scheduled_start_seconds, True

    def change(present: Job) -> tuple[Job, tuple[Put, ...]]:
        nonlocal is_first
        is_first = not present.generation(number).launched
        return (jobs.started(present, number, now_ms, seconds) if is_first else present), ()

    after = change_job(context, job.uid, operation, change)
    if is_first:
        request_id = f"{generation.rebuild}-e{record.epoch + 1}-{after.revision}"
        context.launch(JOB, f"{job.name}@{number}", request_id)
    return after


def _note_well(context: Context, job: Job, generation: Generation) -> Job:
    """A driver follows its inputs and has nothing left to read: what failed before it is over, as after a batch."""
    if not (generation.failures or generation.error) or not _has_read_all(context, job, generation):
        return job
    operation = context.operation("generation goes on", job.name, "controller", generation=generation.number)
    return change_job(context, job.uid, operation, lambda present: (jobs.got_on(present, generation.number), ()))


def _has_read_all(context: Context, job: Job, generation: Generation) -> bool:
    try:
        ends = ends_of(context, generation)
    except AnewError:
        # A log that does not answer says nothing about its readers.
        return False
    return behind(position_of(context, job, generation), ends) == 0


def _note_lost(context: Context, job: Job, generation: Generation, why: str) -> Job:
    """A driver ended without a word: the next one follows after a pause that rises until a batch is recorded."""
    operation = context.operation("driver lost", job.name, "controller", generation=generation.number, error=why)
    now_ms = context.clock()

    def change(present: Job) -> tuple[Job, tuple[Put, ...]]:
        after = jobs.driver_ended(present, generation.number, why, now_ms, for_good=False)
        return after, (with_record(context, generation, **NO_LEASE),)

    return change_job(context, job.uid, operation, change)


def _reclaim(context: Context, job: Job, generation: Generation) -> Job:
    """Let go of what a retired generation owns, once nobody needs it: the last of its output, its checkpoint."""
    operation = context.operation("generation reclaimed", job.name, "controller", generation=generation.number)
    fabric, path = context.fabrics[job.fabric], folder_of(job.uid, generation.number)
    checkpoint = Reclaim(f"{path}@{fabric.name}", "tree", fabric.name, path, context.reclaim_due_ms(), "a generation")

    def change(present: Job) -> tuple[Job, tuple[Put, ...]]:
        if any(each.writes_to == generation.writes_to and not each.over for each in present.generations):
            # Another one went on in its place: which of its records count is asked for as long as they are there.
            return present, ()
        output = context.outputs.of_kind(present.output.kind)
        gone = output.gone(context, present.output.name, generation.writes_to)
        if gone is None:
            return present, ()
        after = jobs.reclaimed(present, generation.number, context.clock())
        is_read = output.is_read(context, generation.writes_to)
        forgotten = () if is_read else (DropBatches(present.uid, generation.number, EVERY_BATCH),)
        return after, (*gone, PutReclaim(checkpoint), *forgotten)

    return change_deleted_job(context, job, operation, change)


def _serve_first(context: Context, job: Job) -> Job:
    """The first generation serves as soon as it can: it takes nobody's place."""
    output = context.outputs.of_kind(job.output.kind)
    for generation in job.generations:
        if _may_serve(generation) and output.served(context, job.output.name, generation.writes_to):
            operation = context.operation("generation serves", job.name, "controller", generation=generation.number)

            def change(present: Job, number: int = generation.number) -> tuple[Job, tuple[Put, ...]]:
                if present.live is not None or not _may_serve(present.generation(number)):
                    # It was retired, or another one was cut over to, while its replicas were looked at.
                    return present, ()
                puts = output.cut_over(context, present.output.name, None, present.generation(number).writes_to)
                return present.model_copy(update={"live": number}), puts

            return change_job(context, job.uid, operation, change)
    return job


def _may_serve(generation: Generation) -> bool:
    return generation.status not in (GenerationStatus.PLANNED, GenerationStatus.FAILED) and not generation.over
