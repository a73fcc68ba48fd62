"""What of the winners a new version does not hold: rejected, expired, or a tombstone that may go (rules R11, R12).

De-duplicate first, drop second: a winner that goes takes what it superseded with it (case F7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.arrow import replaced, take
from anew.core.hashing import total
from anew.core.ledger import ZERO, Entry

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DropFloors:
    """The floors by which winners are judged, ms; 0 drops nothing.

    Attributes:
        rejected_below_ms: The *source's* tombstone floor: below it a record whose key has no cell in the source's base
            may be older than a tombstone that was dropped, so that it is rejected (rule R12).
        ttl_floor_ms: The new version's: what was written after 0 and before it has expired (rule R11).
        tombstone_floor_ms: The new version's: tombstones from before it go (rule R12).
    """

    rejected_below_ms: int = 0
    ttl_floor_ms: int = 0
    tombstone_floor_ms: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """The winners that stay, and the account of those that do not."""

    rows: pa.RecordBatch
    rejected: Entry = ZERO
    expired: Entry = ZERO
    deleted: Entry = ZERO


def drop(winners: pa.RecordBatch, floors: DropFloors) -> Kept:
    """Judge one winner per key.

    Args:
        winners: Columns `anew.core.rows.ROWS`, and ``held`` (whether the source's base has a cell of the key) where
            ``floors.rejected_below_ms`` is not 0.
        floors: See `DropFloors`.
    """
    if winners.num_rows == 0 or floors == DropFloors():
        return Kept(winners)
    times = winners.column("time").to_numpy()
    dead = winners.column("value").is_null().to_numpy(zero_copy_only=False)
    rejected = np.zeros(winners.num_rows, dtype=np.bool_)
    if floors.rejected_below_ms:
        held = winners.column("held").to_numpy(zero_copy_only=False)
        rejected = ~held & (times < floors.rejected_below_ms)
    expired = ~rejected & ~dead & (times > 0) & (times < floors.ttl_floor_ms)
    deleted = ~rejected & dead & (times < floors.tombstone_floor_ms)
    gone = rejected | expired | deleted
    if not gone.any():
        return Kept(winners)
    hashes = winners.column("hash").to_numpy()
    return Kept(
        take(winners, (~gone).nonzero()[0]), _entry(hashes, rejected), _entry(hashes, expired), _entry(hashes, deleted)
    )


def expired_among(rows: pa.RecordBatch, ttl_floor_ms: int) -> Bools:
    """Which rows were written after 0 and before the floor (rule R11), shape (n,)."""
    times = rows.column("time").to_numpy()
    return np.asarray((times > 0) & (times < ttl_floor_ms))


def buried(rows: pa.RecordBatch, chosen: Bools) -> pa.RecordBatch:
    """The rows with the chosen ones as tombstones that keep their stamps (rule R11); hashes stay as they are."""
    if not chosen.any():
        return rows
    dead: Any = pa.array(chosen)
    values = pc.if_else(dead, pa.scalar(None, pa.binary()), rows.column("value"))
    schemas = pc.if_else(dead, pa.scalar(0, pa.int32()), rows.column("schema_id"))
    return replaced(replaced(rows, "value", values), "schema_id", schemas)


def _entry(hashes: npt.NDArray[np.int64], chosen: Bools) -> Entry:
    return Entry(count=int(chosen.sum()), hash=total(np.ascontiguousarray(hashes[chosen])))
