"""The log that everything else is written against.

A topic is a name, an identity that survives nothing but itself (``uid``), and a fixed number of partitions. Each
partition is a sequence of records addressed by offsets that only grow. Reads never jump: a position outside of
[begin, end] is an error (rule R3), and an empty read before the end is one too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

_FIELDS: list[Any] = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("appended_ms", pa.int64(), nullable=False),
    pa.field("written_ms", pa.int64()),
    pa.field("origin", pa.binary(), nullable=False),
    pa.field("key", pa.binary(), nullable=False),
    pa.field("schema_id", pa.int32(), nullable=False),
    pa.field("value", pa.binary()),
]

LOG_RECORDS = pa.schema(_FIELDS)
"""What a read gives: the append time that the log assigned (never running backwards in the embedded log); the write
time that the writer gave, or null; the encoded origin; the key's Avro body; the value's schema id (0 for a tombstone)
and Avro body, null for a tombstone. No wire headers: an implementation puts them on and takes them off."""

_APPENDED: list[Any] = [LOG_RECORDS.field(name) for name in ("written_ms", "origin", "key", "schema_id", "value")]
APPEND_RECORDS = pa.schema(_APPENDED)
"""What an append takes."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to be: ``uid`` is chosen by the caller before the act, so that a repeated create is recognised."""

    name: str
    uid: str
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicPartition:
    """One partition of one identified topic; every operation fails when the topic's uid is another one."""

    topic: str
    uid: str
    partition: int


@dataclass(frozen=True, slots=True)
class Appended:
    """An acknowledged append: on disk, at these offsets, with these times.

    ``last_ms`` is the append time of the last record; times within the append do not decrease.
    """

    first_offset: int
    next_offset: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """The readable range of a partition: [begin, end)."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """Records of one partition, in offset order.

    Attributes:
        records: Columns `LOG_RECORDS`; may be empty although ``next_offset`` advanced (records that nobody may see).
        next_offset: Where to go on; complete means that this, not the last record, reached the end (rule R7).
    """

    records: pa.RecordBatch
    next_offset: int


class Log(Protocol):
    """One fabric's log. All methods may block on I/O and are safe to call from several threads and processes.

    Errors common to all: `Failed` code ``topic_lost`` when the topic does not exist or has another uid than the one
    asked for (rule R3), `Unreachable` when the log does not answer in time.
    """

    def create_topic(self, spec: TopicSpec) -> None:
        """Make the topic. The same uid and partitions again: nothing happens.

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
        """Remove the topic with that uid; nothing happens when there is none. Never removes another uid's."""

    def topic(self, name: str) -> TopicSpec | None:
        """The topic that exists under this name now, or None."""

    def append(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        """Append all of ``records`` (columns `APPEND_RECORDS`) or none, durably before it returns.

        Raises:
            Refused: Code ``clock_behind``: the partition's last time is ahead of the clock by more than the skew
                limit (rule R6); the embedded log then refuses instead of running backwards.
            Refused: Code ``topic_closed``: nothing is accepted now (`set_open`).
            InvalidRequest: Code ``written_at_out_of_range``: a given time is not in (0, append time + skew limit].
            OutcomeUnknown: Code ``append_unknown``: the answer was lost; replaying the same records is harmless.
        """

    def read(self, at: TopicPartition, offset: int, max_records: int) -> LogRead:
        """Up to ``max_records`` from ``offset``; empty with ``next_offset = offset`` exactly at the end.

        Raises:
            Failed: Code ``offset_out_of_range``: ``offset`` is below begin (truncated) or beyond the end (the log
                lost its tail); found and expected say which.
        """

    def offsets(self, at: TopicPartition) -> Offsets:
        """The partition's begin and end now (begin: the first readable offset; end: the next to be written)."""

    def offset_for_time(self, at: TopicPartition, appended_ms: int) -> int:
        """The first offset whose append time is at or after ``appended_ms``; the end when there is none."""

    def truncate_below(self, at: TopicPartition, offset: int) -> None:
        """Forget everything below ``offset``; begin becomes at least ``offset``. Below begin: nothing happens.

        Raises:
            Refused: Code ``offset_out_of_range``: ``offset`` is beyond the end.
        """

    def close(self) -> None:
        """Let go of files and connections; the object must not be used afterwards."""
