"""The merge over Arrow columns is the merge of records, in batches of any size, and its account balances."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.admission import with_hashes
from anew.core.arrow import concat
from anew.core.hashing import total
from anew.core.merge import Cell, merge_all
from anew.core.reduce import HELD, WinnerReducer, find_winners, sort_rows
from anew.core.rows import ROWS
from anew.core.stamp import fabric_origin
from anew.testing.builders import cells_of
from tests.property.core.histories import MODEST, History, histories, rows_of

_ORIGIN = fabric_origin("dc-0").encoded
_MODULUS = 1 << 64


def _reduced(rows: pa.RecordBatch, sizes: list[int]) -> tuple[list[tuple[bytes, Cell]], WinnerReducer, int]:
    """The winners of sorted rows fed in batches of these sizes (the last again and again), and their hash sum."""
    reducer, found, hashes, at = WinnerReducer(), [], 0, 0
    for number in range(rows.num_rows + len(sizes)):
        size = sizes[min(number, len(sizes) - 1)]
        out = reducer.feed(rows.slice(at, size))
        at += size
        found += cells_of(out)
        hashes += total(out.column("hash").to_numpy())
        assert _carried_rows(reducer) <= 2
    out = reducer.finish()
    return [*found, *cells_of(out)], reducer, (hashes + total(out.column("hash").to_numpy())) % _MODULUS


def _carried_rows(reducer: WinnerReducer) -> int:
    return 0 if reducer._carried is None else reducer._carried.num_rows


@pytest.mark.case("rules:R6", "rules:R19")
@MODEST
@given(st.lists(histories(), max_size=5), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_batches_of_any_size_give_the_merge_and_a_balanced_account(keys: list[History], sizes: list[int]) -> None:
    """Winners equal the record-wise merge, and rows and hashes read are superseded, raised or won."""
    cells = [(f"key-{n}".encode(), cell) for n, history in enumerate(keys) for cell in history.records]
    rows = sort_rows(rows_of(cells))
    found, reducer, won_hash = _reduced(rows, sizes)
    expected = {key: merge_all(c for k, c in cells_of(rows) if k == key) for key, _ in cells}
    assert dict(found) == expected
    assert [key for key, _ in found] == sorted(expected)
    counts = reducer.counts
    assert counts.read == rows.num_rows == counts.superseded + len(found)
    assert counts.read_hash == total(rows.column("hash").to_numpy())
    assert (counts.read_hash + counts.raised_hash) % _MODULUS == (counts.superseded_hash + won_hash) % _MODULUS
    assert won_hash == total(rows_of(found).column("hash").to_numpy())


@pytest.mark.case("rules:R6")
@MODEST
@given(st.lists(histories(), min_size=1, max_size=5))
def test_winners_of_one_batch_are_the_merge(keys: list[History]) -> None:
    """Without carrying anything over, the winners' indices and times are those of the record-wise merge."""
    cells = [(f"key-{n}".encode(), cell) for n, history in enumerate(keys) for cell in history.records]
    rows = sort_rows(rows_of(cells))
    if rows.num_rows == 0:
        return
    winners = find_winners(rows)
    own = cells_of(rows)
    for index, time_ms, raised in zip(winners.indices, winners.times, winners.raised, strict=True):
        key, cell = own[int(index)]
        merged = merge_all(c for k, c in own if k == key)
        assert merged is not None
        assert (merged.value, merged.stamp.time_ms) == (cell.value, time_ms)
        assert raised == (cell.stamp.time_ms != time_ms)


@pytest.mark.case("rules:R19")
@MODEST
@given(st.data(), st.lists(histories(), max_size=5), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_the_account_and_what_was_held_do_not_depend_on_batches(
    data: st.DataObject, keys: list[History], sizes: list[int]
) -> None:
    """Batches of any size give the counts of one batch, and a winner is held where any row of its key is."""
    rows = sort_rows(rows_of([(b"key-%d" % n, cell) for n, history in enumerate(keys) for cell in history.records]))
    held = data.draw(st.lists(st.booleans(), min_size=rows.num_rows, max_size=rows.num_rows))
    rows = rows.append_column(HELD, pa.array(held, pa.bool_()))
    reducer, at_once, found, at = WinnerReducer(), WinnerReducer(), [rows.slice(0, 0)], 0
    for number in range(rows.num_rows):
        size = sizes[min(number, len(sizes) - 1)]
        found.append(reducer.feed(rows.slice(at, size)))
        at += size
    last = rows.slice(at) if rows.num_rows else None
    found += [reducer.finish(last)] if rows.num_rows else []
    winners = concat(found)
    assert winners.to_pylist() == at_once.finish(rows).to_pylist()
    assert reducer.counts == at_once.counts
    held_keys = {key for key, some in zip(rows.column("key").to_pylist(), held, strict=True) if some}
    assert winners.column(HELD).to_pylist() == [key in held_keys for key in winners.column("key").to_pylist()]


def _updates(count: int, begin: int, batch: int) -> pa.RecordBatch:
    """Append-timed updates of one key whose clock steps back now and then."""
    offsets = np.arange(begin, begin + batch, dtype=np.int64)
    times = 1_000_000 + offsets - 5_000 * (offsets % 7 == 3)
    values = [b"value %d of %d" % (offset, count) for offset in offsets.tolist()]
    columns = {
        "key": pa.array([b"hot"] * batch, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "schema_id": pa.array(np.ones(batch, dtype=np.int32)),
        "time": pa.array(times),
        "origin": pa.array([_ORIGIN] * batch, pa.binary()),
        "append_timed": pa.array(np.ones(batch, dtype=np.bool_)),
        "incarnation": pa.array(np.ones(batch, dtype=np.int32)),
        "feed_partition": pa.array(np.zeros(batch, dtype=np.int32)),
        "offset": pa.array(offsets),
        "hash": pa.array(np.zeros(batch, dtype=np.int64)),
    }
    return with_hashes(pa.RecordBatch.from_arrays([columns[name] for name in ROWS.names], schema=ROWS))


@pytest.mark.parametrize("count", [1_000, 100_000])
def test_a_hot_key_carries_two_rows_at_most(count: int) -> None:
    """Of a key with 100,000 updates never more than two rows are kept from batch to batch, as with 1,000."""
    reducer, batch = WinnerReducer(), 1_000
    for begin in range(0, count, batch):
        assert reducer.feed(_updates(count, begin, batch)).num_rows == 0
        assert 1 <= _carried_rows(reducer) <= 2
    (winner,) = cells_of(reducer.finish())
    assert winner[1].stamp.offset == count - 1
    assert reducer.counts.superseded == count - 1


def test_nothing_in_is_nothing_out() -> None:
    """Without any row there is no winner, and the account is empty."""
    reducer = WinnerReducer()
    assert reducer.feed(rows_of([])).num_rows == 0
    assert (reducer.finish().num_rows, reducer.finish().schema) == (0, ROWS)
    assert (reducer.counts.read, reducer.counts.read_hash) == (0, 0)
