"""Where generations stand in their inputs, and what the logs say of these places; nothing is written (case A1)."""

from __future__ import annotations

from anew.api.jobs.views import CheckpointsView, CheckpointView, PositionView
from anew.controller.engine.context import Context
from anew.controller.jobs.planning import held_of
from anew.controller.jobs.records import is_forgotten
from anew.controller.jobs.starting import time_at
from anew.core.errors import AnewError
from anew.core.jobs.generation import Generation
from anew.core.jobs.inputs import JobInput, with_added
from anew.core.jobs.job import Job
from anew.log.interface import Log, Offsets, TopicPartition


def checkpoints_of(context: Context, job: Job, number: int | None) -> CheckpointsView:
    """The checkpoints of a job's generations, of those that are not over where none is named.

    Raises:
        NotFound: ``unknown_generation``.
    """
    chosen = [each for each in job.generations if not each.over] if number is None else [job.generation(number)]
    return CheckpointsView(job=job.name, checkpoints=tuple(_checkpoint(context, job, each) for each in chosen))


def _checkpoint(context: Context, job: Job, generation: Generation) -> CheckpointView:
    last = context.catalog.batches(job.uid, generation.number, 1)
    position = last[-1].end if last else generation.start
    # Its start is where it began, and not where it stood.
    forgotten = is_forgotten(context, job, generation)
    positions = {
        of.name: {} if forgotten else _positions(context, of, position.get(of.name, {})) for of in generation.inputs
    }
    lags = [each.lag for of in positions.values() for each in of.values()]
    return CheckpointView(
        generation=generation.number,
        status=generation.status.value,
        batch=last[-1].batch if last else None,
        recorded_at_ms=last[-1].at_ms if last else None,
        positions=positions,
        lag_records=None if forgotten or None in lags else sum(lag for lag in lags if lag is not None),
    )


def _positions(context: Context, of: JobInput, position: dict[int, int]) -> dict[int, PositionView]:
    """Partition → where it stands; where the log does not answer, the offset alone is known."""
    log = context.fabrics[of.fabric].log
    try:
        held = held_of(context, of)
    except AnewError:
        held = {}
    return {
        partition: _position(log, TopicPartition(of.topic, of.topic_uid, partition), offset, held.get(partition))
        for partition, offset in with_added({of.name: position}, {of.name: held})[of.name].items()
    }


def _position(log: Log, at: TopicPartition, offset: int, held: Offsets | None) -> PositionView:
    if held is None:
        return PositionView(offset=offset, time_ms=None, lag=None, begin=None, end=None)
    time_ms = _known_time(log, at, offset) if held.begin <= offset < held.end else None
    lag = max(0, held.end - offset)
    return PositionView(offset=offset, time_ms=time_ms, lag=lag, begin=held.begin, end=held.end)


def _known_time(log: Log, at: TopicPartition, offset: int) -> int | None:
    try:
        return time_at(log, at, offset)
    except AnewError:
        return None
