"""Making jobs, and what people ask of their generations: run, stop, cut over, drop, delete."""

from __future__ import annotations

from keyword import iskeyword

from anew.api.jobs.requests import CreateJob, DropGeneration, RunGeneration
from anew.catalog.change import Put, PutJob, PutRequest
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.controller.engine.requests import made_before
from anew.controller.jobs.planning import inputs_of
from anew.controller.jobs.records import change_job, chosen, ended_record, job_named, with_record
from anew.core.confighash import value_hash
from anew.core.errors import InvalidRequest, Refused
from anew.core.jobs import job as jobs
from anew.core.jobs.code import FILES
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.job import Job, JobOutput, check_job_name


def create_job(context: Context, request: CreateJob, actor: str) -> Job:
    """Make a job without a generation; idempotent by request id.

    A job of the same inputs and output that has no generation yet is given back: its submission ended on the way.

    Raises:
        InvalidRequest: ``bad_name``, ``bad_output``, ``unknown_output``, ``no_inputs``, ``bad_input``,
            ``request_id_reused``.
        NotFound: ``unknown_topic``, and what the output does not know.
        Refused: ``job_exists``, ``topic_not_ready``.
    """
    body_hash = value_hash(request.model_dump(mode="json", exclude={"request_id"}))
    made = made_before(context, request.request_id, body_hash)
    if made is not None:
        known_job = context.catalog.job_by_uid(made)
        if known_job is None or known_job.deleted_at_ms is not None:
            raise Refused(
                "job_deleted",
                f"the job that this request made was deleted: {request.name}",
                found=request.request_id,
                expected="a new id for a new request",
            )
        return known_job
    check_job_name(request.name)
    kind, separator, name = request.output.partition(":")
    if not separator or not name:
        raise InvalidRequest(
            "bad_output",
            "this names no output",
            found=request.output,
            expected="store:NAME, or topic:NAME",
            hint=f"for example store:{request.output}" if not separator else None,
        )
    if not request.inputs:
        raise InvalidRequest("no_inputs", "a job reads something", found="no input", expected="INPUT=TOPIC")
    for named in request.inputs:
        if not named.isidentifier() or iskeyword(named) or named == FILES:
            raise InvalidRequest(
                "bad_input",
                "an input is named as the parameter of the function that takes its frame",
                found=named,
                expected=f"a name in Python, and not {FILES!r}",
            )
    unread = sorted(request.starts.keys() - request.inputs.keys())
    if unread:
        raise InvalidRequest(
            "unknown_input",
            "a default start names an input that the job does not have",
            found=", ".join(unread),
            expected=", ".join(sorted(request.inputs)),
        )
    output = JobOutput(kind=kind, name=name, uid=context.outputs.of_kind(kind).uid_of(context, name))
    job = Job(
        uid=context.new_id(),
        name=request.name,
        fabric=next(iter(context.fabrics)),
        inputs=dict(sorted(request.inputs.items())),
        starts=dict(sorted(request.starts.items())),
        max_lateness_ms=request.max_lateness_ms,
        output=output,
        # Above those of all jobs that had the name: what they wrote may still be there (rule R20).
        next_generation=context.catalog.next_generation(request.name),
        created_at_ms=context.clock(),
    )
    inputs_of(context, job)
    present = context.catalog.job(job.name)
    if present is not None and not present.generations and present.says == job.says:
        return present
    known = () if request.request_id is None else (PutRequest(request.request_id, body_hash, job.uid),)
    operation = context.operation("create job", job.name, actor, output=str(output), inputs=job.inputs)
    commit(context, operation, PutJob(job, None), *known)
    return job_named(context, request.name)


def run(context: Context, name: str, request: RunGeneration, actor: str) -> Job:
    """Let a generation run; the next round starts its driver, unless whoever asks is to be that.

    Raises:
        NotFound: ``unknown_job``, ``unknown_generation``.
        Refused: ``generation_over``, ``not_ready``, ``which_generation``.
    """
    job = job_named(context, name)
    generation = chosen(job, request.generation)
    accepted = {} if request.environment is None else {"environment": str(request.environment)}
    operation = context.operation("run job", name, actor, generation=generation.number, **accepted)

    def change(present: Job) -> tuple[Job, tuple[Put, ...]]:
        now_ms = context.clock()
        after = jobs.to_run(present, generation.number, now_ms, request.environment)
        if request.foreground and after != present:
            after = jobs.started(after, generation.number, now_ms, context.limits.scheduled_start_seconds)
        return after, () if after == present else (with_record(context, generation, wanted=True),)

    return change_job(context, job.uid, operation, change)


def stop(context: Context, name: str, number: int | None, actor: str) -> Job:
    """Let a generation end after the batch that it is at.

    Raises:
        NotFound: ``unknown_job``, ``unknown_generation``.
        Refused: ``generation_over``, ``which_generation``.
    """
    job = job_named(context, name)
    generation = chosen(job, number)
    operation = context.operation("stop job", name, actor, generation=generation.number)

    def change(present: Job) -> tuple[Job, tuple[Put, ...]]:
        after = jobs.to_stop(present, generation.number, context.clock())
        return after, () if after == present else (with_record(context, generation, wanted=False),)

    return change_job(context, job.uid, operation, change)


def drop(context: Context, name: str, request: DropGeneration, actor: str) -> Job:
    """Retire a generation that is not live: it will not run again, and what it owns goes after the grace.

    Raises:
        NotFound: ``unknown_job``, ``unknown_generation``.
        Refused: ``generation_live``; ``can_be_cut_back_to``, unless by force; ``topic_in_use``: a job reads its topic.
    """
    job = job_named(context, name)
    operation = context.operation("drop generation", name, actor, generation=request.generation, forced=request.force)
    return change_job(context, job.uid, operation, lambda present: dropped(context, present, request))


def delete(context: Context, name: str, actor: str, *, only_empty: bool = False) -> None:
    """Delete a job with all of its generations; what its live one wrote stays where it serves.

    Raises:
        NotFound: ``unknown_job``.
        Refused: ``job_runs``; ``job_has_generations``, where only one without any is to go;
            ``topic_in_use``: another job reads what it wrote.
    """
    job = job_named(context, name)
    running = [each.number for each in job.generations if each.status is GenerationStatus.RUNNING]
    if running:
        raise Refused(
            "job_runs",
            f"{name} runs",
            found=f"generation {', '.join(map(str, running))}",
            expected="a job that is stopped",
            hint=f"anew job stop {name}@{running[0]}",
        )
    operation = context.operation("delete job", name, actor)

    def change(present: Job) -> tuple[Job, tuple[Put, ...]]:
        if only_empty and present.generations:
            raise Refused(
                "job_has_generations",
                f"{name} has generations",
                found=", ".join(str(each.number) for each in present.generations),
                expected="a job without any",
                hint=f"anew job show {name}",
            )
        after, going = present.model_copy(update={"live": None}), [g for g in present.generations if not g.over]
        for generation in going:
            after = jobs.retired(after, generation.number, context.clock())
        # What the live one wrote stays where it serves.
        closed = _closed(context, present, *(g for g in going if g.number != present.live))
        records = (ended_record(context, generation) for generation in going)
        return after.model_copy(update={"deleted_at_ms": context.clock()}), (*records, *closed)

    change_job(context, job.uid, operation, change)


def dropped(context: Context, job: Job, request: DropGeneration) -> tuple[Job, tuple[Put, ...]]:
    """The job without a generation that is not live, and what that changes beside it.

    Raises:
        NotFound: ``unknown_generation``.
        Refused: As `drop`.
    """
    generation = job.generation(request.generation)
    after = jobs.retired(job, generation.number, context.clock(), force=request.force)
    if generation.over:
        return job, ()
    return after, (ended_record(context, generation), *_closed(context, job, generation))


def _closed(context: Context, job: Job, *generations: Generation) -> tuple[Put, ...]:
    output = context.outputs.of_kind(job.output.kind)
    return output.close(context, job.output.name, [generation.writes_to for generation in generations])
