"""What drivers of generations say: they begin, a batch is appended, they end."""

from __future__ import annotations

from anew.api.jobs.requests import MOST_BATCHES, DriverEnded, RecordBatch, RunOrder
from anew.api.jobs.views import BatchTaken
from anew.catalog.change import DropBatches, Put, PutBatch
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.controller.engine.drivers import first_line
from anew.controller.engine.records import check_driver, find_of
from anew.controller.jobs.records import change_deleted_job, change_job, job_of, with_record
from anew.core.errors import Refused
from anew.core.jobs import job as jobs
from anew.core.jobs.deadletters import check_dead_letters
from anew.core.jobs.generation import GenerationStatus
from anew.core.jobs.job import Job
from anew.core.jobs.rebuild import JobRebuild
from anew.core.rebuild import check_epoch

KEPT_BATCHES = 10_000
"""The records of so many of the last batches of a generation are kept, and of some more."""
_FORGOTTEN_EVERY = 1_000
NO_LEASE = {"driver": "", "lease_until_ms": 0}
"""Of the record of a generation that has no driver."""


def order_for(context: Context, rebuild_id: str, epoch: int) -> RunOrder:
    """What the driver of a generation works with.

    Raises:
        Refused: ``rebuild_ended``, ``epoch_outdated``; ``output_not_made``: it is not there any more.
    """
    rebuild = find_of(context, rebuild_id, JobRebuild)
    check_driver(rebuild, epoch)
    job = job_of(context, rebuild)
    generation = job.generation(rebuild.generation)
    output = context.outputs.of_kind(job.output.kind)
    place = output.made(context, job.output.name, generation.writes_to)
    if place is None:
        raise Refused(
            "output_not_made",
            f"what {job.name}@{generation.number} writes into is not there",
            found=generation.writes_to,
            expected=f"an output in {job.output}",
            hint=f"anew job show {job.name}",
        )
    batches = context.catalog.batches(job.uid, generation.number, MOST_BATCHES)
    return RunOrder(job=job, generation=generation.number, place=place, batches=tuple(batches))


def record_batch(context: Context, rebuild_id: str, request: RecordBatch) -> BatchTaken:
    """Keep what a batch did; the same again is nothing. It leaves no line of history.

    Raises:
        Refused: ``rebuild_ended``, ``epoch_outdated``; ``batch_gap``, ``batch_differs``.
        Failed: ``too_many_dead_letters``.
    """
    rebuild, record = find_of(context, rebuild_id, JobRebuild), request.record
    check_epoch(rebuild, request.epoch)
    job = job_of(context, rebuild)
    generation = job.generation(rebuild.generation)
    before = record.dead_total - len(record.dead_letters)
    check_dead_letters(f"{job.name}@{generation.number}", record.dead_letters, before, generation.most_dead_letters)
    # The epoch is proved again where the record is put: another driver may take over in between.
    context.catalog.put_batch(PutBatch(job.uid, rebuild.generation, record, rebuild.id))
    if record.batch >= KEPT_BATCHES and record.batch % _FORGOTTEN_EVERY == 0:
        operation = context.operation("forget batches", job.name, "controller", generation=rebuild.generation)
        commit(context, operation, DropBatches(job.uid, rebuild.generation, record.batch - KEPT_BATCHES))
    if generation.failures or generation.error:
        operation = context.operation("generation goes on", job.name, "driver", generation=rebuild.generation)
        change_job(context, job.uid, operation, lambda present: (jobs.got_on(present, rebuild.generation), ()))
    return BatchTaken(batch=record.batch, epoch=record.epoch)


def driver_ended(context: Context, rebuild_id: str, request: DriverEnded) -> None:
    """A driver ends: because it was to stop, or with an error, after which another one follows unless it is for good.

    Raises:
        Refused: ``epoch_outdated``.
    """
    rebuild = find_of(context, rebuild_id, JobRebuild)
    check_epoch(rebuild, request.epoch)
    number, now_ms = rebuild.generation, context.clock()
    error = None if request.error is None else first_line(request.error)
    operation = context.operation(
        "driver ended", rebuild.job, "driver", generation=number, rebuild=rebuild.id, error=error
    )

    def change(present: Job) -> tuple[Job, tuple[Put, ...]]:
        generation = present.generation(number)
        after = present
        if error is not None:
            after = jobs.driver_ended(present, number, error, now_ms, for_good=request.for_good)
        wanted = after.generation(number).status is GenerationStatus.RUNNING
        record = with_record(context, generation, wanted=wanted, **NO_LEASE)
        check_epoch(record.rebuild, request.epoch)
        return after, (record,)

    # Also one that was told to end because its generation was retired: nobody drives it from now on.
    change_deleted_job(context, job_of(context, rebuild), operation, change)
