"""The merge of sorted runs: rows of base files, already sorted, and the records of feeds that change some of them.

Rows and account are those of one `WinnerReducer` over all rows sorted by `SORT_COLUMNS`, a base row before its equals.
But only keys that a feed names go through the reducer; all other base rows pass, at most by one Arrow take per batch.

A key's base row joins its feed rows at its sorted place, before any of them is reduced: the reducer keeps the last
record only of the append clock that may go on, so that it must meet no record of a clock that it has left (rule R6).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.arrow import concat, take
from anew.core.hashing import row_hashes
from anew.core.reduce import ReduceCounts, Rehash, WinnerReducer, run_starts, sort_rows
from anew.core.rows import SORT_COLUMNS
from anew.core.sorting import key_windows, shared_prefix, window_order

Ints = npt.NDArray[np.int64]

_DENSE = 0.25
"""Feed keys per base row above which it is cheaper to sort all rows than to search for each feed key."""

_NO_KEY: pa.Array[Any] = pa.array([], pa.binary())


@dataclass(slots=True)
class RunMerger:
    """Merges sorted runs of base rows with a sorted run of feed rows, to one winner per key.

    Held in memory: at most one batch of each run, the batch that came out last, and two rows of a key whose rows go on
    in the next batch, however many rows a key has.

    Attributes:
        rehash: The hashes of rows whose time was raised; the default wants uncompressed values.
        counts: What was done so far; base rows that pass count as read.
    """

    rehash: Rehash = row_hashes
    counts: ReduceCounts = field(default_factory=ReduceCounts)

    def merge(
        self, base: Sequence[Iterator[pa.RecordBatch]], feed: Iterator[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The winners of all keys in key order, in batches of any size but 0; `counts` is whole at the end.

        Args:
            base: Runs whose keys ascend strictly; no key is in two of them.
            feed: Rows in the order of `SORT_COLUMNS`, any number per key.
            schema: The columns that come out: those of `ROWS` and any others. All batches have them, in any order.
                Of a column `anew.core.reduce.HELD` each winner has the OR over its key's rows.
        """
        conformed = partial(_conformed, schema)
        base_run = _Run(merge_disjoint([map(conformed, run) for run in base]))
        joined = _Join(base_run, _Run(map(conformed, feed)), WinnerReducer(self.rehash, self.counts))
        while (rows := joined.next_rows()) is not None:
            if rows.num_rows:
                yield rows


def merge_disjoint(runs: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The rows of runs whose keys ascend strictly, in key order; no key is in two of the runs.

    Held in memory: at most one batch of each run, and the batch that came out last.
    """
    opened = [_Run(run) for run in runs]
    while (rows := _next_of_disjoint(opened)) is not None:
        yield rows


def lower_bounds(keys: pa.Array[Any], wanted: pa.Array[Any]) -> Ints:
    """How many of ``keys`` lie below each of ``wanted``, shape (wanted,); both are ascending binary columns."""
    if len(keys) == 0 or len(wanted) == 0:
        return np.zeros(len(wanted), dtype=np.int64)
    shared = shared_prefix([keys, wanted])
    windows, wanted_windows = key_windows(keys, shared), key_windows(wanted, shared)
    places = windows.searchsorted(wanted_windows, side="left")
    counts = windows.searchsorted(wanted_windows, side="right") - places
    tied = counts.nonzero()[0]
    places[tied] += _below_among(keys, places[tied], counts[tied], wanted.take(tied))
    return places


def _below_among(keys: pa.Array[Any], first: Ints, counts: Ints, wanted: pa.Array[Any]) -> Ints:
    """How many of the ``counts`` keys from ``first`` on lie below each wanted one: all binary searches at once."""
    below = np.zeros(len(wanted), dtype=np.int64)
    step = 1 << int(counts.max(initial=0)).bit_length() >> 1
    while step:
        inside = below + step <= counts
        probed = keys.take(first + np.where(inside, below + step - 1, 0))
        below += step * (inside & pc.less(probed, wanted).to_numpy(zero_copy_only=False))
        step >>= 1
    return below


def _sorted_by_key(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of parts whose keys ascend."""
    rows = concat(parts)
    keys = rows.column("key")
    windows = key_windows(keys, shared_prefix([part.column("key") for part in parts]))
    order, tied = window_order(windows)
    order[tied] = order[tied][pc.sort_indices(keys.take(order[tied])).to_numpy()]
    return take(rows, order)


@dataclass(slots=True)
class _Run:
    """A run that is read one batch at a time."""

    batches: Iterator[pa.RecordBatch]
    _front: pa.RecordBatch | None = None

    def front(self) -> pa.RecordBatch | None:
        """What is left of the batch at hand, or the next batch that has rows; None at the end."""
        while self._front is None:
            batch = next(self.batches, None)
            if batch is None:
                return None
            self._front = batch if batch.num_rows else None
        return self._front

    def pop(self, count: int) -> pa.RecordBatch:
        """Take away the first ``count`` rows of the front. Nothing keeps a batch of which all rows are taken."""
        assert self._front is not None
        popped, left = self._front.slice(0, count), self._front.num_rows - count
        self._front = self._front.slice(count) if left else None
        return popped


@dataclass(frozen=True, slots=True)
class _Piece:
    """Base rows and feed rows that come after those of earlier pieces.

    Attributes:
        closed: Whether no later piece has a key of this one. Otherwise the key of the last feed row may go on, and no
            base row comes after that row in the order of `SORT_COLUMNS`.
    """

    base: pa.RecordBatch
    feed: pa.RecordBatch
    closed: bool


@dataclass(slots=True)
class _Join:
    """Merges base rows and feed rows, each one run, piece by piece."""

    base: _Run
    feed: _Run
    reducer: WinnerReducer
    _open_key: pa.Array[Any] = field(default_factory=lambda: _NO_KEY)
    """The key whose rows the reducer carries: one or none."""

    def next_rows(self) -> pa.RecordBatch | None:
        """The winners of the next piece, maybe none; None at the end."""
        piece = self._next_piece()
        if piece is not None:
            return self._merged(piece)
        if len(self._open_key) == 0:
            return None
        self._open_key = _NO_KEY
        return self.reducer.finish()

    def _next_piece(self) -> _Piece | None:
        """The front of one run and the rows of the other that come before its end."""
        base, feed = self.base.front(), self.feed.front()
        if base is None:
            return None if feed is None else _Piece(feed[:0], self.feed.pop(feed.num_rows), closed=False)
        if feed is None:
            return _Piece(self.base.pop(base.num_rows), base[:0], closed=True)
        last_base, last_feed = _key_at(base, -1), _key_at(feed, -1)
        if last_base < last_feed:
            return _Piece(self.base.pop(base.num_rows), self.feed.pop(_rows_to(feed, last_base)), closed=True)
        count = _rows_below(base, last_feed)
        if _place_at(base, count) <= _place_at(feed, -1):
            count += 1
        return _Piece(self.base.pop(count), self.feed.pop(feed.num_rows), closed=False)

    def _merged(self, piece: _Piece) -> pa.RecordBatch:
        """The winners of a piece, except that of a key that may go on."""
        base, feed_keys = piece.base, piece.feed.column("key")
        if len(feed_keys) == 0 and len(self._open_key) == 0:
            self.reducer.counts.add_read(base.column("hash").to_numpy())
            return base
        keys = _distinct(pa.concat_arrays([self._open_key, feed_keys]))
        self._open_key = _NO_KEY if piece.closed else keys.take([len(keys) - 1])
        if len(keys) > _DENSE * base.num_rows:
            return self._reduced(base, piece)
        places = lower_bounds(base.column("key"), keys)
        named = _found(base.column("key"), keys, places)
        winners = self._reduced(take(base, named), piece)
        passing = np.ones(base.num_rows, dtype=np.bool_)
        passing[named] = False
        self.reducer.counts.add_read(base.column("hash").to_numpy()[passing])
        return _inserted(base, passing, winners, places[: winners.num_rows])

    def _reduced(self, base: pa.RecordBatch, piece: _Piece) -> pa.RecordBatch:
        """The winners among the reducer's open key, a piece's feed rows and some of its base rows."""
        rows = sort_rows(concat([base, piece.feed])) if base.num_rows else piece.feed
        return self.reducer.finish(rows) if piece.closed else self.reducer.feed(rows)


def _next_of_disjoint(runs: Sequence[_Run]) -> pa.RecordBatch | None:
    """The rows of all fronts up to the first front's end, sorted."""
    fronts = [(run, front) for run in runs if (front := run.front()) is not None]
    if not fronts:
        return None
    end = min(_key_at(front, -1) for _, front in fronts)
    counted = [(run, _rows_to(front, end)) for run, front in fronts]
    parts = [run.pop(count) for run, count in counted if count]
    return parts[0] if len(parts) == 1 else _sorted_by_key(parts)


def _inserted(
    base: pa.RecordBatch, passing: npt.NDArray[np.bool_], winners: pa.RecordBatch, places: Ints
) -> pa.RecordBatch:
    """The base rows that pass, with each winner put in before the base row at its place."""
    count = base.num_rows
    order = np.insert(np.arange(count), places, np.arange(count, count + winners.num_rows))
    kept = np.append(passing, np.ones(winners.num_rows, dtype=np.bool_))
    # No index is out of range, as they were made here; without the check the take is a quarter faster.
    inserted: pa.RecordBatch = pc.take(concat([base, winners]), pa.array(order[kept[order]]), boundscheck=False)
    return inserted


def _found(keys: pa.Array[Any], wanted: pa.Array[Any], places: Ints) -> Ints:
    """Of the places of wanted keys among ``keys`` (`lower_bounds`), those where the key itself is."""
    inside = np.minimum(places, len(keys) - 1)
    equal = pc.equal(keys.take(inside), wanted).to_numpy(zero_copy_only=False)
    found: Ints = places[equal & (inside == places)]
    return found


def _distinct(keys: pa.Array[Any]) -> pa.Array[Any]:
    """Ascending keys without repetition."""
    starts = run_starts(pa.RecordBatch.from_arrays([keys], ["key"]), ("key",))
    return keys.take(starts.nonzero()[0])


def _conformed(schema: pa.Schema, rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows if rows.schema.equals(schema) else rows.select(schema.names).cast(schema)


def _key_at(rows: pa.RecordBatch, index: int) -> bytes:
    key: bytes = rows.column("key")[index].as_py()
    return key


def _place_at(rows: pa.RecordBatch, index: int) -> tuple[Any, ...]:
    return tuple(rows.column(name)[index].as_py() for name in SORT_COLUMNS)


def _rows_below(rows: pa.RecordBatch, key: bytes) -> int:
    keys: Any = rows.column("key")
    return bisect_left(range(len(keys)), key, key=lambda index: keys[index].as_py())


def _rows_to(rows: pa.RecordBatch, key: bytes) -> int:
    keys: Any = rows.column("key")
    return bisect_right(range(len(keys)), key, key=lambda index: keys[index].as_py())
