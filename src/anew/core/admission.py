"""What a reader of a feed lets in: one pure decision per record, the same on every replica and in every scan.

A record is passed over when it lies below the version's start (rule R1). It is a dead letter when its given time is out
of range (rule R6) or it lies in a partition where nobody would look for it (rule R8). In the feed of a job's generation
it also is one when it has no identity of that generation (rule R20) or no given time. All that decides is in the record
and in the feed, so that every reader decides alike (rule R21). A value schema that is not known is decided once, in the
catalog, and the feed says so.

Where a record lies in the log is no part of its row: a generation's row has batch and sequence where others have feed
partition and offset (rule R20). So rows go with their offsets in the log beside them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.feed import Feed, FeedKind, FeedPartition, Settled
from anew.core.hashing import key_hashes, row_hashes
from anew.core.identity import Identities, split_identities
from anew.core.partition import XxHash64Partitioner
from anew.core.rows import ROWS

TIME_OUT_OF_RANGE = "written_at is not in (0, append time + skew limit]"
WRONG_PARTITION = "the key belongs to another partition of the feed"
NO_SCHEMA = "the value names no schema"
UNKNOWN_SCHEMA = "the value names a schema that the store did not have when that was decided"
NO_IDENTITY = "it has no identity of the generation of the job whose feed this is"
NO_TIME = "it has no written_at, which records of a job always have"
FLAWS = {
    1: "it has no key",
    2: "its key has no wire header",
    3: "its key's wire header names another schema than the store's keys have",
    4: "its value has no wire header",
    5: "its header anew-written-at is no number of milliseconds",
}
"""What `anew.log.interface.Flaw` says of a record."""
_TIME, _PLACE, _SCHEMA, _UNKNOWN, _UNTIMED, _UNIDENTIFIED, _FLAW = 1, 2, 3, 4, 5, 6, 10
_TEXTS = {
    _TIME: TIME_OUT_OF_RANGE,
    _PLACE: WRONG_PARTITION,
    _SCHEMA: NO_SCHEMA,
    _UNKNOWN: UNKNOWN_SCHEMA,
    _UNTIMED: NO_TIME,
    _UNIDENTIFIED: NO_IDENTITY,
    **{_FLAW + flaw: text for flaw, text in FLAWS.items()},
}
_UNRANKED = np.iinfo(np.int64).max
"""Of a schema that the store does not have; beyond that of any that it has."""
_UNNAMED = pa.scalar(b"", pa.binary())
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
        rows: Columns `anew.core.rows.ROWS`, in the log's order, values uncompressed; hashes are 0 unless asked for.
        offsets: Where each row lies in the log, ascending, int64 of shape (rows,). Of a generation's feed the column
            ``offset`` says something else.
        key_hashes: ``key_hash`` of each row's key, uint64 of shape (rows,).
        rejected: The records that nobody applies.
    """

    rows: pa.RecordBatch
    offsets: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    key_hashes: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]
    rejected: tuple[Rejection, ...]


def admit(feed: Feed, partition: int, start: int, records: pa.RecordBatch, schemas: Iterable[int]) -> Admitted:
    """The records (columns of ``anew.log.interface.LOG_RECORDS``) of one feed partition that a version applies.

    ``schemas`` are the ids of the store's value schemas, in the order in which it got them, as they are known together
    with the feed. What names another one and is not decided is let through: see `first_undecided`.
    """
    records = records.slice(int(np.searchsorted(records.column("offset").to_numpy(), start)))
    hashes = key_hashes(records.column("key"))
    carried: Any = records.column("origin")
    identities = split_identities(carried) if feed.kind is FeedKind.GENERATION else None
    reasons = _reasons(feed, partition, records, hashes, identities)
    if feed.settled:
        reasons[_decided_against(feed.settled_in(partition), records, schemas) & (reasons == 0)] = _UNKNOWN
    bad = reasons.astype(np.bool_)
    rejected: tuple[Rejection, ...] = ()
    if bad.any():
        offsets = records.column("offset").to_numpy()
        at = FeedPartition(feed.id, partition)
        rejected = tuple(
            Rejection(at.feed, at.partition, int(offsets[i]), _TEXTS[int(reasons[i])]) for i in bad.nonzero()[0]
        )
        good = (~bad).nonzero()[0]
        records, hashes = records.take(good), hashes[good]
        if identities is not None:
            identities = Identities(identities.origin, identities.batch[good], identities.sequence[good])
    rows = _rows(feed, partition, records) if identities is None else _rows_of_job(feed, records, identities)
    return Admitted(rows, records.column("offset").to_numpy(), hashes, rejected)


def first_undecided(admitted: Admitted, schemas: Collection[int]) -> tuple[int, int] | None:
    """Log offset and schema id of the first admitted row whose schema is not known; None when all are (rule R21).

    Whoever meets one decides nothing: it is known soon, or decided in the catalog, for everybody.
    """
    rows = admitted.rows
    named = rows.column("schema_id").to_numpy()
    unknown = rows.column("value").is_valid().to_numpy(zero_copy_only=False)
    # One by one: a store has few schemas, and to prepare a search among them takes longer.
    for known in schemas:
        unknown = unknown & (named != known)
    if not unknown.any():
        return None
    first = int(unknown.argmax())
    return int(admitted.offsets[first]), int(named[first])


def with_hashes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with their row hashes filled in; values must be uncompressed."""
    hashes = pa.array(row_hashes(rows).view(np.int64))
    return rows.set_column(rows.schema.get_field_index("hash"), ROWS.field("hash"), hashes)


def _reasons(
    feed: Feed,
    partition: int,
    records: pa.RecordBatch,
    hashes: np.ndarray[tuple[int, ...], np.dtype[np.uint64]],
    identities: Identities | None,
) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    reasons = np.zeros(records.num_rows, dtype=np.int8)
    if feed.partitioner == "xxhash64":
        reasons[XxHash64Partitioner(feed.partitions).of_hashes(hashes) != partition] = _PLACE
    alive = records.column("value").is_valid().to_numpy(zero_copy_only=False)
    reasons[alive & (records.column("schema_id").to_numpy() <= 0)] = _SCHEMA
    written = records.column("written_ms")
    if written.null_count < records.num_rows:
        given = written.is_valid().to_numpy(zero_copy_only=False)
        times = written.fill_null(1).to_numpy(zero_copy_only=False)
        latest = records.column("appended_ms").to_numpy() + feed.skew_limit_ms
        reasons[given & ((times <= 0) | (times > latest))] = _TIME
    if identities is not None:
        reasons[written.is_null().to_numpy(zero_copy_only=False)] = _UNTIMED
        reasons[~_of_generation(feed, identities)] = _UNIDENTIFIED
    flaws = records.column("flaw").to_numpy()
    if flaws.any():
        reasons = np.where(flaws > 0, flaws + _FLAW, reasons).astype(np.int8)
    return reasons


def _decided_against(
    settled: list[Settled], records: pa.RecordBatch, schemas: Iterable[int]
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which values name a schema that was not the store's when that was decided, shape (rows,)."""
    named = records.column("schema_id").to_numpy()
    ranks = {number: rank for rank, number in enumerate(schemas)}
    rank = np.full(named.size, _UNRANKED)
    for number, place in ranks.items():
        rank[named == number] = place
    entry = np.searchsorted([one.below for one in settled], records.column("offset").to_numpy(), side="right")
    newest = np.array([*(ranks.get(one.newest_schema_id, -1) for one in settled), _UNRANKED])[entry]
    alive = records.column("value").is_valid().to_numpy(zero_copy_only=False)
    decided: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = entry < len(settled)
    return alive & decided & (rank > newest)


def _origins(feed: Feed, origins: pa.Array[Any]) -> pa.Array[Any]:
    """The origins of records; those whose producer named none come from the feed's own."""
    unnamed = pc.equal(origins, _UNNAMED)
    if not pc.any(unnamed).as_py():
        return origins
    named: pa.Array[Any] = pc.if_else(unnamed, pa.scalar(feed.origin_bytes, pa.binary()), origins)
    return named


def _of_generation(feed: Feed, identities: Identities) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which records have an identity of the generation whose feed it is, shape (rows,)."""
    same: Any = pc.equal(identities.origin, pa.scalar(feed.origin_bytes, pa.binary()))
    own: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = same.to_numpy(zero_copy_only=False)
    return own & (identities.batch >= 0)


def _rows(feed: Feed, partition: int, records: pa.RecordBatch) -> pa.RecordBatch:
    places: Any = np.full(records.num_rows, partition, dtype=np.int32)
    return _stamped(feed, records, _origins(feed, records.column("origin")), places, records.column("offset"))


def _rows_of_job(feed: Feed, records: pa.RecordBatch, identities: Identities) -> pa.RecordBatch:
    """Rows of a generation, whose stamps have batch and sequence (rule R20); all are of the feed's origin."""
    origins: Any = pa.repeat(pa.scalar(feed.origin_bytes, pa.binary()), records.num_rows)
    return _stamped(feed, records, origins, identities.batch, pa.array(identities.sequence))


def _stamped(
    feed: Feed, records: pa.RecordBatch, origins: pa.Array[Any], places: Any, offsets: pa.Array[Any]
) -> pa.RecordBatch:
    count = records.num_rows
    written = records.column("written_ms")
    columns = {
        "key": records.column("key"),
        "value": records.column("value"),
        "schema_id": pc.if_else(records.column("value").is_null(), _NO_SCHEMA_ID, records.column("schema_id")),
        "time": pc.coalesce(written, records.column("appended_ms")),
        "origin": origins,
        "append_timed": written.is_null(),
        "incarnation": pa.array(np.full(count, feed.incarnation, dtype=np.int32)),
        "feed_partition": pa.array(places),
        "offset": offsets,
        "hash": pa.array(np.zeros(count, dtype=np.int64)),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in ROWS.names], schema=ROWS)
