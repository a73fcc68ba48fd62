"""What jobs must have written, and what a store must hold of it. A plain model, which imports nothing of the product.

Records of jobs are ordered by (time, job, generation, batch, sequence), those of other writers by their times and
offsets; of equal times a job's record wins over a pushed row, and a nearline write over both.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.simulation.jobs.functions import Event, outputs

Row = tuple[int, int | None, bytes, bytes, int, bytes | None]
"""A record as a log keeps it: append time, given time, origin, key, schema, value."""
Rank = tuple[int, int, str, int, int, int]
"""Time, kind of writer, job, generation, batch, sequence; of nearline writes: time, kind, "", 0, partition, offset."""
_PUSHED, _JOB, _NEARLINE = 0, 1, 2
_IDENTITY = struct.Struct(">QIQ")
_EPOCH_SHIFT, _ATTEMPT_SHIFT, _ATTEMPTS = 48, 26, 1 << 22


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic, taken apart."""

    event: Event
    rank: Rank
    job: str = ""
    generation: int = 0
    batch: int = -1
    sequence: int = -1

    @property
    def epoch(self) -> int:
        """Of the driver that appended it."""
        return self.sequence >> _EPOCH_SHIFT

    @property
    def attempt(self) -> int:
        """Of the task that appended it."""
        return (self.sequence >> _ATTEMPT_SHIFT) % _ATTEMPTS


def text_of(body: bytes | None) -> str | None:
    """The text of an Avro body that begins with a string shorter than 64 bytes."""
    return None if body is None else body[1 : 1 + (body[0] >> 1)].decode()


def record_of(row: Row, partition: int, offset: int) -> Record:
    """A row of an output, or of a nearline feed."""
    appended_ms, written_ms, origin, key, _, value = row
    time_ms = appended_ms if written_ms is None else written_ms
    event = Event(str(text_of(key)), text_of(value), time_ms)
    if origin[:1] != b"\x01":
        return Record(event, (time_ms, _NEARLINE, "", 0, partition, offset))
    job = origin[1 : -_IDENTITY.size - 1].decode()
    generation, batch, sequence = _IDENTITY.unpack(origin[-_IDENTITY.size :])
    return Record(event, (time_ms, _JOB, job, generation, batch, sequence), job, generation, batch, sequence)


@dataclass(frozen=True, slots=True)
class Batch:
    """What the catalog says of a batch.

    Attributes:
        start, end: Partition of the input → offset.
        attempts: The attempts that count, each with (partition, begin, end) of what it appended.
    """

    number: int
    epoch: int
    start: Mapping[int, int]
    end: Mapping[int, int]
    attempts: Mapping[int, Sequence[tuple[int, int, int]]]


@dataclass(frozen=True, slots=True)
class Code:
    """The function of a generation, and where the generation begins."""

    name: str
    tag: str
    start: Mapping[int, int]


@dataclass(slots=True)
class Input:
    """The topic that a job reads: the events of each partition, by offset."""

    partitions: list[list[Event]] = field(default_factory=list)

    def made(self, code: Code, start: Mapping[int, int], end: Mapping[int, int]) -> list[tuple[int, Event]]:
        """What a code makes of ranges: partition of the input and event, in the order of the input.

        A partition that a start does not name was added since, and begins at 0; one that an end does not name is not
        read there.
        """
        return [
            (partition, event)
            for partition, events in enumerate(self.partitions)
            for read in events[start.get(partition, 0) : end.get(partition, 0)]
            for event in outputs(code.name, code.tag, read)
        ]


def wrong_batch(
    read: Input, code: Code, batch: Batch, written: Sequence[Sequence[Record]], before: Batch | None
) -> str | None:
    """What is wrong with a batch that is recorded; None: nothing.

    Args:
        read: The input.
        code: The generation's.
        batch: The batch.
        written: All records of the generation's output, by partition.
        before: The batch before it.
    """
    begun = code.start if before is None else before.end
    if dict(batch.start) != dict(begun):
        return f"batch {batch.number} begins at {batch.start}, behind {begun}"
    expected = Counter(event for _, event in read.made(code, batch.start, batch.end))
    counted: Counter[Event] = Counter()
    for partition, records in enumerate(written):
        for offset, record in enumerate(records):
            if (record.batch, record.epoch) != (batch.number, batch.epoch):
                continue
            ranges = batch.attempts.get(record.attempt)
            if ranges is None:
                continue
            counted[record.event] += 1
            if not any(p == partition and begin <= offset < end for p, begin, end in ranges):
                return f"batch {batch.number}: {record.event} at {partition}@{offset} is in no range of its attempt"
    if counted != expected:
        return f"batch {batch.number}: missing {expected - counted}, too many {counted - expected}"
    return None


def strange(read: Input, code: Code, written: Iterable[Record]) -> list[Event]:
    """Records that the code makes of no event of the input."""
    ends = {partition: len(events) for partition, events in enumerate(read.partitions)}
    made = {event for _, event in read.made(code, dict.fromkeys(ends, 0), ends)}
    return [record.event for record in written if record.event not in made]


def newest(
    read: Input, generations: Mapping[tuple[str, int], tuple[Code, Sequence[Batch]]], loose: Iterable[Record]
) -> dict[str, set[str | None]]:
    """Key → the texts that may be served of it, once all of some generations' batches are applied.

    The last by (time, job, generation, batch) wins. Within one batch the order of tasks is open: the last row of each
    partition of the input may win.

    Args:
        read: The input.
        generations: Job and number → code and recorded batches.
        loose: Records of batches that were begun and never recorded: their generations were ended in them.
    """
    last: dict[str, tuple[tuple[int, tuple[str, int], int], dict[int, str | None]]] = {}
    for number, (code, batches) in generations.items():
        for batch in batches:
            for partition, event in read.made(code, batch.start, batch.end):
                rank = (event.time_ms, number, batch.number)
                known = last.get(event.key)
                if known is None or rank > known[0]:
                    last[event.key] = rank, {partition: event.text}
                elif rank == known[0]:
                    known[1][partition] = event.text
    found = {key: set(texts.values()) for key, (_, texts) in last.items()}
    for record in loose:
        event, known = record.event, last.get(record.event.key)
        if known is None or (event.time_ms, (record.job, record.generation), record.batch) > known[0]:
            found.setdefault(event.key, {None} if known is None else set()).add(event.text)
    return found


def passed_over(start: Mapping[int, int], before: Code, batches: Sequence[Batch]) -> list[int]:
    """The partitions that a generation in the place of another one begins behind what that one has read."""
    reached = batches[-1].end if batches else before.start
    return [partition for partition, offset in start.items() if offset > reached.get(partition, 0)]


def left_over(
    winners: Iterable[Record], job: str, before: tuple[int, Sequence[Batch]], after: tuple[Code, Sequence[Batch]]
) -> list[Event]:
    """What is there of a generation although another one, in its place, has gone over the very same events (rule R26).

    Args:
        winners: The record that won, of each key.
        job: Of both.
        before: The number of the one before, and its batches.
        after: The other one's code and batches.
    """
    number, read = before
    code, batches = after
    end = batches[-1].end if batches else code.start
    again = {
        batch.number
        for batch in read
        if all(code.start.get(p, 0) <= batch.start.get(p, 0) and at <= end.get(p, 0) for p, at in batch.end.items())
    }
    return [r.event for r in winners if (r.job, r.generation) == (job, number) and r.batch in again]


@dataclass(frozen=True, slots=True)
class VersionModel:
    """What a version is made of.

    Attributes:
        pushed: What its lineage was pushed with.
        source: The version that it was repushed from.
        start: Feed and partition → the first offset that it applies.
        floor_ms: Records below it that meet nothing are turned away, and deletes below it are forgotten (rule R12).
        expired_ms: What was written after 0 and before it has expired (rule R11).
        feeds: Feed → the records of each partition, as far as it may apply them.
    """

    pushed: Mapping[str, str]
    source: VersionModel | None
    start: Mapping[tuple[str, int], int]
    floor_ms: int
    expired_ms: int
    feeds: Mapping[str, Sequence[Sequence[Record]]]

    def cells(self, upto: Mapping[tuple[str, int], int]) -> dict[str, Record]:
        """Key → the record that won, deletes included, of all up to a position."""
        if self.source is None:
            base = {key: Record(Event(key, text, 0), (0, _PUSHED, "", 0, 0, 0)) for key, text in self.pushed.items()}
        else:
            held = self.source.cells(self.start)
            base = {k: r for k, r in held.items() if self._stays(r.event)}
        won = dict(base)
        for feed, partitions in self.feeds.items():
            for partition, records in enumerate(partitions):
                at = feed, partition
                for record in records[self.start.get(at, 0) : upto.get(at, 0)]:
                    held_now = won.get(record.event.key)
                    if held_now is None or record.rank > held_now.rank:
                        won[record.event.key] = record
        return {k: r for k, r in won.items() if k in base or r.event.time_ms >= self.floor_ms}

    def served(self, upto: Mapping[tuple[str, int], int]) -> dict[str, Event]:
        """Key → what readers see at a position."""
        found = {key: record.event for key, record in self.cells(upto).items()}
        return {key: event for key, event in found.items() if event.text is not None and not self._is_expired(event)}

    def _stays(self, event: Event) -> bool:
        return event.time_ms >= self.floor_ms if event.text is None else not self._is_expired(event)

    def _is_expired(self, event: Event) -> bool:
        return 0 < event.time_ms < self.expired_ms
