"""What a reader of a feed lets in: one pure decision per record, the same on every replica and in every scan.

A record is passed over when it lies below the version's start (rule R1) and rejected, as a dead letter, when its given
time is out of range (rule R6) or it lies in a partition where nobody would look for it (rule R8). All that decides is
in the record and in the feed, so that everybody decides alike (rule R21).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.feed import Feed, FeedPartition
from anew.core.hashing import key_hashes, row_hashes
from anew.core.partition import XxHash64Partitioner
from anew.core.rows import ROWS

TIME_OUT_OF_RANGE = "written_at is not in (0, append time + skew limit]"
WRONG_PARTITION = "the key belongs to another partition of the feed"
NO_SCHEMA = "the value names no schema"
_NO_SCHEMA_ID = pa.scalar(0, pa.int32())
"""A tombstone carries no schema, whatever its producer wrote: rows of one history must look alike."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A dead letter: one record of a feed that no version applies."""

    feed: str
    partition: int
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """What is left of a read.

    Attributes:
        rows: Columns `anew.core.rows.ROWS`, in offset order, values uncompressed; hashes are 0 unless asked for.
        key_hashes: ``key_hash`` of each row's key, uint64 of shape (rows,).
        rejected: The records that nobody applies.
    """

    rows: pa.RecordBatch
    key_hashes: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]
    rejected: tuple[Rejection, ...]


def admit(feed: Feed, partition: int, start: int, records: pa.RecordBatch) -> Admitted:
    """The records (columns of ``anew.log.interface.LOG_RECORDS``) of one feed partition that a version applies."""
    records = records.slice(int(np.searchsorted(records.column("offset").to_numpy(), start)))
    hashes = key_hashes(records.column("key"))
    reasons = _reasons(feed, partition, records, hashes)
    bad = reasons.astype(np.bool_)
    if bad.any():
        offsets = records.column("offset").to_numpy()
        at = FeedPartition(feed.id, partition)
        texts = {1: TIME_OUT_OF_RANGE, 2: WRONG_PARTITION, 3: NO_SCHEMA}
        rejected = tuple(
            Rejection(at.feed, at.partition, int(offsets[i]), texts[int(reasons[i])]) for i in bad.nonzero()[0]
        )
        good = (~bad).nonzero()[0]
        records, hashes = records.take(good), hashes[good]
    else:
        rejected = ()
    return Admitted(_rows(feed, partition, records), hashes, rejected)


def with_hashes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with their row hashes filled in; values must be uncompressed."""
    hashes = pa.array(row_hashes(rows).view(np.int64))
    return rows.set_column(rows.schema.get_field_index("hash"), ROWS.field("hash"), hashes)


def _reasons(
    feed: Feed, partition: int, records: pa.RecordBatch, hashes: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    reasons = np.zeros(records.num_rows, dtype=np.int8)
    if feed.partitioner == "xxhash64":
        reasons[XxHash64Partitioner(feed.partitions).of_hashes(hashes) != partition] = 2
    alive = records.column("value").is_valid().to_numpy(zero_copy_only=False)
    reasons[alive & (records.column("schema_id").to_numpy() <= 0)] = 3
    written = records.column("written_ms")
    if written.null_count < records.num_rows:
        given = written.is_valid().to_numpy(zero_copy_only=False)
        times = written.fill_null(1).to_numpy(zero_copy_only=False)
        latest = records.column("appended_ms").to_numpy() + feed.skew_limit_ms
        reasons[given & ((times <= 0) | (times > latest))] = 1
    return reasons


def _rows(feed: Feed, partition: int, records: pa.RecordBatch) -> pa.RecordBatch:
    count = records.num_rows
    written = records.column("written_ms")
    columns = {
        "key": records.column("key"),
        "value": records.column("value"),
        "schema_id": pc.if_else(records.column("value").is_null(), _NO_SCHEMA_ID, records.column("schema_id")),
        "time": pc.coalesce(written, records.column("appended_ms")),
        "origin": records.column("origin"),
        "append_timed": written.is_null(),
        "incarnation": pa.array(np.full(count, feed.incarnation, dtype=np.int32)),
        "feed_partition": pa.array(np.full(count, partition, dtype=np.int32)),
        "offset": records.column("offset"),
        "hash": pa.array(np.zeros(count, dtype=np.int64)),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in ROWS.names], schema=ROWS)
