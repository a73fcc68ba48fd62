"""Where a generation begins: what is asked for, resolved for every partition against the real logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from anew.controller.engine.context import Context
from anew.controller.jobs.records import is_forgotten, job_named, position_of
from anew.core.errors import AnewError, InvalidRequest, Refused
from anew.core.jobs.inputs import JobInput, Offsets, Start, topics_of, with_added
from anew.core.jobs.starts import (
    Ago,
    AtOffsets,
    AtTime,
    AtTopicOffsets,
    Newest,
    Oldest,
    Reach,
    StartAt,
    WhereOf,
    clamped,
    reach_of,
)
from anew.core.moment import instant_text
from anew.log.interface import Log, PartitionFacts, TopicPartition
from anew.log.interface import Offsets as LogOffsets
from anew.log.settling import settled_offsets

Held = dict[int, LogOffsets]
"""Partition → what the log holds of it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A start as it is asked for.

    Attributes:
        at: Where; None: at the inputs' defaults.
        clamp: Whether offsets that a log does not hold are moved to the nearest that it does (case A6).
        from_oldest_available: Whether a time that retention has passed begins at the oldest record (case B5).
    """

    at: StartAt | None
    clamp: bool = False
    from_oldest_available: bool = False


@dataclass(frozen=True, slots=True)
class Begins:
    """A start that is resolved.

    Attributes:
        held: Input → what its log holds; asked again where the start lies beyond an end.
        start: Input → partition → the first offset that is read, of every partition.
        said: How it was asked for, in words; None: it was not.
        why: What was chosen in place of what was asked for, a line each.
        unreachable: What history is gone that the start asks for, a line each.
    """

    held: dict[str, Held]
    start: dict[str, Offsets]
    said: str | None = None
    why: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()


def begins_at(context: Context, inputs: tuple[JobInput, ...], held: Mapping[str, Held], asked: Asked) -> Begins:
    """A start, resolved for every partition; `check_start` judges whether the logs hold it.

    Raises:
        InvalidRequest: ``unknown_input``, ``start_not_given``.
        NotFound: ``unknown_job``, ``unknown_generation``.
        Refused: ``input_changed``, ``compacted_topic``, ``start_unreachable``.
        AnewError: A log does not answer.
    """
    if isinstance(asked.at, AtTime | Ago):
        at_ms = asked.at.at_ms if isinstance(asked.at, AtTime) else max(0, context.clock() - asked.at.span_ms)
        start, why, gone = _at_time(context, inputs, held, at_ms, accepts_gap=asked.from_oldest_available)
        at = str(asked.at) if isinstance(asked.at, AtTime) else f"{asked.at}, {instant_text(at_ms)}"
        return Begins(settled(context, inputs, held, start), start, at, tuple(why), tuple(gone))
    start = _offsets(context, inputs, held, asked.at)
    now = settled(context, inputs, held, start)
    moved = tuple(_clamp(start, now)) if asked.clamp else ()
    said = None if asked.at is None else str(asked.at)
    return Begins(now, start, said, moved, tuple(_gone(inputs, start, now)))


def settled(
    context: Context, inputs: tuple[JobInput, ...], held: Mapping[str, Held], start: Mapping[str, Offsets]
) -> dict[str, Held]:
    """What the logs hold, asked again where a start lies beyond an end: that may be back in a moment (case N7).

    Raises:
        AnewError: A log does not answer.
    """
    found = {name: dict(of) for name, of in held.items()}
    for of in inputs:
        log, asked = context.fabrics[of.fabric].log, start.get(of.name, {})
        beyond = {
            _place(of, partition): asked[partition]
            for partition, before in held[of.name].items()
            if asked.get(partition, 0) > before.end
        }
        again = settled_offsets(log, beyond, context.pause)
        found[of.name] |= {place.partition: there for place, there in again.items()}
    return found


def times_at(
    context: Context, inputs: tuple[JobInput, ...], held: Mapping[str, Held], start: Mapping[str, Offsets]
) -> dict[str, dict[int, int | None]]:
    """Input → partition → when the record at its start was appended; None: none is there, or nobody can say."""
    times: dict[str, dict[int, int | None]] = {}
    for of in inputs:
        log = context.fabrics[of.fabric].log
        there = {_place(of, p): at for p, at in start[of.name].items() if held[of.name][p].begin <= at}
        there = {place: at for place, at in there.items() if at < held[of.name][place.partition].end}
        found: dict[int, int | None] = dict.fromkeys(sorted(start[of.name]))
        log.fetch_ahead(there, raw=True)
        for place, offset in there.items():
            try:
                found[place.partition] = time_at(log, place, offset)
            except AnewError:
                # A log that does not answer is not asked for each of the other partitions as well.
                break
        times[of.name] = found
    return times


def time_at(log: Log, at: TopicPartition, offset: int) -> int | None:
    """When the record at an offset was appended, or the next one that can be read; None: there is none.

    Raises:
        AnewError: The log does not answer, or does not hold the offset any more.
    """
    rows = log.read_raw(at, offset, 1).records.to_pylist()
    return int(rows[0]["timestamp_ms"]) if rows else None


def _offsets(
    context: Context, inputs: tuple[JobInput, ...], held: Mapping[str, Held], at: StartAt | None
) -> dict[str, Offsets]:
    """Every partition's offset, of a start that names some, or none; the others begin where their history does."""
    if isinstance(at, AtOffsets):
        return _with_begins(held, _of_known_inputs(at.offsets, {of.name: of.name for of in inputs}))
    if isinstance(at, AtTopicOffsets):
        return _with_begins(held, _of_known_inputs(at.topics, {of.name: of.topic for of in inputs}))
    if isinstance(at, WhereOf):
        return with_added(_where_of(context, inputs, at), held)
    if at is None:
        _check_told(inputs)
    return {
        of.name: {
            partition: found.end if _is_newest(of, at) else found.begin for partition, found in held[of.name].items()
        }
        for of in inputs
    }


def _check_told(inputs: tuple[JobInput, ...]) -> None:
    """Raise where an input's default start says that each generation has to be told (case B1).

    Raises:
        InvalidRequest: ``start_not_given``.
    """
    untold = [of.name for of in inputs if of.default_start is Start.FAIL]
    if untold:
        raise InvalidRequest(
            "start_not_given",
            f"nothing says where to begin in {', '.join(untold)}",
            found=f"no start, and the default {Start.FAIL}",
            expected="a start",
            hint="--from oldest, newest, a time, or offsets",
        )


def _is_newest(of: JobInput, at: StartAt | None) -> bool:
    return isinstance(at, Newest) or (not isinstance(at, Oldest) and of.default_start is Start.NEWEST)


def _with_begins(held: Mapping[str, Held], named: Mapping[str, Offsets]) -> dict[str, Offsets]:
    return {name: {p: found.begin for p, found in of.items()} | named.get(name, {}) for name, of in held.items()}


def _of_known_inputs(offsets: Mapping[str, Offsets], keys: Mapping[str, str]) -> dict[str, Offsets]:
    """Input → what is said of it, by its name or its topic's.

    Args:
        offsets: What is said, by such a key.
        keys: Input → its key.

    Raises:
        InvalidRequest: ``unknown_input``.
    """
    unknown = sorted(offsets.keys() - set(keys.values()))
    if unknown:
        raise InvalidRequest(
            "unknown_input",
            "the start names an input that the job does not have",
            found=", ".join(unknown),
            expected=", ".join(sorted(set(keys.values()))),
        )
    return {name: offsets[key] for name, key in keys.items() if key in offsets}


def _where_of(context: Context, inputs: tuple[JobInput, ...], at: WhereOf) -> dict[str, Offsets]:
    """Where a generation stands, by the names of its inputs.

    Raises:
        NotFound: ``unknown_job``, ``unknown_generation``.
        Refused: ``input_changed``: an input of that name is another topic there, or there is none;
            ``position_forgotten``.
    """
    job = job_named(context, at.job)
    generation = job.generation(at.generation)
    if is_forgotten(context, job, generation):
        raise Refused(
            "position_forgotten",
            f"where {at.job}@{at.generation} stood is not known any more",
            found="its batches are forgotten",
            expected="a generation that was not reclaimed",
            hint=f"anew job checkpoint show {at.job}",
        )
    there, wanted = topics_of(generation.inputs), topics_of(inputs)
    if wanted.items() - there.items():
        raise Refused(
            "input_changed",
            f"{at.job}@{at.generation} read other topics: its positions mean nothing in these",
            found=there,
            expected=wanted,
            hint="begin at a time, or name offsets",
        )
    position = position_of(context, job, generation)
    return {name: dict(position.get(name, {})) for name in wanted}


def _at_time(
    context: Context, inputs: tuple[JobInput, ...], held: Mapping[str, Held], at_ms: int, *, accepts_gap: bool
) -> tuple[dict[str, Offsets], list[str], list[str]]:
    """The first records that were appended at or after a time; what is said of that, and what is gone.

    Raises:
        Refused: ``compacted_topic`` (case B6), ``start_unreachable`` (case B5).
    """
    start: dict[str, Offsets] = {}
    why: list[str] = []
    gone: list[str] = []
    since = instant_text(at_ms)
    for of in inputs:
        log = context.fabrics[of.fabric].log
        offsets = {p: log.offset_for_time(_place(of, p), at_ms) for p in held[of.name]}
        # Asked afterwards: what retention takes in between is seen here.
        facts = log.facts(of.topic, of.topic_uid)
        if facts.compacted:
            raise _compacted(of, since)
        kept_ms = _kept_ms(facts.retention.time_ms, facts.retention.partition_bytes, context.clock())
        for partition, there in enumerate(facts.partitions):
            if partition not in offsets:
                # It was added meanwhile: the plan is of those that were there.
                continue
            reach = reach_of(at_ms, offsets[partition], (there.begin, there.end), there.oldest_ms, kept_ms)
            if reach is Reach.GONE:
                if not accepts_gap:
                    raise _unreachable(of, partition, at_ms, there, context.clock())
                offsets[partition] = there.begin
                upto = "the end" if there.oldest_ms is None else instant_text(there.oldest_ms)
                gone.append(f"{of.topic}, partition {partition}: the history from {since} to {upto} is gone")
            elif reach is Reach.NOTHING:
                why.append(f"{of.topic}, partition {partition}: nothing at or after {since}: starts at its end")
        start[of.name] = offsets
    return start, why, gone


def _kept_ms(time_ms: int | None, partition_bytes: int | None, now_ms: int) -> int | None:
    """Since when everything is kept; None: nobody can say."""
    return None if time_ms is None or partition_bytes is not None else now_ms - time_ms


def _compacted(of: JobInput, since: str) -> Refused:
    return Refused(
        "compacted_topic",
        f"the topic {of.topic} is compacted: what lay between the latest values of its keys is gone, at any time",
        found=f"a start at {since}",
        expected="--from oldest: the latest value of each key",
        hint="or name offsets: anew job checkpoint show JOB@GENERATION",
    )


def _unreachable(of: JobInput, partition: int, at_ms: int, there: PartitionFacts, now_ms: int) -> Refused:
    oldest = "it holds no record" if there.oldest_ms is None else f"oldest record of {instant_text(there.oldest_ms)}"
    seconds = -(-max(0, now_ms - at_ms) // 1000)
    return Refused(
        "start_unreachable",
        f"the history of partition {partition} of {of.topic} does not reach back to {instant_text(at_ms)}",
        found=f"{oldest}; what lay before offset {there.begin} is gone",
        expected=f"records since {instant_text(at_ms)}, for which a retention of {seconds} s was needed",
        hint="--from-oldest-available begins at the oldest record, and the plan says what is missing",
    )


def _clamp(start: dict[str, Offsets], held: Mapping[str, Held]) -> Iterator[str]:
    """Move offsets into what the logs hold; what was changed, a line each."""
    for name, offsets in start.items():
        for partition, asked in sorted(offsets.items()):
            found = held[name].get(partition)
            if found is None:
                continue
            offsets[partition] = clamped(asked, found.begin, found.end)
            if offsets[partition] != asked:
                side = "its begin" if asked < found.begin else "its end"
                yield f"{name}, partition {partition}: starts at {offsets[partition]}, {side}, instead of {asked}"


def _gone(inputs: tuple[JobInput, ...], start: Mapping[str, Offsets], held: Mapping[str, Held]) -> Iterator[str]:
    """What retention took of the history that a start at the oldest record asks for."""
    for of in inputs:
        for partition, found in held[of.name].items():
            if found.begin > 0 and start[of.name][partition] == found.begin:
                yield f"{of.topic}, partition {partition}: the first {found.begin} records are gone"


def _place(of: JobInput, partition: int) -> TopicPartition:
    return TopicPartition(of.topic, of.topic_uid, partition)
