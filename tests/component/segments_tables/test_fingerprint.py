"""Fingerprints know values, and neither their order nor how they are held."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anew.core.errors import Failed
from anew.segments.tables.fingerprint import column_hashes, fingerprint, fingerprints
from tests.component.segments_tables.rows import EVERY_TYPE, every_type, trips

_VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.floats()),
    "varchar": (pa.string(), st.text(max_size=40) | st.text(alphabet="a", min_size=250, max_size=300)),
    "blob": (pa.binary(), st.binary(max_size=20)),
    "boolean": (pa.bool_(), st.booleans()),
}


@st.composite
def _columns(draw: st.DrawFn) -> pa.Array[Any]:
    held, values = _VALUES[draw(st.sampled_from(sorted(_VALUES)))]
    few = draw(st.lists(values | st.none(), min_size=1, max_size=6))
    return pa.array(draw(st.lists(st.sampled_from(few), max_size=40)), held)


def _bits(value: Any) -> Any:
    """What two values of a column have to have in common to be the same one."""
    if isinstance(value, float):
        return "nan" if value != value else np.float64(value).tobytes()
    return value


@given(column=_columns(), cut=st.integers(0, 40))
@settings(deadline=None)
def test_equal_values_alone_have_equal_hashes_however_they_are_held(column: pa.Array[Any], cut: int) -> None:
    """Dictionaries, chunks and slices change no hash; the hashes are equal exactly where the values are."""
    hashes = column_hashes(column)
    chunked = pa.chunked_array([column[:cut], column[cut:]], column.type)
    padded: Any = pa.concat_arrays([pa.nulls(3, column.type), column])
    for held in (column.dictionary_encode(), chunked, chunked.dictionary_encode(), padded[3:]):
        assert np.array_equal(column_hashes(held), hashes)
    of_value = dict(zip(map(_bits, column.to_pylist()), hashes.tolist(), strict=True))
    assert [of_value[_bits(value)] for value in column.to_pylist()] == hashes.tolist()
    assert len(set(of_value.values())) == len(of_value)


@given(column=_columns(), data=st.data())
@settings(deadline=None)
def test_order_does_not_change_a_fingerprint(column: pa.Array[Any], data: st.DataObject) -> None:
    """Any permutation of the values has the same fingerprint."""
    order = data.draw(st.permutations(range(len(column))))
    mixed = column.take(pa.array(order, pa.int64()))
    assert fingerprint(column_hashes(mixed)) == fingerprint(column_hashes(column))


def test_every_type_has_hashes() -> None:
    """Values of each type differ in their hashes, and the null is the same for all types."""
    _, table = every_type()
    nulls = set()
    for name in table.column_names:
        hashes = column_hashes(table.column(name))
        distinct = len(set(table.column(name).to_pylist()))
        assert len(set(hashes.tolist())) == distinct
        nulls.add(int(hashes[2]))
    assert len(nulls) == 1
    assert len(table.column_names) == len(EVERY_TYPE)


def test_a_lost_or_changed_value_changes_the_fingerprint() -> None:
    """Without its last row, or with one other value, a column is told from what it was."""
    column = trips().column("name")
    whole = fingerprint(column_hashes(column))
    assert fingerprint(column_hashes(column[:-1])) != whole
    changed = pa.chunked_array([column[:-1].combine_chunks(), pa.array(["other"])])
    assert fingerprint(column_hashes(changed)) != whole


def test_values_that_change_places_change_the_fingerprint_of_rows_alone() -> None:
    """Two values swapped among rows leave the column's fingerprint and change that of the rows."""
    table = trips()
    order = np.arange(table.num_rows)
    order[[0, 1]] = order[[1, 0]]
    at = table.schema.get_field_index("id")
    swapped = table.set_column(at, "id", table.column("id").take(pa.array(order, pa.int64())))
    before, after = fingerprints(table), fingerprints(swapped)
    assert before.columns == after.columns
    assert before.rows != after.rows
    # Seen among the columns that have the value and others, and only there.
    both, others = ("id", "city"), ("name", "city")
    assert fingerprints(table, both).among != fingerprints(swapped, both).among
    assert fingerprints(table, others).among == fingerprints(swapped, others).among


def test_rows_have_one_fingerprint_in_any_order_of_rows_and_columns() -> None:
    """Neither the order of the rows nor that of the columns matters, nor is a column counted that is left out."""
    table = trips()
    turned = table.take(list(range(table.num_rows))[::-1]).select(table.column_names[::-1])
    assert fingerprints(turned) == fingerprints(table)
    some = fingerprints(table, ["id", "city"])
    assert (some.rows, some.columns) == (fingerprints(table).rows, fingerprints(table).columns)
    assert some.among == fingerprints(table.select(["city", "id"])).rows
    assert some.among != fingerprints(table, ["id", "name"]).among


def test_integers_are_hashed_by_their_value() -> None:
    """A value has one hash in every width."""
    numbers = [1, -1, None, 300]
    wide = column_hashes(pa.array(numbers, pa.int64()))
    assert np.array_equal(column_hashes(pa.array(numbers, pa.int16())), wide)
    assert np.array_equal(column_hashes(pa.array(numbers, pa.int32())), wide)


def test_every_nan_is_the_same_and_zeros_are_two() -> None:
    """NaN has one hash whatever its bits; 0.0 and -0.0 are told apart."""
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0, 1 << 63], dtype=np.uint64)
    hashes = column_hashes(pa.array(bits.view(np.float64)))
    assert hashes[0] == hashes[1]
    assert hashes[2] != hashes[3]


def test_a_type_that_tables_do_not_have_is_refused() -> None:
    """Nested values have no hashes."""
    with pytest.raises(Failed, match="no columns of this type"):
        column_hashes(pa.array([[1], [2]]))
