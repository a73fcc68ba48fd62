"""A topic of our own as a program sees it: write, read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from anew.api.http import ControllerClient
from anew.api.topics import TopicView
from anew.client.topicwriter import TopicWriter, partition_of, schemas_of
from anew.codec.avro import decode_datum
from anew.codec.schema import AvroSchema
from anew.core.errors import AnewError, InvalidRequest, Refused
from anew.core.feed import PositionMap
from anew.core.topics.topic import TopicFormat
from anew.log.interface import Flaw, Log, TopicPartition

_READ_RECORDS = 10_000


class Edge(StrEnum):
    """Where a read of a topic begins: at the oldest records that there are, or with the newest ones."""

    OLDEST = "oldest"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record of a topic.

    Attributes:
        timestamp_ms: When it was appended.
        key: Of format avro a datum, of json a text (bytes, where they are no UTF-8), of bytes: bytes; None: no key.
        value: Of format avro a datum, of json what the text says, of bytes: bytes; None: none, or a flaw.
        flaw: Why the record is not what the topic's format says; None: it is.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    flaw: str | None = None


class Topic:
    """Reads and writes of one topic. Made by ``Cluster.topic``; safe to use from several threads."""

    def __init__(self, controller: ControllerClient, name: str, open_log: Callable[[str], Log]) -> None:
        """Ask what the topic is.

        Args:
            controller: Who is asked.
            name: The topic's.
            open_log: Opens the log of a fabric.

        Raises:
            NotFound: ``unknown_topic``.
        """
        self.view: TopicView = controller.topic(name, facts=False)
        self._open_log = open_log

    def writer(self) -> TopicWriter:
        """Buffers records and appends them; a context manager.

        Raises:
            Refused: ``topic_not_ready``.
        """
        return TopicWriter(self.view, self._open_log(self.view.fabric))

    def write(self, rows: Iterable[Any], *, key: str | Callable[[Any], Any] | None = None) -> PositionMap:
        """Write values; they are on disk when it returns.

        Args:
            rows: Values, see `TopicWriter.put`.
            key: The member of each value that is its key, or a function that gives it; None: no keys, spread evenly.

        Raises:
            InvalidRequest: ``value_misfit``, ``no_key``; what came before may have been written.
            AnewError: As `TopicWriter.flush`.
        """
        with self.writer() as writer:
            for row in rows:
                writer.put(key_of(row, key) if isinstance(key, str) else None if key is None else key(row), row)
        return writer.position

    def read(
        self, start: Edge | int = Edge.OLDEST, *, partition: int | None = None, limit: int = 100
    ) -> list[TopicRecord]:
        """Records that are there now, in the order of their times, at most so many.

        Args:
            start: `Edge.OLDEST`: the first ones; `Edge.NEWEST`: the last ones; a number: from this offset on, of one
                partition.
            partition: Of this one alone; None: of all.
            limit: At most so many, of each partition and in all.

        Raises:
            InvalidRequest: ``bad_offset``: an offset, and several partitions; ``bad_limit``.
            NotFound: ``unknown_partition``.
            Failed: ``offset_out_of_range``, ``topic_lost``.
            Refused: ``topic_not_ready``.
        """
        if limit < 1:
            raise InvalidRequest("bad_limit", "a read takes at least one record", found=limit, expected="at least 1")
        if isinstance(start, int) and partition is None and self.view.partitions > 1:
            raise InvalidRequest(
                "bad_offset",
                "an offset is of one partition",
                found=f"offset {start} of {self.view.partitions} partitions",
                expected="a partition with the offset",
                hint="name it: --partition",
            )
        if not self.view.ready:
            raise Refused("topic_not_ready", f"{self.view.name} is not made yet", found="not ready", expected="ready")
        wanted = range(self.view.partitions) if partition is None else (partition,)
        with closing(self._open_log(self.view.fabric)) as log:
            found = [record for number in wanted for record in self._of_partition(log, number, start, limit)]
        found.sort(key=lambda record: (record.timestamp_ms, record.partition, record.offset))
        return found[-limit:] if start is Edge.NEWEST else found[:limit]

    def _of_partition(self, log: Log, partition: int, start: Edge | int, limit: int) -> Iterator[TopicRecord]:
        at = partition_of(self.view, partition)
        there = log.offsets(at)
        match start:
            case Edge.OLDEST:
                offset = there.begin
            case Edge.NEWEST:
                offset = max(there.begin, there.end - limit)
            case int():
                offset = start
        schemas = schemas_of(self.view)
        read = log.read_raw if schemas is None else log.read
        while limit > 0:
            found = read(at, offset, min(limit, _READ_RECORDS), max(offset, there.end))
            rows = found.records.to_pylist()
            yield from (self._record(at, row, schemas) for row in rows)
            limit -= len(rows)
            if found.next_offset in (offset, there.end):
                return
            offset = found.next_offset

    def _record(
        self, at: TopicPartition, row: dict[str, Any], schemas: tuple[AvroSchema, AvroSchema] | None
    ) -> TopicRecord:
        if schemas is not None:
            return self._of_avro(at, row, *schemas)
        key, value, flaw = row["key"], row["value"], None
        if self.view.format is TopicFormat.JSON:
            key = _text_or_bytes(key)
            try:
                value = None if value is None else json.loads(value)
            except ValueError as error:
                value, flaw = None, f"not JSON: {error}"
        return TopicRecord(at.partition, row["offset"], row["timestamp_ms"], key, value, flaw)

    def _of_avro(
        self, at: TopicPartition, row: dict[str, Any], key_schema: AvroSchema, value_schema: AvroSchema
    ) -> TopicRecord:
        key = value = None
        flaw = None if row["flaw"] == Flaw.NONE else Flaw(row["flaw"]).name.lower().replace("_", " ")
        if flaw is None and row["value"] is not None and row["schema_id"] != self.view.value_schema_id:
            flaw = f"unknown value schema {row['schema_id']}"
        if flaw is None:
            try:
                key = decode_datum(key_schema, row["key"])
                value = None if row["value"] is None else decode_datum(value_schema, row["value"])
            except AnewError as error:
                flaw = str(error)
        return TopicRecord(at.partition, row["offset"], row["appended_ms"], key, value, flaw)


def key_of(row: Any, member: str) -> Any:
    """The member of a value that is its key.

    Raises:
        InvalidRequest: ``no_key``: it has none, or it is null.
    """
    found = row.get(member) if isinstance(row, dict) else None
    if found is None:
        raise InvalidRequest(
            "no_key",
            f"the value has no member {member}, which is to be its key",
            found=sorted(row) if isinstance(row, dict) else type(row).__name__,
            expected=f"an object with {member}",
        )
    return found


def _text_or_bytes(data: bytes | None) -> str | bytes | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
