"""Portions become as few batches as there can be, and each batch moves just the positions of what is in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.feed import FeedPartition
from anew.core.rows import ROWS
from anew.storage import portions as portions_module
from anew.storage.portions import Portion, batches

FEED = "f1"


def portion(partition: int, first: int, count: int, value_bytes: int = 1, gap: int = 3) -> Portion:
    """Records at every second offset of the log; the position afterwards lies a gap behind the last.

    Their stamps say nothing of that: they are as those of a job's records, batch and sequence.
    """
    columns: dict[str, list[Any]] = {
        "key": [b"k"] * count,
        "value": [b"v" * value_bytes] * count,
        "schema_id": [1] * count,
        "time": [7] * count,
        "origin": [b"o"] * count,
        "append_timed": [False] * count,
        "incarnation": [1] * count,
        "feed_partition": [partition] * count,
        "offset": [10_000 - number for number in range(count)],
        "hash": [0] * count,
    }
    rows = pa.RecordBatch.from_pydict({name: columns[name] for name in ROWS.names}, schema=ROWS)
    offsets = np.array([first + 2 * number for number in range(count)])
    return Portion(FeedPartition(FEED, partition), rows, offsets, first + 2 * count + gap)


def test_what_fits_is_one_batch() -> None:
    """Portions of several feed partitions are written together, with the positions of all."""
    given_portions = [portion(0, 10, 2), portion(3, 0, 1), portion(1, 5, 4)]
    (batch,) = batches(given_portions)
    assert batch.rows.num_rows == 7
    assert batch.moved == {one.at: one.next_offset for one in given_portions}
    assert [batch.place(row) for row in (0, 1, 2, 3, 6)] == [
        (FeedPartition(FEED, 0), 10),
        (FeedPartition(FEED, 0), 12),
        (FeedPartition(FEED, 3), 0),
        (FeedPartition(FEED, 1), 5),
        (FeedPartition(FEED, 1), 11),
    ]


def test_nothing_is_no_batch() -> None:
    """Without portions nothing is written."""
    assert list(batches([])) == []


def test_a_batch_has_so_many_bytes() -> None:
    """Large values are cut by their bytes, one by one if need be."""
    large = portions_module.BATCH_BYTES * 2 // 3
    found = list(batches([portion(0, 0, 2, large), portion(1, 0, 1, large)]))
    assert [batch.rows.num_rows for batch in found] == [1, 1, 1]
    assert [batch.moved for batch in found] == [
        {FeedPartition(FEED, 0): 1},
        {FeedPartition(FEED, 0): 7},
        {FeedPartition(FEED, 1): 5},
    ]


@pytest.mark.case("rules:R5")
@given(counts=st.lists(st.integers(1, 9), max_size=6), most=st.integers(1, 12))
def test_positions_move_with_what_they_are_about(counts: list[int], most: int) -> None:
    """Wherever batches are cut: a position says after each just what has been written of its feed partition."""
    given_portions = [portion(number, 100 * number, count) for number, count in enumerate(counts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portions_module, "BATCH_RECORDS", most)
        found = list(batches(given_portions))
    assert len(found) == -(-sum(counts) // most)
    written: dict[FeedPartition, list[int]] = {}
    reached: dict[FeedPartition, int] = {}
    for batch in found:
        there = [batch.place(row) for row in range(batch.rows.num_rows)]
        assert [offset for _, offset in there] == batch.offsets.tolist()
        assert [at.partition for at, _ in there] == batch.rows.column("feed_partition").to_pylist()
        for at, offset in there:
            written.setdefault(at, []).append(offset)
        assert set(batch.moved) == {at for at, _ in there}
        reached |= batch.moved
        for at, _, offsets_in_log, after in given_portions:
            offsets = offsets_in_log.tolist()
            begun = written.get(at, [])
            if begun == offsets:
                assert reached[at] == after
            elif begun:
                assert begun == offsets[: len(begun)]
                assert reached[at] == begun[-1] + 1
            else:
                assert at not in reached
    assert reached == {one.at: one.next_offset for one in given_portions}
