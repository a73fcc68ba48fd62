"""The merge over Arrow columns: each key's winner out of rows sorted by key, in one pass with one batch held.

`anew.core.merge` is the definition. Here (rule R6, over a whole group): per feed partition, the append-timed
records become one, the record at the last offset carrying the greatest time among them; then the greatest
(time, origin, append-timed above given, incarnation, partition, offset) of all wins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.arrow import concat, replaced, take
from anew.core.hashing import row_hashes, total
from anew.core.rows import ROWS, SORT_COLUMNS

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Rehash = Callable[[pa.RecordBatch], npt.NDArray[np.uint64]]

_CLOCK_COLUMNS = ("key", "origin", "incarnation", "feed_partition")
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

    ``read_hash + raised_hash = superseded_hash + hash of the winners`` (rule R19).
    """

    read: int = 0
    read_hash: int = 0
    superseded: int = 0
    superseded_hash: int = 0
    raised: int = 0
    raised_hash: int = 0
    """New minus old hash of the rows whose time R6 raised."""


@dataclass(slots=True)
class WinnerReducer:
    """Reduces sorted rows to one winner per key, batch by batch.

    Memory does not grow with the number of records of a key: of a key that goes on in the next batch at most two
    rows are kept (the best so far, and the last append-timed one of the feed partition that may still go on).

    Attributes:
        rehash: The hashes of rows whose time was raised; the default wants uncompressed values.
        counts: What was done so far.
    """

    rehash: Rehash = row_hashes
    counts: ReduceCounts = field(default_factory=ReduceCounts)
    _carried: pa.RecordBatch | None = None

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The winners of all keys but the last one, which may go on in the next batch.

        ``rows`` has at least the columns `ROWS`, is sorted by `SORT_COLUMNS`, and comes after all rows fed before.
        """
        if rows.num_rows == 0:
            return rows
        self.counts.read += rows.num_rows
        self.counts.read_hash = (self.counts.read_hash + _hash_of(rows)) % _MODULUS
        if self._carried is not None:
            rows = concat([self._carried, rows])
        last_key = int(run_starts(rows, ("key",)).nonzero()[0][-1])
        self._carried = self._keep_open(rows.slice(last_key))
        return self._settle(rows.slice(0, last_key), None)

    def finish(self) -> pa.RecordBatch:
        """The winner of the last key; no rows when nothing was fed."""
        carried, self._carried = self._carried, None
        return pa.RecordBatch.from_pylist([], schema=ROWS) if carried is None else self._settle(carried, None)

    def _keep_open(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Of one key's rows, those that can still matter: the best of all, and the open clock's last one."""
        if rows.num_rows <= 2:
            return rows
        best = find_winners(rows)
        clock_start = int(run_starts(rows, _CLOCK_COLUMNS).nonzero()[0][-1])
        timed = rows.column("append_timed").to_numpy(zero_copy_only=False)[clock_start:].nonzero()[0] + clock_start
        if timed.size == 0 or timed[-1] == best.indices[0]:
            return self._settle(rows, best)
        times = rows.column("time").to_numpy()
        greatest = times[timed].max()
        kept = np.array([best.indices[0], timed[-1]])
        kept_times = np.array([best.times[0], greatest])
        order = kept.argsort()
        raised = kept_times != times[kept]
        return self._settle(rows, Winners(kept[order], kept_times[order], raised[order]))

    def _settle(self, rows: pa.RecordBatch, winners: Winners | None) -> pa.RecordBatch:
        """Take the winners out of ``rows`` and account for all the others."""
        winners = find_winners(rows) if winners is None else winners
        if winners.indices.size == rows.num_rows and not winners.raised.any():
            return rows
        kept = take(rows, winners.indices)
        counts, before = self.counts, _hash_of(kept)
        counts.superseded += rows.num_rows - kept.num_rows
        counts.superseded_hash = (counts.superseded_hash + _hash_of(rows) - before) % _MODULUS
        if winners.raised.any():
            kept = raise_times(kept, winners, self.rehash)
            counts.raised += int(winners.raised.sum())
            counts.raised_hash = (counts.raised_hash + _hash_of(kept) - before) % _MODULUS
        return kept


def find_winners(rows: pa.RecordBatch) -> Winners:
    """Each key's winner among rows sorted by `SORT_COLUMNS`."""
    times = rows.column("time").to_numpy()
    key_starts = run_starts(rows, ("key",))
    if key_starts.all():
        return Winners(np.arange(rows.num_rows), times, np.zeros(rows.num_rows, dtype=np.bool_))
    groups = np.cumsum(key_starts) - 1
    alone = np.bincount(groups)[groups] == 1
    crowded = (~alone).nonzero()[0]
    won, effective = _winners_of_crowded(take(rows, crowded))
    indices = np.concatenate([alone.nonzero()[0], crowded[won]])
    winning_times = np.concatenate([times[alone], effective])
    order = indices.argsort(kind="stable")
    indices, winning_times = indices[order], winning_times[order]
    return Winners(indices, winning_times, winning_times != times[indices])


def _winners_of_crowded(rows: pa.RecordBatch) -> tuple[Ints, Ints]:
    """The winners of keys that have several rows: their indices and their times after R6."""
    count = np.arange(rows.num_rows)
    times = rows.column("time").to_numpy()
    timed = rows.column("append_timed").to_numpy(zero_copy_only=False)
    clock_starts = run_starts(rows, _CLOCK_COLUMNS)
    clocks, first = np.cumsum(clock_starts) - 1, clock_starts.nonzero()[0]
    greatest = np.maximum.reduceat(np.where(timed, times, _NEVER), first)
    last_timed = np.maximum.reduceat(np.where(timed, count, -1), first)
    effective = np.where(timed, greatest[clocks], times)
    candidates = (~timed | (count == last_timed[clocks])).nonzero()[0]
    groups = np.cumsum(run_starts(rows, ("key",)))
    origins = np.cumsum(run_starts(rows, ("key", "origin")))
    # Rows are in (incarnation, partition, offset) order within an origin, so their index stands for these three.
    order = np.lexsort((candidates, timed[candidates], origins[candidates], effective[candidates], groups[candidates]))
    ordered = candidates[order]
    last_of_group = np.append(groups[ordered][1:] != groups[ordered][:-1], True)
    winners = ordered[last_of_group]
    return winners, effective[winners]


def raise_times(kept: pa.RecordBatch, winners: Winners, rehash: Rehash) -> pa.RecordBatch:
    """The winning rows with the times that R6 gives them, and new hashes where a time changed."""
    raised = replaced(kept, "time", pa.array(winners.times))
    hashes = kept.column("hash").to_numpy().copy()
    changed = winners.raised.nonzero()[0]
    hashes[changed] = rehash(take(raised, changed)).view(np.int64)
    return replaced(raised, "hash", pa.array(hashes))


def sort_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in the order of `SORT_COLUMNS`."""
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in SORT_COLUMNS])
    return rows.take(order)


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
