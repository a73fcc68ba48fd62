"""Reads of a topic of our own: from a start on, of each partition in turn, all records or those that count."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import pyarrow as pa

from anew.api.topics import TopicView
from anew.client.committed import Deciding
from anew.client.topicwriter import schemas_of
from anew.codec.avro import decode_datum
from anew.codec.schema import AvroSchema
from anew.core.errors import AnewError, Failed, InvalidRequest
from anew.core.topics.topic import TopicFormat
from anew.log.interface import Flaw, Log, TopicPartition

_READ_RECORDS = 10_000
_DECIDED_RECORDS = 1_000
"""So many are read at least where not all may count."""
_FURTHER = 4
"""So many times further back the newest records are looked for, where too few of the last ones count."""


class Edge(StrEnum):
    """Where a read of a topic begins: at the oldest records that there are, or with the newest ones."""

    OLDEST = "oldest"
    NEWEST = "newest"


ReadStart = Edge | Literal["oldest", "newest"] | int
"""Where a read begins: at an edge, or at an offset."""


def read_start(given: str | int) -> Edge | int:
    """Where a read begins, of what its caller says.

    Raises:
        InvalidRequest: ``bad_offset``.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    if given in tuple(Edge):
        return Edge(given)
    raise InvalidRequest(
        "bad_offset", "a read cannot begin there", found=str(given), expected="oldest, newest or an offset"
    )


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record of a topic.

    Attributes:
        timestamp_ms: When it was appended.
        key: Of format avro a datum, of json a text (bytes, where they are no UTF-8), of bytes: bytes; None: no key.
        value: Of format avro a datum, of json what the text says, of bytes: bytes; None: none, or a flaw.
        flaw: Why the record is not what the topic's format says; None: it is.
        written_ms: Of format avro, when it was written, as its writer says; a job says it of all that it writes. None:
            nobody said, and it was written when it was appended.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    flaw: str | None = None
    written_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Where a read of committed records stopped.

    Attributes:
        offset: Of the first record of which nothing is decided yet.
        writer: The generation that wrote it, ``delay_class@1``.
        batch: The batch of it that is not recorded yet.
    """

    partition: int
    offset: int
    writer: str
    batch: int


@dataclass(frozen=True, slots=True)
class CommittedRead:
    """Records that count, and where to go on.

    Attributes:
        following: Partition → the offset from which the next read goes on, of each partition that was read.
        waiting: Where batches are not recorded yet: a later read gives what counts of them.
    """

    records: list[TopicRecord]
    following: dict[int, int]
    waiting: tuple[Waiting, ...]


@dataclass(slots=True)
class Part:
    """What was read of one partition."""

    partition: int
    records: list[TopicRecord]
    reached: int
    waiting: Waiting | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """A pass over partitions of a topic.

    Attributes:
        limit: At most so many records of each partition.
        deciding: Which records count; None: all do.
    """

    view: TopicView
    log: Log
    limit: int
    deciding: Deciding | None

    def partition(self, at: TopicPartition, start: Edge | int) -> Part:
        """The records of a partition from a start on; with the newest ones, the last that count."""
        there = self.log.offsets(at)
        if isinstance(start, int) and start > there.end:
            raise Failed(
                "offset_out_of_range",
                f"partition {at.partition} of {self.view.name} does not reach so far",
                found=start,
                expected=f"an offset in [{there.begin}, {there.end}]",
            )
        if start is not Edge.NEWEST:
            return self._from(at, there.begin if start is Edge.OLDEST else int(start), there.end)
        back = self.limit
        while True:
            begin = max(there.begin, there.end - back)
            found = Scan(self.view, self.log, back, self.deciding)._from(at, begin, there.end)
            if len(found.records) >= self.limit or begin == there.begin:
                return Part(at.partition, found.records[-self.limit :], found.reached, found.waiting)
            back *= _FURTHER

    def _from(self, at: TopicPartition, offset: int, end: int) -> Part:
        part = Part(at.partition, [], offset)
        schemas = schemas_of(self.view)
        read = self.log.read_raw if schemas is None else self.log.read
        deciding = None if schemas is None else self.deciding
        while len(part.records) < self.limit:
            left = self.limit - len(part.records)
            most = left if deciding is None else max(left, _DECIDED_RECORDS)
            found = read(at, part.reached, min(most, _READ_RECORDS), max(offset, end))
            rows, part.waiting = found.records, None
            if deciding is not None:
                rows, part.waiting = _decided(deciding, at, rows)
            taken = rows.slice(0, left)
            part.records += [_record(self.view, at, row, schemas) for row in taken.to_pylist()]
            before = part.reached
            if taken.num_rows < rows.num_rows:
                # More count than are wanted: the next ones are where a read goes on.
                part.waiting = None
                part.reached = int(rows.column("offset")[taken.num_rows].as_py())
            elif part.waiting is not None:
                part.reached = part.waiting.offset
            else:
                part.reached = found.next_offset
            if part.waiting is not None or part.reached in (before, end):
                break
        return part


def _decided(deciding: Deciding, at: TopicPartition, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Waiting | None]:
    """The records that count, up to the first of which nothing is decided yet."""
    origins: Any = rows.column("origin")
    counts, first = deciding.decide(origins)
    waiting = None
    if first is not None:
        offset = int(rows.column("offset")[first.row].as_py())
        waiting = Waiting(at.partition, offset, first.writer, first.batch)
    return rows.filter(pa.array(counts)), waiting


def _record(
    view: TopicView, at: TopicPartition, row: dict[str, Any], schemas: tuple[AvroSchema, AvroSchema] | None
) -> TopicRecord:
    if schemas is not None:
        return _of_avro(view, at, row, *schemas)
    key, value, flaw = row["key"], row["value"], None
    if view.format is TopicFormat.JSON:
        key = _text_or_bytes(key)
        try:
            value = None if value is None else json.loads(value)
        except ValueError as error:
            value, flaw = None, f"not JSON: {error}"
    return TopicRecord(at.partition, row["offset"], row["timestamp_ms"], key, value, flaw)


def _of_avro(
    view: TopicView, at: TopicPartition, row: dict[str, Any], key_schema: AvroSchema, value_schema: AvroSchema
) -> TopicRecord:
    key = value = None
    flaw = None if row["flaw"] == Flaw.NONE else Flaw(row["flaw"]).name.lower().replace("_", " ")
    if flaw is None and row["value"] is not None and row["schema_id"] != view.value_schema_id:
        flaw = f"unknown value schema {row['schema_id']}"
    if flaw is None:
        try:
            key = decode_datum(key_schema, row["key"])
            value = None if row["value"] is None else decode_datum(value_schema, row["value"])
        except AnewError as error:
            flaw = str(error)
    return TopicRecord(at.partition, row["offset"], row["appended_ms"], key, value, flaw, row["written_ms"])


def _text_or_bytes(data: bytes | None) -> str | bytes | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
