"""Rows packed into blocks and merged again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anew.core.blocks import BLOCKS, block_bytes, cut, merge_blocks, runs_of, unpack
from anew.core.reduce import sort_rows
from anew.core.rows import ROWS
from anew.testing.builders import ORIGIN


def _rows(keys: list[bytes], partition: int = 0, first: int = 0, value: bytes = b"v") -> pa.RecordBatch:
    count = len(keys)
    columns: dict[str, Any] = {
        "key": keys,
        "value": [None if number % 5 == 4 else value for number in range(count)],
        "schema_id": np.ones(count, np.int32),
        "time": np.arange(count),
        "origin": [ORIGIN] * count,
        "append_timed": [True] * count,
        "incarnation": np.ones(count, np.int32),
        "feed_partition": np.full(count, partition, np.int32),
        "offset": np.arange(first, first + count),
        "hash": np.arange(count) * 7,
    }
    return pa.RecordBatch.from_pydict(columns, schema=ROWS)


def _unpacked(blocks: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [unpack(block["constants"], block["rows"]) for block in blocks.to_pylist()]


def test_a_block_holds_its_destinations_rows_in_order() -> None:
    """Each destination gets exactly its rows, sorted, in blocks whose first row is named; columns come back whole."""
    rows = _rows([b"%03d" % (n * 37 % 101) for n in range(100)])
    places = np.array([n % 3 * 2 for n in range(100)], np.int32)
    blocks = cut(rows, places, size_bytes=200)
    assert blocks.schema == BLOCKS
    assert blocks.num_rows > 12
    for place in (0, 2, 4):
        mine = blocks.filter(pa.array(blocks.column("place").to_numpy() == place))
        found = _unpacked(mine)
        expected = sort_rows(rows.take((places == place).nonzero()[0]))
        assert pa.Table.from_batches(found).to_pylist() == expected.to_pylist()
        assert mine.column("key").to_pylist() == [batch.column("key")[0].as_py() for batch in found]
        assert all(batch.schema == ROWS for batch in found)


def test_what_all_rows_share_is_packed_once() -> None:
    """Columns that are the same in all rows cost nothing per row."""
    keys = [b"%06d" % n for n in range(1_000)]
    alike = cut(_rows(keys), np.zeros(1_000, np.int32), 1 << 20)
    unlike = _rows(keys).set_column(
        ROWS.get_field_index("incarnation"), ROWS.field("incarnation"), pa.array(np.arange(1_000, dtype=np.int32))
    )
    grown = cut(unlike, np.zeros(1_000, np.int32), 1 << 20).nbytes - alike.nbytes
    assert 3_000 < grown < 5_000
    large = cut(_rows([b"a", b"b"], value=b"v" * 100_000), np.zeros(2, np.int32), 1 << 20)
    assert large.column("constants").nbytes < 10_000


def test_a_merge_gives_all_rows_in_order() -> None:
    """Runs of several feed partitions, each cut into blocks, come out as one sorted sequence with nothing lost."""
    random = np.random.default_rng(1)
    runs = [_rows([b"%03d" % n for n in random.integers(0, 300, 400)], partition) for partition in range(4)]
    blocks = [batch for run in runs for batch in _unpacked(cut(run, np.zeros(400, np.int32), 1_000))]
    blocks.sort(key=lambda batch: tuple(batch.column(name)[0].as_py() for name in ("key", "feed_partition", "offset")))
    merged = pa.Table.from_batches(list(merge_blocks(blocks))).to_pylist()
    everything = pa.Table.from_batches(runs).combine_chunks().to_batches()[0]
    assert merged == sort_rows(everything).to_pylist()


@pytest.mark.case("stores:C7")
def test_a_merge_holds_what_overlaps_and_no_more() -> None:
    """Of one key's updates, however many, those that came are given out while the others are still to come."""
    taken = 0

    def blocks() -> Any:
        nonlocal taken
        for number in range(400):
            taken += 1
            yield _rows([b"hot"] * 1_000, first=number * 1_000, value=b"v" * 100)

    merged = merge_blocks(blocks())
    out, most = 0, 0
    for batch in merged:
        out += batch.num_rows
        most = max(most, taken * 1_000 - out)
    assert out == 400_000
    assert most < 60_000


def test_runs_are_of_some_size_and_never_empty() -> None:
    """Small batches are joined, those without rows vanish, and no row is lost."""
    small = _rows([b"a", b"b"])
    assert [run.num_rows for run in runs_of([small[:0], small, small[:0], small])] == [4]
    assert list(runs_of([small[:0]])) == []
    large = _rows([b"k"] * 10_000, value=b"v" * 1_000)
    assert [run.num_rows for run in runs_of([large, large, large])] == [20_000, 10_000]


def test_blocks_shrink_when_many_runs_overlap() -> None:
    """One block of each run fits into memory, within bounds on the size of a block."""
    assert block_bytes(1) == block_bytes(100) > block_bytes(1_000) > block_bytes(10_000) == block_bytes(1_000_000)
    assert block_bytes(1_000) * 1_000 <= 64 << 20
