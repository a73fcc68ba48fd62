"""Nearline writes: straight into the fabric's log, acknowledged when they are on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from anew.api.stores.routing import Routing
from anew.client.batches import Batches, appended
from anew.codec.avro import decode_datum, encode_datum, parse_schema
from anew.core.errors import InvalidRequest, PartlyDone, Refused
from anew.core.feed import Feed, FeedPartition, PositionMap
from anew.core.partition import XxHash64Partitioner
from anew.core.stores.store import newest_schema_id
from anew.log.interface import APPEND_RECORDS, Appended, Log, topic_partition

_BATCH_RECORDS = 1_000
_GREATEST_MS = 2**63 - 1


@dataclass(slots=True)
class _Buffer:
    """Records of one feed partition that wait to be appended."""

    written_ms: list[int | None] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    schema_ids: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)


class Writer:
    """Buffers records and appends them in batches; a context manager.

    What `put` and `delete` accepted is acknowledged once `flush` or `close` returned. After an error the records that
    were not acknowledged are still buffered, and flushing again is safe: a batch keeps its id over all attempts, and
    the log finds one that landed before instead of appending it twice. A batch that the log refuses is dropped whole,
    all others are still written. Not safe to use from several threads: make one writer for each.

    Attributes:
        accepted: How many records were taken and not refused since.
        acknowledged: How many of them are on disk, and are applied.
    """

    def __init__(self, routing: Routing, log: Log) -> None:
        """Use ``Store.writer``.

        Raises:
            Refused: ``not_hybrid``, ``writes_disabled``.
        """
        if routing.feed is None and routing.fed_by:
            raise Refused(
                "not_hybrid",
                f"{routing.name} is fed by a job and takes no nearline writes",
                found=f"the feed of {', '.join(routing.fed_by)}",
                expected="hybrid = true",
                hint=f"write into the job's inputs; to write beside it: anew store update {routing.name} "
                "--set hybrid=true, and repush",
            )
        if routing.feed is None:
            raise Refused(
                "not_hybrid",
                f"{routing.name} takes no nearline writes",
                found="hybrid = false",
                expected="hybrid = true",
                hint="make the store with --set hybrid=true",
            )
        if not routing.writes:
            raise Refused(
                "writes_disabled",
                f"{routing.name} takes no writes",
                found="writes = false",
                expected="writes = true",
                hint=f"anew store update {routing.name} --set writes=true",
            )
        self._feed: Feed = routing.feed
        self._log = log
        self._max_value_bytes = routing.max_value_bytes
        self._partitioner = XxHash64Partitioner(self._feed.partitions)
        self._key_schema = parse_schema(routing.key_schema)
        self._schema_id = newest_schema_id(routing.schemas)
        self._value_schema = parse_schema(routing.schemas[self._schema_id])
        self._batches = Batches(_Buffer, self._batch, self._append)
        self._buffered = 0
        self._position = PositionMap()
        self.accepted = 0
        self.acknowledged = 0

    @property
    def position(self) -> PositionMap:
        """Behind the last acknowledged record of each feed partition that was written to."""
        return self._position

    def put(self, key: Any, value: Any, *, written_at: int | None = None) -> None:
        """Write a value.

        Args:
            key: A datum of the key schema.
            value: A datum of the newest value schema.
            written_at: When it was written, ms since the epoch; None: when the log appends it.

        Raises:
            InvalidRequest: ``value_misfit`` (names the field), ``value_too_large``: nothing was written;
                ``written_at_out_of_range``: this record or, when buffers are full, as `flush`.
        """
        body = encode_datum(self._value_schema, value)
        if len(body) > self._max_value_bytes:
            raise InvalidRequest(
                "value_too_large",
                "the value is too large",
                found=f"{len(body)} bytes for key {key!r}",
                expected=f"at most {self._max_value_bytes} bytes (max_value_bytes)",
            )
        self._add(encode_datum(self._key_schema, key), body, written_at)

    def delete(self, key: Any, *, written_at: int | None = None) -> None:
        """Delete a key; one that is absent too, so that what comes late stays dead.

        Raises:
            InvalidRequest: ``value_misfit``, ``written_at_out_of_range``.
        """
        self._add(encode_datum(self._key_schema, key), None, written_at)

    def flush(self) -> PositionMap:
        """Append all that is buffered; returns the position behind the last record of each feed partition.

        Raises:
            InvalidRequest: ``written_at_out_of_range``: the batches of such records were not written and are dropped,
                all others were written.
            Refused: ``clock_behind``.
            Unreachable: Nothing was written of the batch that failed.
            OutcomeUnknown: It is not known whether the batch was written; flush again.
            PartlyDone: ``written_at_out_of_range``: readers reject some records, which are in the log as dead letters;
                ``append_partly``: some records of a batch landed, its others did not. All other batches were written.
        """
        self._batches.flush()
        return self._position

    def close(self) -> PositionMap:
        """Flush and let go of the log; returns the position that was reached."""
        try:
            return self.flush()
        finally:
            self._log.close()

    def __enter__(self) -> Writer:
        """The writer itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        """Close; after an error what was buffered is given up, nothing of it was acknowledged."""
        if kind is None:
            self.close()
        else:
            self._log.close()

    def _add(self, key: bytes, value: bytes | None, written_at: int | None) -> None:
        if written_at is not None and not 0 < written_at <= _GREATEST_MS:
            raise InvalidRequest(
                "written_at_out_of_range",
                "written_at is no time",
                found=written_at,
                expected="ms since the epoch, greater than 0 and not beyond the skew limit",
            )
        partition = self._partitioner.of(key)
        buffer = self._batches.of(partition)
        buffer.written_ms.append(written_at)
        buffer.keys.append(key)
        buffer.schema_ids.append(0 if value is None else self._schema_id)
        buffer.values.append(value)
        self._buffered += 1
        self.accepted += 1
        if self._buffered >= _BATCH_RECORDS:
            self.flush()

    def _batch(self, buffer: _Buffer) -> pa.RecordBatch:
        columns: list[Any] = [
            pa.array(buffer.written_ms, pa.int64()),
            pa.array([self._feed.origin_bytes] * len(buffer.keys), pa.binary()),
            pa.array(buffer.keys, pa.binary()),
            pa.array(buffer.schema_ids, pa.int32()),
            pa.array(buffer.values, pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=APPEND_RECORDS)

    def _append(self, partition: int, records: pa.RecordBatch) -> None:
        count = records.num_rows
        try:
            landed = appended(self._log.append, topic_partition(self._feed, partition), records)
        except (InvalidRequest, PartlyDone):
            self._buffered -= count
            self.accepted -= count
            raise
        self._position = self._position.with_offset(FeedPartition(self._feed.id, partition), landed.next_offset)
        self._buffered -= count
        self.acknowledged += count - len(landed.rejected)
        self.accepted -= len(landed.rejected)
        if landed.rejected:
            raise self._rejection(records, landed)

    def _rejection(self, records: pa.RecordBatch, appended: Appended) -> PartlyDone:
        row, skew_ms = appended.rejected[0], self._feed.skew_limit_ms
        key = decode_datum(self._key_schema, records.column("key")[row].as_py())
        count = f"{len(appended.rejected)} of {records.num_rows}"
        return PartlyDone(
            "written_at_out_of_range",
            f"readers reject {count} records of a batch, which are dead letters now",
            found=f"written_at {records.column('written_ms')[row].as_py()} of the key {key!r}",
            expected=f"at most the append time by the broker's clock ({appended.last_ms}) + skew limit ({skew_ms} ms)",
            hint="set this machine's clock right, and write these records again",
        )
