"""The order that is found by numbers is the order of the columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from anew.core.blocks import cut, merge_blocks, unpack
from anew.core.reduce import sort_rows
from anew.core.rows import ROWS, SORT_COLUMNS
from anew.core.sorting import is_sorted, window_order

_KEYS = st.one_of(
    st.binary(max_size=3),
    st.binary(max_size=12).map(lambda tail: b"a long prefix " + tail),
    st.sampled_from([b"", b"\x00", b"\x00" * 9, b"a", b"a\x00", b"12345678", b"12345678\x00", b"123456789"]),
)
_STAMPS = st.tuples(st.sampled_from([b"\x00", b"\x02dc"]), st.integers(0, 2), st.integers(0, 2), st.integers(0, 9))


def _rows(found: list[tuple[bytes, tuple[bytes, int, int, int]]]) -> pa.RecordBatch:
    fixed: dict[str, Any] = {"value": b"v", "schema_id": 1, "time": 0, "append_timed": False}
    rows = [
        {
            **fixed,
            "key": key,
            "origin": origin,
            "incarnation": incarnation,
            "feed_partition": partition,
            "offset": offset,
            "hash": number,
        }
        for number, (key, (origin, incarnation, partition, offset)) in enumerate(found)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ROWS)


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in SORT_COLUMNS)


@given(st.lists(st.tuples(_KEYS, _STAMPS), max_size=60))
def test_rows_are_sorted_as_tuples_are(found: list[tuple[bytes, tuple[bytes, int, int, int]]]) -> None:
    """Any keys, with common prefixes and zeros at their ends, any stamps; equal rows stay in their order."""
    rows = _rows(found)
    ordered = sort_rows(rows)
    assert ordered.to_pylist() == sorted(rows.to_pylist(), key=_place)
    assert is_sorted(ordered)
    assert is_sorted(rows) == (rows.to_pylist() == sorted(rows.to_pylist(), key=_place))


@given(
    st.lists(st.lists(st.tuples(_KEYS, _STAMPS), min_size=1, max_size=40), min_size=1, max_size=5),
    st.integers(1, 2_000),
    st.integers(1, 3),
)
def test_blocks_lose_nothing(
    runs: list[list[tuple[bytes, tuple[bytes, int, int, int]]]], size_bytes: int, count: int
) -> None:
    """Whatever is cut into blocks for some destinations comes out of their merges: every row once, in order."""
    blocks: list[tuple[int, pa.RecordBatch]] = []
    for run in runs:
        rows = _rows(run)
        places = np.array([len(key) % count for key, _ in run], np.int32)
        packed = cut(rows, places, size_bytes).to_pylist()
        blocks += [(block["place"], unpack(block["constants"], block["rows"])) for block in packed]
    everything = [row for run in runs for row in _rows(run).to_pylist()]
    for place in range(count):
        mine = sorted(
            (rows for at, rows in blocks if at == place), key=lambda rows: _place(rows.slice(0, 1).to_pylist()[0])
        )
        merged = [row for batch in merge_blocks(mine) for row in batch.to_pylist()]
        wanted = [row for row in everything if len(row["key"]) % count == place]
        assert [_place(row) for row in merged] == sorted(map(_place, wanted))
        assert sorted((_place(row), row["hash"]) for row in merged) == sorted(
            (_place(row), row["hash"]) for row in wanted
        )


@given(st.integers(0, 2**32), st.sampled_from((0, 1, 2, 1_000, 70_000)), st.sampled_from((1, 50, 1 << 63)))
@settings(max_examples=30, deadline=None)
def test_windows_are_ordered_stably(seed: int, count: int, most: int) -> None:
    """Few different ones or many, as one and as many as make numpy choose another algorithm."""
    windows = np.random.default_rng(seed).integers(0, most, count, dtype=np.uint64)
    order, tied = window_order(windows)
    assert (order == windows.argsort(kind="stable")).all()
    _, groups, sizes = np.unique(windows[order], return_inverse=True, return_counts=True)
    assert (tied == (sizes[groups] > 1).nonzero()[0]).all()
