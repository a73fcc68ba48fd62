"""The log that everything else is written against.

A topic is a name, an identity that survives nothing but itself (``uid``), and a number of partitions that only grows.
Each partition is a sequence of records addressed by offsets that only grow. Reads never jump: a position outside of
[begin, end] is an error (rule R3), and an empty read before the end is one too.

Topics of stores never grow (rule R8). Partitions are added to topics of our own alone, by anew or by an operator of
Kafka: whoever reads all of such a topic asks for its partitions again and again (`present_partitions`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from anew.core.errors import Failed
from anew.core.feed import Feed

_FIELDS: list[Any] = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("appended_ms", pa.int64(), nullable=False),
    pa.field("written_ms", pa.int64()),
    pa.field("origin", pa.binary(), nullable=False),
    pa.field("key", pa.binary(), nullable=False),
    pa.field("schema_id", pa.int32(), nullable=False),
    pa.field("value", pa.binary()),
    pa.field("flaw", pa.int8(), nullable=False),
]

_ROOM_FOR_KEY_BYTES = 1 << 20

LOG_RECORDS = pa.schema(_FIELDS)
"""What a read gives: the append time that the log assigned (never running backwards in the embedded log); the write
time that the writer gave, or null; the encoded origin, empty when the writer named none; the key's Avro body; the
value's schema id (0 for a tombstone) and Avro body, null for a tombstone; why the record cannot be applied (`Flaw`).
No wire headers: an implementation puts them on and takes them off."""


class Flaw(IntEnum):
    """What is wrong with a record that somebody else's producer wrote; the numbers are those in ``kafka/kafka.c``.

    Of its other columns only offset and append time are to be relied on.
    """

    NONE = 0
    NO_KEY = 1
    KEY_WITHOUT_HEADER = 2
    UNKNOWN_KEY_SCHEMA = 3
    VALUE_WITHOUT_HEADER = 4
    BAD_WRITTEN_AT = 5


_APPENDED: list[Any] = [LOG_RECORDS.field(name) for name in ("written_ms", "origin", "key", "schema_id", "value")]
APPEND_RECORDS = pa.schema(_APPENDED)
"""What an append takes."""

_RAW: list[Any] = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp_ms", pa.int64(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
]
RAW_RECORDS = pa.schema(_RAW)
"""What a raw read gives: the record's time, and the bytes of its key and value as they are, with wire headers where
there are any. The time is the append time, but in a foreign topic of Kafka that keeps its writers' times."""
_RAW_APPENDED: list[Any] = [*_RAW[2:], pa.field("timestamp_ms", pa.int64())]
RAW_APPEND = pa.schema(_RAW_APPENDED)
"""What a raw append takes. A time counts in a foreign topic of Kafka that keeps its writers' times, and only there:
records of all other topics have their append time (rule R6)."""


_APPEND_ID = b"anew.append_id"


def new_append_id() -> bytes:
    """An id that no other append has: 16 random bytes."""
    return os.urandom(16)


def identified(records: pa.RecordBatch) -> pa.RecordBatch:
    """The records (columns `APPEND_RECORDS`) as one append with a fresh id: repeated, it is found, not made twice."""
    return records.replace_schema_metadata({_APPEND_ID: new_append_id()})


def append_id_of(records: pa.RecordBatch) -> bytes | None:
    """The id that `identified` gave to an append; None where it has none."""
    metadata = records.schema.metadata
    return None if metadata is None else metadata.get(_APPEND_ID)


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of each partition a topic keeps.

    Attributes:
        time_ms: Records are kept for this long after their append; None: for ever.
        partition_bytes: The newest records of a partition are kept, up to about this size; None: without a limit.
    """

    time_ms: int | None = None
    partition_bytes: int | None = None


KEEP_FOR_EVER = Retention()
"""Nothing is forgotten but what `Log.truncate_below` names."""


class TailLost(Failed):
    """An offset lay behind the end of its partition when it was asked for: the log has lost what was written there.

    That it was so is the verdict (rule R3). A moment later other records may have the same offsets.
    """


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic, or one to be.

    Attributes:
        uid: Chosen by the caller before the act, so that a repeated create is recognised; once the topic exists, what
            `Log.create_topic` returned.
        max_record_bytes: How large a record it must take; a log without such a limit does not look at it.
        retention: What a topic is made with; `Log.facts` tells what holds now.
    """

    name: str
    uid: str
    partitions: int
    max_record_bytes: int = field(default=1 << 20, compare=False)
    retention: Retention = field(default=KEEP_FOR_EVER, compare=False)


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition at a moment: [begin, end) is readable.

    Attributes:
        oldest_ms: The append time of the oldest record; None when the partition is empty.
    """

    begin: int
    end: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as its log knows it now.

    Attributes:
        uid: The topic's identity, as `Log.create_topic` returned it.
        retention: What is kept of each partition.
        compacted: Whether the log drops records that have a newer one with the same key.
        partitions: One entry for each partition, in their order.
    """

    uid: str
    retention: Retention
    compacted: bool
    partitions: tuple[PartitionFacts, ...]


def record_bytes(value_bytes: int) -> int:
    """How large a record with a value of so many bytes may be: with its key, its headers, and what a log adds."""
    return value_bytes + _ROOM_FOR_KEY_BYTES


@dataclass(frozen=True, slots=True)
class TopicPartition:
    """One partition of one identified topic; every operation fails when the topic's uid is another one.

    Attributes:
        key_schema_id: What the wire headers of its keys say, in a log that has such headers.
    """

    topic: str
    uid: str
    partition: int
    key_schema_id: int = field(default=1, compare=False)


def topic_partition(feed: Feed, partition: int) -> TopicPartition:
    """One partition of a feed's topic."""
    return TopicPartition(feed.topic, feed.topic_uid, partition, feed.key_schema_id)


def partitions_of(spec: TopicSpec) -> tuple[TopicPartition, ...]:
    """All partitions of a topic, in their order."""
    return tuple(TopicPartition(spec.name, spec.uid, partition) for partition in range(spec.partitions))


@dataclass(frozen=True, slots=True)
class Appended:
    """An acknowledged append: on disk, at these offsets, with these times.

    Attributes:
        last_ms: The append time of the last record; times within the append do not decrease.
        rejected: The rows whose given time is too far ahead of the append time that a broker gave them, while the
            writer's clock allowed it. They are in the log, and readers make dead letters of them (rule R6).
    """

    first_offset: int
    next_offset: int
    last_ms: int
    rejected: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Offsets:
    """The readable range of a partition: [begin, end)."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """Records of one partition, in offset order.

    Attributes:
        records: Columns `LOG_RECORDS`, of a raw read `RAW_RECORDS`; may be empty although ``next_offset`` advanced
            (records that nobody may see).
        next_offset: Where to go on; complete means that this, not the last record, reached the end (rule R7).
    """

    records: pa.RecordBatch
    next_offset: int

    def below(self, end: int) -> LogRead:
        """What of this lies below an offset: offsets may be left out, so that fewer records reach further."""
        if self.next_offset <= end:
            return self
        offsets = self.records.column("offset").to_numpy()
        return LogRead(self.records.slice(0, int(np.searchsorted(offsets, end))), end)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A record that nobody applies, and why."""

    offset: int
    reason: str


class Log(Protocol):
    """One fabric's log. All methods may block on I/O and are safe to call from several threads and processes.

    Errors common to all: `Failed` code ``topic_lost`` when the topic does not exist or has another uid than the one
    asked for (rule R3), `Unreachable` when the log does not answer in time.
    """

    def create_topic(self, spec: TopicSpec) -> TopicSpec:
        """Make the topic, and return it with the uid that identifies it from now on. The same again: nothing happens.

        Raises:
            Refused: A topic of that name exists with another uid or another number of partitions
                (codes ``topic_exists``).
        """

    def set_open(self, spec: TopicSpec, *, is_open: bool, epoch: int) -> None:
        """Say whether appends are accepted from now on; a new topic is open.

        Once this returned for a closed topic nothing is appended any more, whoever still holds it. Of two callers the
        one with the greater epoch has its way, whoever comes last; the same epoch again changes nothing.
        """

    def delete_topic(self, name: str, uid: str) -> None:
        """Remove the topic with that uid, or made with it; nothing happens when there is none. Never another uid's."""

    def topic(self, name: str) -> TopicSpec | None:
        """The topic that exists under this name now, or None."""

    def add_partitions(self, name: str, uid: str, partitions: int) -> int:
        """Give the topic so many partitions: new ones, empty, behind those that it has. As many as it has: nothing.

        Only for topics of our own: of a store's topic nobody would read the new partitions (rule R8). Handles that are
        open find the new partitions at once, `partition_count` of other handles tells of them within seconds.

        Returns:
            How many partitions the topic has now.

        Raises:
            Refused: Code ``fewer_partitions``: it has more; nothing changes.
            InvalidRequest: Code ``bad_topic``: no topic can have so many.
        """

    def partition_count(self, name: str, uid: str) -> int:
        """How many partitions the topic has now; cheap enough to be asked before each batch of a reader.

        A log of several brokers may tell the count of a moment ago, so that it goes back once in a while: whoever knows
        of a partition keeps it.
        """

    def facts(self, name: str, uid: str) -> TopicFacts:
        """Retention, compaction, and what each partition holds; it asks for all partitions, so not in a hot path."""

    def set_retention(self, name: str, uid: str, retention: Retention) -> None:
        """Let the topic keep so much from now on; the same again changes nothing.

        What has gone does not come back. `facts` of any handle tells of it within seconds.
        """

    def apply_retention(self, at: TopicPartition, retention: Retention) -> int:
        """Forget what a retention keeps no longer: whole prefixes of the partition, and never its newest record.

        The owner of upkeep calls it again and again: one call forgets a bounded number of records. In a log whose own
        service applies its topics' retention nothing happens.

        Returns:
            The partition's begin afterwards, which only grows. A reader below it gets ``offset_out_of_range``.
        """

    def append(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        """Append all of ``records`` (columns `APPEND_RECORDS`) or none, durably before it returns.

        Records that have an id (`identified`) may be appended again after `OutcomeUnknown`, through the same log: where
        the first attempt landed, its offsets are the answer and nothing is appended. Without an id every call appends.

        Raises:
            Refused: Code ``clock_behind``: the partition's last time is ahead of the clock by more than the skew
                limit (rule R6); the embedded log then refuses instead of running backwards.
            Refused: Code ``topic_closed``: nothing is accepted now (`set_open`).
            InvalidRequest: Code ``written_at_out_of_range``: a given time is not in (0, append time + skew limit].
            OutcomeUnknown: Code ``append_unknown``: the answer was lost, and the records may still come. Only a repeat
                under the same id is safe: appended anew they could undo what others wrote in between.
            PartlyDone: Code ``append_partly``: some records landed and the others will not; a repeat would append the
                first ones twice.
        """

    def read(self, at: TopicPartition, offset: int, max_records: int, end: int | None = None) -> LogRead:
        """Up to ``max_records`` from ``offset``; empty with ``next_offset = offset`` at the end.

        Args:
            at: The partition.
            offset: The first offset to read.
            max_records: At least 1.
            end: An offset that the partition is known to have reached: nothing from there on is given, and what lies
                before it is waited for. Without it a log may learn a moment late of what was just appended.

        Raises:
            Failed: Code ``offset_out_of_range``: ``offset`` is below begin (truncated) or, as a `TailLost`, beyond the
                end; found and expected say which.
        """

    def append_raw(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        """Append all of ``records`` (columns `RAW_APPEND`) or none: as `append`, also what it says of ids and errors.

        Keys and values are kept as they are, nothing is put before them. The topic may hold records of both kinds.
        """

    def read_raw(self, at: TopicPartition, offset: int, max_records: int, end: int | None = None) -> LogRead:
        """As `read`, with the bytes of all records as they are, columns `RAW_RECORDS`; nothing is judged.

        A record that was appended with schemas has the wire form (`anew.log.wire`), its key that of
        ``at.key_schema_id``. In turn `read` gives a raw record as what its bytes say: a record with schemas where key
        and value are in wire form, else one with a `Flaw`.
        """

    def fetch_ahead(self, places: Mapping[TopicPartition, int], *, raw: bool = False) -> None:
        """Begin to fetch what will be read soon, each partition from an offset: for who reads several in turn.

        ``raw`` says that `read_raw` will read it. A hint, which asks nobody and waits for nothing; what is wrong with a
        place is told by the read that follows.
        """

    def touched(self, topics: Collection[str]) -> Collection[str] | None:
        """To which of these topics something may have been appended since this thread asked last: for who follows many.

        A hint, soon after the append; it may fail to come (who appended died first), so look now and then without it.

        Returns:
            Names of topics; None from a log that does not tell, of which any may have been.
        """

    def offsets(self, at: TopicPartition) -> Offsets:
        """The partition's begin and end now (begin: the first readable offset; end: the next to be written).

        Where another program has a transaction open, the end is its first offset: no reader sees further.
        """

    def next_offset(self, at: TopicPartition) -> int:
        """The next offset to be written now. Above an end that is asked for afterwards: a transaction is open."""

    def offset_for_time(self, at: TopicPartition, appended_ms: int) -> int:
        """The first offset whose append time is at or after ``appended_ms``; the end when there is none."""

    def truncate_below(self, at: TopicPartition, offset: int) -> None:
        """Forget everything below ``offset``; begin becomes at least ``offset``. Below begin: nothing happens.

        Raises:
            Refused: Code ``offset_out_of_range``: ``offset`` is beyond the end.
        """

    def set_aside(self, at: TopicPartition, letters: Sequence[SetAside], to: TopicPartition) -> int:
        """Copy records, in the order of their offsets, to another topic, each with where it was and why it is there.

        What the log has no more is left out. Doing it again copies again: each copy says of which record it is.

        Returns:
            How many were copied.

        Raises:
            Failed: Code ``topic_lost``, of either topic.
            OutcomeUnknown: Code ``append_unknown``: some may have been copied.
        """

    def close(self) -> None:
        """Let go of files and connections; the object must not be used afterwards."""


def present_partitions(log: Log, name: str, uid: str, key_schema_id: int = 1) -> tuple[TopicPartition, ...]:
    """The partitions that a topic has now, in their order; see `Log.partition_count`.

    Raises:
        Failed: ``topic_lost``.
        Unreachable: The log does not answer.
    """
    count = log.partition_count(name, uid)
    return tuple(TopicPartition(name, uid, partition, key_schema_id) for partition in range(count))
