"""How a generation gets on: where it stands, how fast it reads and its inputs grow, when it is there, what expires."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from anew.api.jobs.views import UnreadExpiry
from anew.controller.engine.context import Context
from anew.controller.jobs.looks import LAG_LIMIT_RECORDS
from anew.controller.jobs.planning import held_of
from anew.controller.jobs.starting import Held, time_at
from anew.core.errors import AnewError
from anew.core.jobs.batch import BatchRecord
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.inputs import JobInput, Offsets, with_added
from anew.core.jobs.job import Job
from anew.core.jobs.pace import Backlog, Rates, TimeLeft, expires_at_ms, read_rates, time_left
from anew.core.jobs.rebuild import JobRebuild
from anew.core.topics.topic import Kept
from anew.log.interface import TopicPartition

_GROWTH_SECONDS = 60
"""Over so long a time the growth of inputs is looked at."""
_PACE_BATCHES = 20
"""From how many of the last batches the pace is taken."""


@dataclass(frozen=True, slots=True)
class GenerationProgress:
    """Where a generation stands, and how fast it gets on.

    Attributes:
        batches: The records of its last batches.
        positions: Input → partition → next offset to read.
        lags: Input and partition → how many records are left; None: a log does not answer, or it is over.
        appends: How fast the partitions grow that it has not read to their ends; None: nobody can say.
        left: When it has come to the ends.
        expires: The first records that will be gone before it reads them.
    """

    batches: list[BatchRecord]
    positions: dict[str, Offsets]
    lags: Mapping[tuple[str, int], int] | None
    appends: Rates | None
    left: TimeLeft
    expires: UnreadExpiry | None


def progress_of(context: Context, job: Job, generation: Generation) -> GenerationProgress:
    """How a generation gets on now."""
    batches = context.catalog.batches(job.uid, generation.number, _PACE_BATCHES)
    positions = dict(batches[-1].end if batches else generation.start)
    held = None if generation.over else _held(context, generation)
    if held is None:
        return GenerationProgress(batches, positions, None, None, TimeLeft(None), None)
    positions = with_added(positions, held)
    lags = _lags(held, positions)
    appends = _append_rates(context, generation, lags)
    left = _time_left(lags, appends, batches)
    expires = None
    if appends is not None:
        with suppress(AnewError):
            expires = _first_expiry(context, generation, held, positions, read_rates(batches), appends)
    return GenerationProgress(batches, positions, lags, appends, left, expires)


def reads_history(context: Context, rebuild: JobRebuild) -> bool:
    """Whether a generation has history to read that its inputs' topics hold for it."""
    job = context.catalog.job_by_uid(rebuild.job_uid)
    generation = None if job is None else job.find(rebuild.generation)
    if job is None or generation is None or generation.over:
        return False
    progress = progress_of(context, job, generation)
    if not progress.batches or progress.lags is None:
        return True
    return sum(progress.lags.values()) > LAG_LIMIT_RECORDS or progress.expires is not None


def reads_what_expires(context: Context, generation: Generation) -> bool:
    """Whether a topic that a generation reads forgets records."""
    return any(_kept(context, of) != Kept() for of in generation.inputs)


def _kept(context: Context, of: JobInput) -> Kept:
    topic = context.catalog.topic(of.topic)
    return Kept() if topic is None else topic.kept


def _held(context: Context, generation: Generation) -> dict[str, Held] | None:
    """What the logs hold of the inputs; None: one does not answer."""
    try:
        return {of.name: held_of(context, of) for of in generation.inputs}
    except AnewError:
        return None


def _lags(held: Mapping[str, Held], positions: Mapping[str, Offsets]) -> dict[tuple[str, int], int]:
    """Input and partition → how many records are left."""
    return {
        (name, partition): max(0, range_.end - positions[name][partition])
        for name, of in held.items()
        for partition, range_ in of.items()
    }


def _append_rates(context: Context, generation: Generation, lags: Mapping[tuple[str, int], int]) -> Rates | None:
    """How fast the partitions grow that a running generation has not read to their ends; None: nobody can say."""
    if generation.status is not GenerationStatus.RUNNING:
        return None
    since_ms = context.clock() - _GROWTH_SECONDS * 1000
    inputs, rates = {of.name: of for of in generation.inputs}, {}
    try:
        for (name, partition), lag in lags.items():
            if lag:
                of = inputs[name]
                log, at = context.fabrics[of.fabric].log, TopicPartition(of.topic, of.topic_uid, partition)
                grown = log.offsets(at).end - log.offset_for_time(at, since_ms)
                rates[name, partition] = grown / _GROWTH_SECONDS
    except AnewError:
        return None
    return rates


def _time_left(lags: Mapping[tuple[str, int], int], appends: Rates | None, batches: list[BatchRecord]) -> TimeLeft:
    if any(lags.values()) and appends is None:
        return TimeLeft(None)
    return time_left(lags, read_rates(batches), appends or {})


def _first_expiry(
    context: Context,
    generation: Generation,
    held: Mapping[str, Held],
    positions: Mapping[str, Offsets],
    reads: Rates,
    appends: Rates,
) -> UnreadExpiry | None:
    """The first records that will be gone before they are read; of partitions that were not measured nothing is said.

    Raises:
        AnewError: A log does not answer.
    """
    found = list[UnreadExpiry]()
    for of in generation.inputs:
        kept, log = _kept(context, of), context.fabrics[of.fabric].log
        if kept == Kept():
            continue
        for partition, range_ in held[of.name].items():
            at = of.name, partition
            if at not in reads or at not in appends:
                continue
            backlog = Backlog(
                position=positions[of.name][partition],
                begin=range_.begin,
                end=range_.end,
                read_per_s=reads[at],
                appended_per_s=appends[at],
                kept_ms=kept.time_ms,
                is_bounded=kept.partition_bytes is not None,
            )
            place = TopicPartition(of.topic, of.topic_uid, partition)
            at_ms = expires_at_ms(backlog, context.clock(), partial(time_at, log, place))
            if at_ms is not None:
                found.append(UnreadExpiry(input=of.name, partition=partition, at_ms=at_ms))
    return min(found, key=lambda each: each.at_ms, default=None)
