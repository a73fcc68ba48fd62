"""The merge over Arrow columns: each key's winner out of rows sorted by key, in one pass with one batch held.

`anew.core.merge` is the definition. Here (rule R6, over a whole group): per feed partition, the append-timed
records become one, the record at the last offset carrying the greatest time among them; then the greatest
(time, origin, append-timed above given, incarnation, partition, offset) of all wins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.arrow import concat, replaced, take
from anew.core.hashing import row_hashes, total
from anew.core.rows import ROWS
from anew.core.sorting import sort_order

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Rehash = Callable[[pa.RecordBatch], npt.NDArray[np.uint64]]

HELD = "held"
"""An optional boolean column (rule R12): whether there was a base row of the key. A winner has the OR over its key's
rows."""

_CLOCK_COLUMNS = ("key", "origin", "incarnation", "feed_partition")
_DECIDING_COLUMNS = ["origin", "incarnation", "feed_partition", "time", "append_timed"]
_NEVER = np.iinfo(np.int64).min
_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Winners:
    """The outcome of one reduction.

    Attributes:
        indices: Which input rows won, ascending, shape (keys,).
        times: The winners' times, raised where R6 says so, shape (keys,).
        raised: Where ``times`` differs from the rows' own, shape (keys,).
    """

    indices: Ints
    times: Ints
    raised: Bools


@dataclass(slots=True)
class ReduceCounts:
    """What a reduction did with its rows; hashes are sums modulo 2**64.

    ``read_hash + raised_hash = superseded_hash + hash of the winners`` (rule R19). It is the same wherever the batches
    ended: a row counts as raised when it wins with another time than it came with, and as superseded with the hash
    that it came with.
    """

    read: int = 0
    read_hash: int = 0
    superseded: int = 0
    superseded_hash: int = 0
    raised: int = 0
    raised_hash: int = 0
    """New minus old hash of the winners whose time R6 raised."""

    def add_read(self, hashes: Ints) -> None:
        """Count rows that came in, by their hashes."""
        self.read += hashes.size
        self.read_hash = (self.read_hash + total(hashes)) % _MODULUS


@dataclass(slots=True)
class WinnerReducer:
    """Reduces sorted rows to one winner per key, batch by batch.

    Memory does not grow with the number of records of a key: of a key that goes on in the next batch at most two
    rows are kept (the best so far, and the last append-timed one of the feed partition that may still go on). Where the
    rows have a column `HELD`, a winner has the OR over all rows of its key.

    Attributes:
        rehash: The hashes of rows whose time was raised; the default wants uncompressed values.
        counts: What was done so far.
    """

    rehash: Rehash = row_hashes
    counts: ReduceCounts = field(default_factory=ReduceCounts)
    _carried: pa.RecordBatch | None = None
    _carried_raised: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Which carried rows have a raised time already; their hashes stay those they came with until they win."""

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The winners of all keys but the last one, which may go on in the next batch.

        ``rows`` has at least the columns `ROWS`, is sorted by `SORT_COLUMNS`, and comes after all rows fed before.
        """
        if rows.num_rows == 0:
            return rows
        rows, raised = self._join_carried(rows)
        last_key = int(run_starts(rows, ("key",)).nonzero()[0][-1])
        self._keep_open(rows.slice(last_key), raised[last_key:])
        return self._settle(rows.slice(0, last_key), raised[:last_key])

    def finish(self, rows: pa.RecordBatch | None = None) -> pa.RecordBatch:
        """The winners of the last key and, given last ``rows`` (as for `feed`), of theirs; keys fed later are others.

        No rows come out when none were fed.
        """
        if rows is None:
            rows = pa.RecordBatch.from_pylist([], schema=ROWS) if self._carried is None else self._carried[:0]
        return self._settle(*self._join_carried(rows))

    def _join_carried(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Bools]:
        """What was carried, which is let go, and new rows, which are counted; and whose time was raised before."""
        self.counts.add_read(rows.column("hash").to_numpy())
        raised = np.zeros(rows.num_rows, dtype=np.bool_)
        carried, self._carried = self._carried, None
        if carried is None:
            return rows, raised
        return concat([carried, rows]), np.concatenate([self._carried_raised, raised])

    def _keep_open(self, rows: pa.RecordBatch, raised: Bools) -> None:
        """Carry those of one key's rows that can still matter: copies, since a slice would keep the whole batch."""
        if rows.num_rows <= 2:
            self._carried, self._carried_raised = take(rows, np.arange(rows.num_rows)), raised
            return
        kept = _find_open(rows)
        self._carried = replaced(self._supersede(rows, kept), "time", pa.array(kept.times))
        self._carried_raised = kept.raised | raised[kept.indices]

    def _settle(self, rows: pa.RecordBatch, raised: Bools) -> pa.RecordBatch:
        """Take the winners out of ``rows`` and account for all; ``raised``: whose time was raised before."""
        winners = find_winners(rows)
        raised = winners.raised | raised[winners.indices]
        if winners.indices.size == rows.num_rows and not raised.any():
            return rows
        kept = self._supersede(rows, winners)
        if not raised.any():
            return kept
        counts, before = self.counts, _hash_of(kept)
        kept = raise_times(kept, replace(winners, raised=raised), self.rehash)
        counts.raised += int(raised.sum())
        counts.raised_hash = (counts.raised_hash + _hash_of(kept) - before) % _MODULUS
        return kept

    def _supersede(self, rows: pa.RecordBatch, winners: Winners) -> pa.RecordBatch:
        """The winning rows with their own times; all others are counted as superseded."""
        kept, counts = take(rows, winners.indices), self.counts
        counts.superseded += rows.num_rows - kept.num_rows
        counts.superseded_hash = (counts.superseded_hash + _hash_of(rows) - _hash_of(kept)) % _MODULUS
        return _with_held(kept, rows, winners) if HELD in rows.schema.names else kept


def find_winners(rows: pa.RecordBatch) -> Winners:
    """Each key's winner among rows sorted by `SORT_COLUMNS`."""
    times = rows.column("time").to_numpy()
    key_starts = run_starts(rows, ("key",))
    first = key_starts.nonzero()[0]
    if first.size == rows.num_rows:
        return Winners(first, times, np.zeros(rows.num_rows, dtype=np.bool_))
    sizes = np.diff(first, append=rows.num_rows)
    several = sizes > 1
    crowded = np.repeat(several, sizes).nonzero()[0]
    won, effective = _winners_of_crowded(take(rows.select(_DECIDING_COLUMNS), crowded), key_starts[crowded])
    indices, winning_times = first, times[first]
    indices[several], winning_times[several] = crowded[won], effective
    return Winners(indices, winning_times, winning_times != times[indices])


def _winners_of_crowded(rows: pa.RecordBatch, key_starts: Bools) -> tuple[Ints, Ints]:
    """The winners of keys that have several rows: their indices and their times after R6."""
    times = rows.column("time").to_numpy()
    timed = rows.column("append_timed").to_numpy(zero_copy_only=False)
    origin_starts = key_starts | run_starts(rows, ("origin",))
    clock_starts = origin_starts | run_starts(rows, ("incarnation", "feed_partition"))
    greatest = np.maximum.reduceat(np.where(timed, times, _NEVER), clock_starts.nonzero()[0])
    effective = np.where(timed, greatest[np.cumsum(clock_starts) - 1], times)
    first = key_starts.nonzero()[0]
    latest = np.maximum.reduceat(effective, first)[np.cumsum(key_starts) - 1]
    # Rows are in (incarnation, partition, offset) order within an origin, so their index stands for these three. With
    # it the last append-timed record of a clock beats those before, which have the same time now.
    ranks = (2 * np.cumsum(origin_starts) + timed) * rows.num_rows + np.arange(rows.num_rows)
    winners = np.maximum.reduceat(np.where(effective == latest, ranks, -1), first) % rows.num_rows
    return winners, effective[winners]


def _find_open(rows: pa.RecordBatch) -> Winners:
    """Of one key's rows, those that can still matter: the best of all, and the open clock's last one."""
    best = find_winners(rows)
    clock_start = int(run_starts(rows, _CLOCK_COLUMNS).nonzero()[0][-1])
    timed = rows.column("append_timed").to_numpy(zero_copy_only=False)[clock_start:].nonzero()[0] + clock_start
    if timed.size == 0 or timed[-1] == best.indices[0]:
        return best
    times = rows.column("time").to_numpy()
    kept = np.array([best.indices[0], timed[-1]])
    kept_times = np.array([best.times[0], times[timed].max()])
    order = kept.argsort()
    return Winners(kept[order], kept_times[order], (kept_times != times[kept])[order])


def _with_held(kept: pa.RecordBatch, rows: pa.RecordBatch, winners: Winners) -> pa.RecordBatch:
    """The winners among ``rows`` with `HELD` where any row of the key has it."""
    first = run_starts(rows, ("key",)).nonzero()[0]
    held = np.logical_or.reduceat(rows.column(HELD).to_numpy(zero_copy_only=False), first)
    keys = first.searchsorted(winners.indices, side="right") - 1
    return replaced(kept, HELD, pa.array(held[keys]))


def raise_times(kept: pa.RecordBatch, winners: Winners, rehash: Rehash) -> pa.RecordBatch:
    """The winning rows with the times that R6 gives them, and new hashes where a time changed."""
    raised = replaced(kept, "time", pa.array(winners.times))
    hashes = kept.column("hash").to_numpy().copy()
    changed = winners.raised.nonzero()[0]
    hashes[changed] = rehash(take(raised, changed)).view(np.int64)
    return replaced(raised, "hash", pa.array(hashes))


def sort_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in the order of `SORT_COLUMNS`."""
    return take(rows, sort_order(rows))


def run_starts(rows: pa.RecordBatch, columns: tuple[str, ...]) -> Bools:
    """Where a row differs from the one before in any of ``columns``; True for the first, shape (n,)."""
    starts = np.zeros(rows.num_rows, dtype=np.bool_)
    if rows.num_rows == 0:
        return starts
    starts[0] = True
    for name in columns:
        column = rows.column(name)
        starts[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return starts


def _hash_of(rows: pa.RecordBatch) -> int:
    return total(rows.column("hash").to_numpy())
