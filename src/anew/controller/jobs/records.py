"""Finding jobs, and the one way to change one: its document, and the record of a generation in the same commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anew.catalog.change import Operation, Put, PutJob, PutRebuild
from anew.controller.engine.commit import change_document, found_by_name
from anew.controller.engine.context import Context
from anew.controller.engine.records import find_of
from anew.core.errors import NotFound, Refused
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.inputs import Offsets
from anew.core.jobs.job import Job
from anew.core.jobs.rebuild import JOB, JobRebuild
from anew.core.rebuild import RebuildStatus, end


def job_named(context: Context, name: str) -> Job:
    """The live job of that name.

    Raises:
        NotFound: ``unknown_job``, with the nearest name.
    """
    catalog = context.catalog
    return found_by_name(JOB, name, catalog.job(name), lambda: [other.name for other in catalog.jobs()])


def job_of(context: Context, rebuild: JobRebuild) -> Job:
    """The job that a generation's record is of, deleted or not.

    Raises:
        NotFound: ``unknown_job``.
    """
    job = context.catalog.job_by_uid(rebuild.job_uid)
    if job is None:
        raise NotFound("unknown_job", "the job is gone", found=rebuild.job)
    return job


def change_job(
    context: Context, uid: str, operation: Operation, change: Callable[[Job], tuple[Job, tuple[Put, ...]]]
) -> Job:
    """Change a job, see `change_document`.

    Raises:
        Refused: What ``change`` refuses; ``revision_conflict`` after many losses.
        NotFound: ``unknown_job``: it was deleted meanwhile.
    """

    def load() -> Job:
        job = context.catalog.job_by_uid(uid)
        if job is None or job.deleted_at_ms is not None:
            raise NotFound("unknown_job", "the job is gone", found=uid)
        return job

    return change_document(context, operation, load, PutJob, change)


def change_deleted_job(
    context: Context, job: Job, operation: Operation, change: Callable[[Job], tuple[Job, tuple[Put, ...]]]
) -> Job:
    """Change a job, deleted or not: what its generations own goes after it.

    Raises:
        Refused: What ``change`` refuses; ``revision_conflict`` after many losses.
    """
    return change_document(context, operation, lambda: context.catalog.job_by_uid(job.uid) or job, PutJob, change)


def with_record(context: Context, generation: Generation, **changes: object) -> PutRebuild:
    """The record of a generation with other values, as it is put beside its job."""
    record = find_of(context, generation.rebuild, JobRebuild)
    return PutRebuild(record.model_copy(update=changes), record.revision)


def ended_record(context: Context, generation: Generation) -> PutRebuild:
    """The record of a generation that is retired, as it is put beside its job."""
    record = find_of(context, generation.rebuild, JobRebuild)
    ended = end(record, RebuildStatus.SUCCEEDED, None, context.clock())
    return PutRebuild(ended.model_copy(update={"wanted": False}), record.revision)


def position_of(context: Context, job: Job, generation: Generation) -> Mapping[str, Offsets]:
    """Input → partition → next offset behind the last batch, its start before the first."""
    last = context.catalog.batches(job.uid, generation.number, 1)
    return last[-1].end if last else generation.start


def is_forgotten(context: Context, job: Job, generation: Generation) -> bool:
    """Whether nobody knows any more where a generation stood: it was reclaimed, or its batches went with a catalog."""
    lost = generation.unrecorded or generation.status is GenerationStatus.RECLAIMED
    return lost and not context.catalog.batches(job.uid, generation.number, 1)


def silent_outputs(context: Context) -> frozenset[str]:
    """What generations wrote into that will not run again, and whose drivers have ended: nobody writes into it."""
    generations = [
        each
        for job in (*context.catalog.jobs(), *context.catalog.deleted_jobs())
        for each in job.generations
        if each.status is not GenerationStatus.RECLAIMED
    ]
    written = {each.writes_to for each in generations if not each.over or _may_append(context, each)}
    return frozenset(each.writes_to for each in generations) - written


def _may_append(context: Context, generation: Generation) -> bool:
    record = context.catalog.rebuild(generation.rebuild)
    return isinstance(record, JobRebuild) and _has_driver(context, record)


def _has_driver(context: Context, record: JobRebuild) -> bool:
    """Whether a driver may still append: one that died has until the end of its lease."""
    return bool(record.driver) and context.clock() <= record.lease_until_ms


def check_no_driver(context: Context, job: Job, generation: Generation) -> None:
    """Raise while a driver of a generation may still append.

    Raises:
        Refused: ``driver_alive``.
    """
    record = find_of(context, generation.rebuild, JobRebuild)
    if _has_driver(context, record):
        raise Refused(
            "driver_alive",
            f"the driver of {job.name}@{generation.number} is at its last batch",
            found=record.driver,
            expected="a driver that has ended",
            hint="try again in a moment",
        )


def chosen(job: Job, number: int | None) -> Generation:
    """The generation of a number; for None the live one, else the only one that is not over.

    Raises:
        NotFound: ``unknown_generation``.
        Refused: ``which_generation``.
    """
    if number is not None:
        return job.generation(number)
    if job.live is not None:
        return job.generation(job.live)
    going = [each for each in job.generations if not each.over]
    if len(going) == 1:
        return going[0]
    raise Refused(
        "which_generation",
        f"{job.name} has no live generation",
        found=", ".join(str(each.number) for each in going) or "no generation",
        expected="the number of one",
        hint=f"anew job show {job.name}; then {job.name}@N"
        if job.generations
        else f"its submission did not end: anew job submit {job.name} again, or anew job delete {job.name}",
    )
