"""Writing to a topic of our own: straight into its fabric's log, acknowledged when it is on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from anew.api.topics import TopicView
from anew.client.batches import Batches, appended
from anew.codec.avro import encode_datum, parse_schema
from anew.codec.schema import AvroSchema
from anew.core.errors import InvalidRequest, PartlyDone, Refused
from anew.core.feed import FeedPartition, PositionMap
from anew.core.partition import XxHash64Partitioner
from anew.core.topics.topic import TopicFormat
from anew.log.interface import APPEND_RECORDS, RAW_APPEND, Log, TopicPartition

_BATCH_RECORDS = 1_000


@dataclass(slots=True)
class _Buffer:
    """Records of one partition that wait to be appended."""

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)


class TopicWriter:
    """Buffers records and appends them in batches; a context manager. Errors are as those of a store's writer.

    A record with a key goes to the partition of its key's bytes (of an Avro key, its body), one without a key to the
    next partition in turn. A writer goes on with the partitions that the topic had when it was made: where the topic
    gets more, make the writer again, from a `Topic` that was asked for since. Not safe to use from several threads:
    make one writer for each.

    Attributes:
        accepted: How many records were taken and not refused since.
        acknowledged: How many of them are on disk.
    """

    def __init__(self, view: TopicView, log: Log) -> None:
        """Use ``Topic.writer``.

        Raises:
            Refused: ``topic_not_ready``; ``topic_in_use``: a job writes it.
        """
        if view.written_by is not None:
            raise Refused(
                "topic_in_use",
                f"the topic {view.name} is written by a job alone",
                found=f"written by {view.written_by}",
                expected="a topic that is no output of a job",
                hint="write into a topic that the job reads, or into one of your own: anew topic create",
            )
        if not view.ready:
            raise Refused(
                "topic_not_ready",
                f"the log has not made the topic {view.name} yet",
                found="not ready",
                expected="ready",
                hint="anew status",
            )
        self._view, self._log = view, log
        self._feed_id = f"{view.fabric}/{view.name}#{view.incarnation}"
        self._partitioner = XxHash64Partitioner(view.partitions)
        self._schemas = schemas_of(view)
        self._batches = Batches(_Buffer, self._batch, self._append)
        self._buffered = self._turn = 0
        self._position = PositionMap()
        self.accepted = 0
        self.acknowledged = 0

    @property
    def position(self) -> PositionMap:
        """Behind the last acknowledged record of each partition that was written to."""
        return self._position

    def put(self, key: Any, value: Any) -> None:
        """Write a record.

        Args:
            key: Of format avro a datum of the key schema. Of json a text, which is written as it is, bytes, or another
                value, which is written as JSON. Of bytes: bytes. None: no key, which avro does not have.
            value: Of format avro a datum of the value schema; None: a delete. Of json a value that JSON has, of bytes:
                bytes.

        Raises:
            InvalidRequest: ``value_misfit``, ``no_key``; when buffers are full, as `flush`.
        """
        if self._schemas is not None:
            if key is None:
                raise InvalidRequest(
                    "no_key", f"records of {self._view.name} have keys", found=None, expected="a key of the key schema"
                )
            key_schema, value_schema = self._schemas
            body = None if value is None else encode_datum(value_schema, value)
            self._add(encode_datum(key_schema, key), body)
        elif self._view.format is TopicFormat.JSON:
            self._add(json_key(key), _json_bytes("value", value))
        else:
            self._add(_plain_bytes("key", key), _plain_bytes("value", value))

    def put_bytes(self, key: bytes | None, value: bytes | None) -> None:
        """Write bytes as they are to a topic of format json or bytes; whether they are JSON is the caller's business.

        Raises:
            InvalidRequest: ``bad_topic_format``: values of this topic are Avro; when buffers are full, as `flush`.
        """
        if self._schemas is not None:
            raise InvalidRequest(
                "bad_topic_format", f"{self._view.name} takes no bytes", found="avro", expected="json or bytes"
            )
        self._add(key, value)

    def flush(self) -> PositionMap:
        """Append all that is buffered; returns the position behind the last record of each partition.

        Raises:
            InvalidRequest, Refused: Nothing of the batches that are named was written; all others were.
            Unreachable: Nothing was written of the batch that failed.
            OutcomeUnknown: It is not known whether the batch was written; flush again.
            PartlyDone: ``append_partly``: some records of a batch landed, its others did not.
            Failed: ``topic_lost``.
        """
        self._batches.flush()
        return self._position

    def close(self) -> PositionMap:
        """Flush and let go of the log; returns the position that was reached."""
        try:
            return self.flush()
        finally:
            self._log.close()

    def __enter__(self) -> TopicWriter:
        """The writer itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        """Close; after an error what was buffered is given up, nothing of it was acknowledged."""
        if kind is None:
            self.close()
        else:
            self._log.close()

    def _add(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            partition, self._turn = self._turn, (self._turn + 1) % self._view.partitions
        else:
            partition = self._partitioner.of(key)
        buffer = self._batches.of(partition)
        buffer.keys.append(key)
        buffer.values.append(value)
        self._buffered += 1
        self.accepted += 1
        if self._buffered >= _BATCH_RECORDS:
            self.flush()

    def _batch(self, buffer: _Buffer) -> pa.RecordBatch:
        keys: pa.Array[Any] = pa.array(buffer.keys, pa.binary())
        values: pa.Array[Any] = pa.array(buffer.values, pa.binary())
        times: pa.Array[Any] = pa.nulls(len(keys), pa.int64())
        if self._schemas is None:
            return pa.RecordBatch.from_arrays([keys, values, times], schema=RAW_APPEND)
        written = self._view.value_schema_id
        ids: pa.Array[Any] = pa.array([0 if value is None else written for value in buffer.values], pa.int32())
        origins: pa.Array[Any] = pa.array([b""] * len(keys), pa.binary())
        return pa.RecordBatch.from_arrays([times, origins, keys, ids, values], schema=APPEND_RECORDS)

    def _append(self, partition: int, records: pa.RecordBatch) -> None:
        count, append = records.num_rows, self._log.append_raw if self._schemas is None else self._log.append
        try:
            landed = appended(append, partition_of(self._view, partition), records)
        except (InvalidRequest, PartlyDone):
            self._buffered -= count
            self.accepted -= count
            raise
        self._position = self._position.with_offset(FeedPartition(self._feed_id, partition), landed.next_offset)
        self._buffered -= count
        self.acknowledged += count


def schemas_of(view: TopicView) -> tuple[AvroSchema, AvroSchema] | None:
    """The key and value schema of a topic of format avro; None for others."""
    if view.key_schema is None or view.value_schema is None:
        return None
    return parse_schema(view.key_schema), parse_schema(view.value_schema)


def partition_of(view: TopicView, partition: int) -> TopicPartition:
    """One partition of a topic that is ready."""
    key_schema_id = 1 if view.key_schema_id is None else view.key_schema_id
    return TopicPartition(view.name, view.topic_uid, partition, key_schema_id)


def json_key(key: Any) -> bytes | None:
    """The bytes of a JSON record's key: a text as it is, another value as JSON."""
    if key is None or isinstance(key, bytes):
        return key
    return key.encode() if isinstance(key, str) else _json_bytes("key", key)


def _json_bytes(what: str, value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise InvalidRequest("value_misfit", f"the {what} is not JSON", found=str(error), expected="JSON") from error


def _plain_bytes(what: str, given: Any) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    raise InvalidRequest("value_misfit", f"the {what} is not bytes", found=type(given).__name__, expected="bytes")
