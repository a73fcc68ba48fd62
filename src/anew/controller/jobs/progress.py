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
            race = _Race(context, generation, held, positions, lags, _rates(batches, lags), appends)
            expires = race.first_expiry()
    return GenerationProgress(batches, positions, lags, appends, left, expires)


def reads_history(context: Context, rebuild: JobRebuild) -> bool:
    """Whether a generation has history to read that its inputs' topics hold for it: until it has caught up, or is over.

    One that does not run, or whose pace nobody has measured yet, has it all to read. Of a topic that keeps so many
    bytes all has to be read: it may have outgrown them, and is cut to them at once.

    Raises:
        AnewError: A log does not answer.
    """
    job = context.catalog.job_by_uid(rebuild.job_uid)
    generation = None if job is None else job.find(rebuild.generation)
    if job is None or generation is None or generation.over:
        return False
    if generation.status is not GenerationStatus.RUNNING:
        return True
    batches = context.catalog.batches(job.uid, generation.number, _PACE_BATCHES)
    held = {of.name: held_of(context, of) for of in generation.inputs}
    positions = with_added(batches[-1].end if batches else generation.start, held)
    lags = _lags(held, positions)
    if not batches or sum(lags.values()) > LAG_LIMIT_RECORDS:
        return True
    appends = _grown(context, generation, lags)
    race = _Race(context, generation, held, positions, lags, _rates(batches, lags), appends)
    return any(
        _is_lagging(of, lags) and (kept.partition_bytes is not None or race.is_lost(of, kept))
        for of, kept in ((of, _nominal(context, of)) for of in generation.inputs)
        if kept != Kept()
    )


def _is_lagging(of: JobInput, lags: Mapping[tuple[str, int], int]) -> bool:
    return any(lag for (name, _), lag in lags.items() if name == of.name)


def reads_what_expires(context: Context, generation: Generation) -> bool:
    """Whether a topic that a generation reads forgets records now."""
    return any(_kept(context, of) != Kept() for of in generation.inputs)


def _kept(context: Context, of: JobInput) -> Kept:
    """What an input's topic keeps now: one that is held, everything."""
    topic = context.catalog.topic(of.topic)
    return Kept() if topic is None or (topic.hold is not None and topic.hold.lifted) else topic.kept


def _nominal(context: Context, of: JobInput) -> Kept:
    """What it keeps when it is not held."""
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
    try:
        return _grown(context, generation, lags)
    except AnewError:
        return None


def _grown(context: Context, generation: Generation, lags: Mapping[tuple[str, int], int]) -> Rates:
    """How fast partitions with a lag grow.

    Raises:
        AnewError: A log does not answer.
    """
    since_ms = context.clock() - _GROWTH_SECONDS * 1000
    inputs, rates = {of.name: of for of in generation.inputs}, {}
    for (name, partition), lag in lags.items():
        if lag:
            of = inputs[name]
            log, at = context.fabrics[of.fabric].log, TopicPartition(of.topic, of.topic_uid, partition)
            grown = log.offsets(at).end - log.offset_for_time(at, since_ms)
            rates[name, partition] = grown / _GROWTH_SECONDS
    return rates


def _time_left(lags: Mapping[tuple[str, int], int], appends: Rates | None, batches: list[BatchRecord]) -> TimeLeft:
    if any(lags.values()) and appends is None:
        return TimeLeft(None)
    return time_left(lags, read_rates(batches), appends or {})


@dataclass(frozen=True, slots=True)
class _Race:
    """A generation against the retention of what it reads."""

    context: Context
    generation: Generation
    held: Mapping[str, Held]
    positions: Mapping[str, Offsets]
    lags: Mapping[tuple[str, int], int]
    rates: Rates
    appends: Rates

    def first_expiry(self) -> UnreadExpiry | None:
        """The first records that will be gone before they are read.

        Raises:
            AnewError: A log does not answer.
        """
        kept = [(of, _kept(self.context, of)) for of in self.generation.inputs]
        found = [
            UnreadExpiry(input=of.name, partition=partition, at_ms=at_ms)
            for of, so_much in kept
            if so_much != Kept()
            for partition in self.held[of.name]
            if (at_ms := self._expires_at_ms(of, partition, so_much)) is not None
        ]
        return min(found, key=lambda each: each.at_ms, default=None)

    def is_lost(self, of: JobInput, kept: Kept) -> bool:
        """Whether records of an input would go before they are read, or nobody can say, if it kept so much.

        Raises:
            AnewError: A log does not answer.
        """
        return any(
            self.lags[of.name, partition]
            and ((of.name, partition) not in self.rates or self._expires_at_ms(of, partition, kept) is not None)
            for partition in self.held[of.name]
        )

    def _expires_at_ms(self, of: JobInput, partition: int, kept: Kept) -> int | None:
        at = of.name, partition
        if at not in self.rates:
            return None
        held = self.held[of.name][partition]
        backlog = Backlog(
            position=self.positions[of.name][partition],
            begin=held.begin,
            end=held.end,
            read_per_s=self.rates[at],
            appended_per_s=self.appends[at],
            kept_ms=kept.time_ms,
            is_bounded=kept.partition_bytes is not None,
        )
        log, place = self.context.fabrics[of.fabric].log, TopicPartition(of.topic, of.topic_uid, partition)
        return expires_at_ms(backlog, self.context.clock(), partial(time_at, log, place))


def _rates(batches: list[BatchRecord], lags: Mapping[tuple[str, int], int]) -> Rates:
    """How fast partitions with a lag are read; one whose turn did not come, by its share of what its input has left.

    Where a watermark is, a partition that is ahead of the others is not read until these have come to its time. One of
    an input of which nothing was measured is left out.
    """
    reads, total, left = read_rates(batches), dict[str, float](), dict[str, int]()
    for (name, _), rate in reads.items():
        total[name] = total.get(name, 0.0) + rate
    for (name, _), lag in lags.items():
        left[name] = left.get(name, 0) + lag
    found = {at: reads.get(at, 0.0) or total.get(at[0], 0.0) * lag / left[at[0]] for at, lag in lags.items() if lag}
    return {at: rate for at, rate in found.items() if rate}
