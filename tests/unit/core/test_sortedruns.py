"""Merging sorted base runs with a feed, case by case."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from anew.core.admission import with_hashes
from anew.core.hashing import total
from anew.core.reduce import HELD
from anew.core.rows import ROWS
from anew.core.sortedruns import RunMerger
from anew.core.stamp import fabric_origin

_A, _B = fabric_origin("dc-a").encoded, fabric_origin("dc-b").encoded
_HELD: Any = pa.field(HELD, pa.bool_(), nullable=False)
_WITH_HELD = pa.schema([*ROWS, _HELD])

Written = tuple[bytes, int, bytes, int]
"""Key, time in ms, origin and offset of an append-timed record."""


def _rows(*written: Written, value: bytes | None = b"value") -> pa.RecordBatch:
    rows = [
        {
            "key": key,
            "value": value,
            "schema_id": 0 if value is None else 1,
            "time": time_ms,
            "origin": origin,
            "append_timed": True,
            "incarnation": 1,
            "feed_partition": 0,
            "offset": offset,
            "hash": 0,
        }
        for key, time_ms, origin, offset in written
    ]
    return with_hashes(pa.RecordBatch.from_pylist(rows, schema=ROWS))


def _held(rows: pa.RecordBatch, *, held: bool) -> pa.RecordBatch:
    return rows.append_column(_HELD, pa.array([held] * rows.num_rows))


def _out(
    merger: RunMerger, base: list[pa.RecordBatch], feed: list[pa.RecordBatch], schema: pa.Schema = ROWS
) -> list[pa.RecordBatch]:
    return list(merger.merge([iter(base)], iter(feed), schema))


def _stamps(batches: list[pa.RecordBatch]) -> list[Written]:
    return [(row["key"], row["time"], row["origin"], row["offset"]) for out in batches for row in out.to_pylist()]


def test_a_base_batch_that_no_feed_touches_passes_untouched() -> None:
    """A base batch between two feed keys comes out as it is, with the very same memory, and is counted."""
    base = _rows(*((b"m%02d" % n, 5, _A, n) for n in range(50)))
    merger = RunMerger()
    out = _out(merger, [base], [_rows((b"z", 9, _A, 99))])
    values: list[Any] = [batch.column("value").buffers()[2] for batch in (base, out[0])]
    assert out[0].equals(base)
    assert values[0].address == values[1].address
    assert _stamps(out[1:]) == [(b"z", 9, _A, 99)]
    assert (merger.counts.read, merger.counts.superseded) == (51, 0)
    assert merger.counts.read_hash == sum(total(batch.column("hash").to_numpy()) for batch in out) % (1 << 64)


@pytest.mark.case("rules:R6")
def test_feed_rows_are_not_reduced_before_the_base_row_joined() -> None:
    """A record that owes its time to the base row wins with it over a newer record of another feed."""
    feed = _rows((b"k", 9, _A, 2), (b"k", 10, _B, 1))
    merger = RunMerger()
    assert _stamps(_out(merger, [_rows((b"k", 20, _A, 1))], [feed])) == [(b"k", 20, _A, 2)]
    assert (merger.counts.superseded, merger.counts.raised) == (2, 1)


@pytest.mark.case("rules:R6")
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_base_row_waits_for_its_place_among_the_feed_rows(size: int) -> None:
    """A base row whose clock sorts between those of feed batches raises the later record of that clock."""
    feed = _rows((b"k", 50, _A, 3), (b"k", 10, _B, 8), (b"k", 11, _B, 9))
    base = _rows((b"k", 60, _B, 2), (b"l", 1, _A, 1))
    out = _out(RunMerger(), [base], [feed.slice(at, size) for at in range(0, 3, size)])
    assert _stamps(out) == [(b"k", 60, _B, 9), (b"l", 1, _A, 1)]


@pytest.mark.parametrize("size", [1, 4])
def test_a_delete_tells_whether_the_base_held_its_key(size: int) -> None:
    """Deletes of a key of the base and of one that the base never had differ in being held."""
    base = _held(_rows((b"a", 1, _A, 1), (b"c", 1, _A, 2)), held=True)
    feed = _held(_rows((b"b", 2, _A, 3), (b"b", 3, _A, 4), (b"c", 2, _A, 5), (b"c", 3, _A, 6), value=None), held=False)
    batches = [feed.slice(at, size) for at in range(0, 4, size)]
    rows = [row for out in _out(RunMerger(), [base], batches, _WITH_HELD) for row in out.to_pylist()]
    assert [(row["key"], row["value"], row["offset"], row[HELD]) for row in rows] == [
        (b"a", b"value", 1, True),
        (b"b", None, 4, False),
        (b"c", None, 6, True),
    ]


def test_columns_come_out_in_the_order_asked_for() -> None:
    """Batches whose columns are in another order, or may be null, are brought to the schema that was asked for."""
    names = [*reversed(ROWS.names)]
    base = pa.RecordBatch.from_pydict({n: _rows((b"a", 1, _A, 1)).column(n) for n in names})
    out = _out(RunMerger(), [base], [_rows((b"a", 2, _A, 2))])
    assert [batch.schema for batch in out] == [ROWS]
    assert _stamps(out) == [(b"a", 2, _A, 2)]


@pytest.mark.parametrize("runs", [0, 1, 3])
def test_runs_without_rows_are_no_batches(runs: int) -> None:
    """Without base runs, or with empty ones, the feed alone comes out; without it nothing, and the account is empty."""
    base = [iter([_rows()]) for _ in range(runs)]
    merger = RunMerger()
    assert list(merger.merge(base, iter([_rows()]), ROWS)) == []
    assert merger.counts == RunMerger().counts
    only_feed = merger.merge([iter([_rows()]) for _ in range(runs)], iter([_rows((b"a", 1, _A, 1))]), ROWS)
    assert _stamps(list(only_feed)) == [(b"a", 1, _A, 1)]
