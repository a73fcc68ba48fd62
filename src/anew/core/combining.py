"""The combiner: what one task reads of a feed partition, reduced before it is shuffled.

It must not reduce to one winner per key: an append-timed record may owe its time to an earlier one of its clock that
another task reads (rule R6), and would then lose here against a record that it beats. So of each key two candidates may
stay: the last append-timed record with the greatest time among them, and the best of those whose time was given.
Tombstones stay like values: what they hide may be in another split (case C6).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anew.core.arrow import replaced, take
from anew.core.hashing import row_hashes, total
from anew.core.ledger import MODULUS, ZERO, Entry
from anew.core.reduce import Ints, run_starts, sort_rows

_CLOCK_COLUMNS = ("key", "origin", "incarnation", "feed_partition")
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Combined:
    """What is left, and the account: ``read hash + raised = superseded + hash of the rows`` (rule R19)."""

    rows: pa.RecordBatch
    superseded: Entry = ZERO
    raised: Entry = ZERO


def combine(rows: pa.RecordBatch) -> Combined:
    """At most two candidates per key and clock of rows in any order (columns `anew.core.rows.ROWS`, with hashes)."""
    if rows.num_rows < 2:
        return Combined(rows)
    rows = sort_rows(rows)
    starts = run_starts(rows, _CLOCK_COLUMNS)
    if starts.all():
        return Combined(rows)
    first = starts.nonzero()[0]
    count = np.arange(rows.num_rows)
    times = rows.column("time").to_numpy()
    timed = rows.column("append_timed").to_numpy(zero_copy_only=False)
    clocks = np.cumsum(starts) - 1
    last_timed = np.maximum.reduceat(np.where(timed, count, -1), first)
    greatest_timed = np.maximum.reduceat(np.where(timed, times, _NEVER), first)
    greatest_given = np.maximum.reduceat(np.where(timed, _NEVER, times), first)
    # Of equal given times the later offset is the greater stamp.
    best_given = np.maximum.reduceat(np.where(~timed & (times == greatest_given[clocks]), count, -1), first)
    kept = np.unique(np.concatenate([last_timed, best_given]))
    kept = kept[kept >= 0]
    effective = np.where(timed[kept], greatest_timed[clocks[kept]], times[kept])
    return _accounted(rows, kept, effective)


def _accounted(rows: pa.RecordBatch, kept: Ints, effective: Ints) -> Combined:
    left = take(rows, kept)
    before = total(left.column("hash").to_numpy())
    gone = Entry(count=rows.num_rows - left.num_rows, hash=(total(rows.column("hash").to_numpy()) - before) % MODULUS)
    changed = (effective != left.column("time").to_numpy()).nonzero()[0]
    if changed.size == 0:
        return Combined(left, gone)
    left = replaced(left, "time", pa.array(effective))
    hashes = left.column("hash").to_numpy().copy()
    hashes[changed] = row_hashes(take(left, changed)).view(np.int64)
    left = replaced(left, "hash", pa.array(hashes))
    raised = Entry(count=int(changed.size), hash=(total(hashes) - before) % MODULUS)
    return Combined(left, gone, raised)
