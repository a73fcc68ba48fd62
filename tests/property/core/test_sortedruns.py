"""Merging sorted runs is reducing all their rows, sorted, to winners: same rows, same account, and bounded memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.arrow import concat
from anew.core.merge import Cell, merge_all
from anew.core.reduce import HELD, WinnerReducer, sort_rows
from anew.core.rows import ROWS
from anew.core.sortedruns import RunMerger, lower_bounds, merge_disjoint
from anew.core.stamp import Stamp
from tests.property.core.histories import MODEST, ORIGINS, histories, interleavings, rows_of

_KIND: Any = pa.field("kind", pa.int8(), nullable=False)
_HELD: Any = pa.field(HELD, pa.bool_(), nullable=False)
_BASE, _FEED = 0, 1
_SIZES = st.lists(st.sampled_from((1, 2, 3, 7, 20, 100)), min_size=1, max_size=4)
_PREFIXES = (b"", b"\x00", b"user-", b"user-000000000000-")
_KEYS = st.builds(lambda prefix, rest: prefix + rest, st.sampled_from(_PREFIXES), st.binary(max_size=9))

Keyed = list[tuple[bytes, Cell]]


@dataclass(frozen=True, slots=True)
class Runs:
    """Base runs and a feed run, each sorted, in batches."""

    base: list[list[pa.RecordBatch]]
    feed: list[pa.RecordBatch]
    schema: pa.Schema

    @property
    def union(self) -> pa.RecordBatch:
        """All rows as the reducer wants them; of equal stamps the base row first."""
        empty = pa.RecordBatch.from_pylist([], schema=self.schema)
        return sort_rows(concat([empty, *(batch for run in self.base for batch in run), *self.feed]))


def _batches(rows: pa.RecordBatch, sizes: list[int]) -> list[pa.RecordBatch]:
    """The rows in batches of these sizes, the last again and again, with empty batches among them."""
    found, at = [rows.slice(0, 0)], 0
    while at < rows.num_rows:
        size = sizes[min(len(found) - 1, len(sizes) - 1)]
        found.append(rows.slice(at, size))
        at += size
    return [*found, rows.slice(0, 0)]


def _run_of(cells: Keyed, kind: int, schema: pa.Schema) -> pa.RecordBatch:
    """The cells as sorted rows with the columns of ``schema``."""
    rows = sort_rows(rows_of(cells))
    extra = {"kind": pa.array(np.full(rows.num_rows, kind, np.int8)), HELD: pa.array([kind == _BASE] * rows.num_rows)}
    columns: list[Any] = [*rows.columns, *(extra[name] for name in schema.names if name in extra)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@st.composite
def _key_records(draw: st.DrawFn) -> tuple[Cell | None, list[Cell]]:
    """A key's base row, if there is one, and its feed records: what the base has not, or some that it has as well."""
    history = draw(histories())
    cuts = [draw(st.integers(0, len(feed))) for feed in history.feeds]
    folded = [feed[:cut] for feed, cut in zip(history.feeds, cuts, strict=True)]
    base = merge_all(draw(interleavings([history.batch, *folded])))
    replayed = draw(st.integers(0, 1))
    return base, [
        cell for feed, cut in zip(history.feeds, cuts, strict=True) for cell in feed[max(cut - replayed, 0) :]
    ]


@st.composite
def sorted_runs(draw: st.DrawFn) -> Runs:
    """One to three base runs with disjoint keys and a feed run; most keys may have a base row and nothing else."""
    schema = pa.schema([*ROWS, _KIND, _HELD] if draw(st.booleans()) else [*ROWS, _KIND])
    base: list[Keyed] = [[] for _ in range(draw(st.integers(1, 3)))]
    feed: Keyed = []
    records = draw(st.dictionaries(_KEYS, _key_records(), max_size=6))
    for key, (held, changes) in records.items():
        if held is not None:
            base[draw(st.integers(0, len(base) - 1))].append((key, held))
        feed += [(key, cell) for cell in changes]
    for number in range(draw(st.integers(0, 80))):
        key = _PREFIXES[number % 4] + b"%c%d" % (number * 3 % 256, number)
        if key not in records:
            cell = Cell(Stamp(7, ORIGINS[0], True, 1, 0, number), b"quiet %d" % number, 1)
            base[number * 7 % 5 % len(base)].append((key, cell))
    sizes = [draw(_SIZES) for _ in range(len(base) + 1)]
    return Runs(
        [_batches(_run_of(cells, _BASE, schema), size) for cells, size in zip(base, sizes, strict=False)],
        _batches(_run_of(feed, _FEED, schema), sizes[-1]),
        schema,
    )


def _merged(runs: Runs) -> tuple[pa.RecordBatch, RunMerger]:
    """What comes out, as one batch."""
    merger = RunMerger()
    out = list(merger.merge([iter(run) for run in runs.base], iter(runs.feed), runs.schema))
    assert all(batch.num_rows for batch in out)
    return concat([pa.RecordBatch.from_pylist([], schema=runs.schema), *out]), merger


@pytest.mark.case("rules:R6", "rules:R19")
@MODEST
@given(sorted_runs())
def test_merging_runs_is_reducing_all_their_rows(runs: Runs) -> None:
    """Rows, order, raised times, hashes and the whole account are those of one reducer over all rows, sorted."""
    found, merger = _merged(runs)
    reducer = WinnerReducer()
    expected = reducer.finish(runs.union)
    assert found.to_pylist() == expected.to_pylist()
    assert found.schema == runs.schema
    assert merger.counts == reducer.counts


@MODEST
@given(sorted_runs().filter(lambda runs: HELD in runs.schema.names))
def test_a_winner_tells_whether_the_base_held_its_key(runs: Runs) -> None:
    """A winner is marked as held exactly where a base run has its key, whichever record wins."""
    found, _ = _merged(runs)
    in_base = {key for run in runs.base for batch in run for key in batch.column("key").to_pylist()}
    assert found.column(HELD).to_pylist() == [key in in_base for key in found.column("key").to_pylist()]


@MODEST
@given(sorted_runs())
def test_disjoint_runs_become_one(runs: Runs) -> None:
    """All rows of the base runs come out once, in key order."""
    found = [row for batch in merge_disjoint([iter(run) for run in runs.base]) for row in batch.to_pylist()]
    assert found == sorted((row for run in runs.base for b in run for row in b.to_pylist()), key=lambda row: row["key"])


@MODEST
@given(st.sets(_KEYS, max_size=40), st.sets(_KEYS, max_size=40), st.integers(0, 3))
def test_lower_bounds_are_those_of_bisection(keys: set[bytes], wanted: set[bytes], skipped: int) -> None:
    """Each wanted key's place among sorted keys is what bisection finds, also in a slice of a column."""
    ascending = sorted(keys)
    column = pa.array([b"\xff", *ascending, b"\x00"], pa.binary())[1:-1][min(skipped, len(keys)) :]
    rest = ascending[skipped:]
    found = lower_bounds(column, pa.array(sorted(wanted), pa.binary()))
    assert found.tolist() == [bisect_left(rest, key) for key in sorted(wanted)]


_HOT_ROWS = 1_000


def _hot_feed(count: int, seen: list[tuple[int, int]], base_read: list[int]) -> Iterator[pa.RecordBatch]:
    """Updates of one key; at each read: the bytes that Arrow holds and how many base batches were read."""
    for number in range(count):
        seen.append((pa.total_allocated_bytes(), len(base_read)))
        offsets = range(number * _HOT_ROWS, (number + 1) * _HOT_ROWS)
        stamps = [Stamp(1_000_000 + at - 5_000 * (at % 7 == 3), ORIGINS[1], True, 1, 0, at) for at in offsets]
        rows = rows_of([(b"key-500", Cell(stamp, b"x" * 100, 1)) for stamp in stamps])
        yield rows


def _lazy_base(numbers: range, read: list[int]) -> Iterator[pa.RecordBatch]:
    """A base run that notes each batch that is read; the hot key's own record comes after all its updates."""
    for first in range(numbers.start, numbers.stop, 100):
        read.append(first)
        some = range(first, min(first + 100, numbers.stop))[:: numbers.step]
        yield rows_of([(b"key-%03d" % n, Cell(Stamp(5, ORIGINS[1], True, 2, 0, n), b"y" * 100, 1)) for n in some])


@pytest.mark.case("rules:R6")
def test_a_hot_key_is_not_gathered() -> None:
    """Of a key with 60,000 updates in 60 batches no more is held than after ten, and the base runs wait meanwhile."""
    seen: list[tuple[int, int]] = []
    base_read: list[int] = []
    base = [_lazy_base(range(0, 1000, 2), base_read), _lazy_base(range(1, 1000, 2), base_read)]
    merger = RunMerger()
    winners = {
        key: offset
        for batch in merger.merge(base, _hot_feed(60, seen, base_read), ROWS)
        for key, offset in zip(batch.column("key").to_pylist(), batch.column("offset").to_pylist(), strict=True)
    }
    assert winners.pop(b"key-500") == 60 * _HOT_ROWS - 1
    assert len(winners) == 999
    held = [held for held, _ in seen]
    assert max(held[10:]) <= max(held[2:10]) + 10_000
    assert {read for _, read in seen[2:]} == {seen[2][1]}
    assert merger.counts.superseded == 60 * _HOT_ROWS
