"""Rows are put in order as Arrow would do it, only faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anew.segments.tables.order import is_sorted, sort_order, taken
from tests.component.segments_tables.rows import every_type, trips

_KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)),
    (pa.int16(), st.integers(-3, 3)),
    (pa.float64(), st.sampled_from([0.0, -1.5, float("nan"), float("inf"), float("-inf"), 2.0])),
    (pa.float64(), st.sampled_from([0.0, -0.0, 1.0, -3.0, 2.0**62, -(2.0**63), 2.0**63])),
    (pa.float32(), st.integers(-5, 5).map(float)),
    (pa.string(), st.sampled_from(["", "a", "a\0", "same start 1", "same start 2", "é"])),
    (pa.bool_(), st.booleans()),
]


@st.composite
def _tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(0, 30))
    columns = {}
    for name in ("a", "b", "c"):
        held, values = draw(st.sampled_from(_KINDS))
        present = values if draw(st.booleans()) else values | st.none()
        column: Any = pa.array(draw(st.lists(present, min_size=count, max_size=count)), held)
        columns[name] = column.dictionary_encode() if draw(st.booleans()) else column
    return pa.table(columns)


def _plain(table: pa.Table) -> pa.Table:
    """The table without dictionaries, by which Arrow does not sort."""
    plain: Any = {
        field.name: column.cast(field.type.value_type) if isinstance(field.type, pa.DictionaryType) else column
        for field, column in zip(table.schema, table.columns, strict=True)
    }
    return pa.table(plain)


@given(table=_tables(), width=st.integers(1, 3))
@settings(deadline=None, max_examples=300)
def test_the_order_is_arrows(table: pa.Table, width: int) -> None:
    """For any types, nulls, NaN and dictionaries the order is that of Arrow's own stable sort, and is seen as one."""
    names = table.column_names[:width]
    keys: Any = [(name, "ascending") for name in names]
    expected: list[Any] = pc.sort_indices(_plain(table), sort_keys=keys).to_pylist()
    assert sort_order(table, names).tolist() == expected
    assert is_sorted(taken(table, sort_order(table, names)), names)
    assert is_sorted(table, names) == (expected == sorted(expected))


@pytest.mark.parametrize("names", [["id"], ["name"], ["city", "amount"], ["at", "id"], ["amount", "name", "city"]])
def test_many_rows_are_sorted(names: list[str]) -> None:
    """Rows enough for every way of sorting come out in Arrow's order; one pair that changes places is seen."""
    table = trips(20_000)
    order = sort_order(table, names)
    keys: Any = [(name, "ascending") for name in names]
    assert np.array_equal(order, pc.sort_indices(table, sort_keys=keys).to_numpy())
    assert is_sorted(taken(table, order), names)
    assert not is_sorted(table, names)
    order[[15_000, 19_000]] = order[[19_000, 15_000]]
    assert not is_sorted(taken(table, order), names)


@given(table=_tables(), first=st.integers(0, 9), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=200)
def test_what_is_taken_is_what_arrow_takes(table: pa.Table, first: int, seed: int) -> None:
    """Rows come out as Arrow's own take has them: with nulls, dictionaries and columns that begin within a buffer."""
    part = table.slice(first)
    order = np.random.default_rng(seed).permutation(part.num_rows)
    found, expected = taken(part, order), part.take(order)
    found.validate(full=True)
    assert _comparable(found) == _comparable(expected)
    assert found.schema == expected.schema


def test_every_type_can_be_taken() -> None:
    """Values and nulls of each type stay what they are."""
    _, table = every_type()
    order = np.arange(table.num_rows)[::-1].copy()
    assert _comparable(taken(table, order)) == _comparable(table.take(order))


def _comparable(table: pa.Table) -> dict[str, list[str]]:
    """Values as text: NaN is NaN there."""
    return {name: list(map(repr, table.column(name).to_pylist())) for name in table.column_names}


def test_every_type_can_be_sorted_by() -> None:
    """A column of each type gives Arrow's order."""
    _, table = every_type()
    for name in table.column_names:
        assert sort_order(table, [name]).tolist() == pc.sort_indices(table.column(name)).to_pylist()


def test_nothing_to_sort_by_is_sorted() -> None:
    """Without sort columns any rows are sorted."""
    assert is_sorted(trips(10), [])
    assert sort_order(trips(10), []).tolist() == list(range(10))
