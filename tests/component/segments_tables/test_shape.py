"""Rows of an older build, or of a load, become what is wanted, or the error says which value does not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anew.core.errors import Failed
from anew.segments.tables.shape import Shaped, shaped
from tests.component.segments_tables.rows import COLUMNS, config_of, trips


def _cast(values: Any, kind: str) -> list[Any]:
    return shaped(pa.table({"a": values}), config_of({"a": kind})).table.column("a").to_pylist()


_FITTING: list[tuple[Any, str, list[Any]]] = [
    (pa.array([1, None, -(2**31)], pa.int32()), "bigint", [1, None, -(2**31)]),
    (pa.array([1, None, 2**31 - 1]), "integer", [1, None, 2**31 - 1]),
    (pa.array([1, None], pa.int32()), "varchar", ["1", None]),
    (pa.array(["1", None, "-7"]), "integer", [1, None, -7]),
    (pa.array(["1", None, "-7"]).dictionary_encode(), "integer", [1, None, -7]),
    (pa.array(["1", None], pa.large_string()), "bigint", [1, None]),
    (pa.array(["1.5", None, "-1e3"]), "double", [1.5, None, -1000.0]),
    (pa.array(["1.5", "1e30"]), "real", [1.5, np.float32(1e30)]),
    (pa.array(["1.50", None]), "decimal(5,2)", [Decimal("1.50"), None]),
    (pa.array(["true", None, "False"]), "boolean", [True, None, False]),
    (pa.array(["2024-02-29", None]), "date", [dt.date(2024, 2, 29), None]),
    (pa.array([1.0, None, 3.0]), "integer", [1, None, 3]),
    (pa.array([1, None]), "double", [1.0, None]),
    (pa.array([0.5, float("inf")]), "real", [0.5, float("inf")]),
    (pa.array([1, 2]), "decimal(20,1)", [Decimal("1.0"), Decimal("2.0")]),
    (pa.array([Decimal("1.50")]), "decimal(10,1)", [Decimal("1.5")]),
    (pa.array([0, 1, None]), "boolean", [False, True, None]),
    (pa.array([True, None]), "smallint", [1, None]),
    (pa.array([b"ab", None]), "varchar", ["ab", None]),
    (pa.array(["é"]), "blob", ["é".encode()]),
    (pa.array([dt.date(2024, 1, 2)]), "varchar", ["2024-01-02"]),
    (pa.nulls(2), "bigint", [None, None]),
]


@pytest.mark.case("tables:C3")
@pytest.mark.parametrize(("values", "kind", "expected"), _FITTING, ids=lambda part: str(part)[:20])
def test_values_that_fit_are_cast(values: Any, kind: str, expected: list[Any]) -> None:
    """Rows are readable with the new type, nulls stay nulls."""
    assert _cast(values, kind) == expected


def test_times_are_cast_to_utc() -> None:
    """Texts with and without offsets, other units, zones and dates become µs in UTC."""
    noon = dt.datetime.fromisoformat("2024-02-29T12:00:00")
    texts = pa.array(["2024-02-29T14:00:00+02:00", "2024-02-29 12:00:00", None, "2024-02-29T12:00:00Z", "2024-02-29"])
    midnight = noon.replace(hour=0)
    assert _cast(texts, "timestamp") == [noon, noon, None, noon, midnight]
    assert _cast(pa.array([noon], pa.timestamp("ns")), "timestamp") == [noon]
    assert _cast(pa.array([noon.replace(tzinfo=dt.UTC)], pa.timestamp("ms", "Europe/Berlin")), "timestamp") == [noon]
    assert _cast(pa.array([noon.date()]), "timestamp") == [midnight]
    assert _cast(pa.array([midnight]), "date") == [noon.date()]


_MISFITS: list[tuple[Any, str, int, str]] = [
    (pa.array(["1", None, "abc", "x"]), "integer", 2, "'abc'"),
    (pa.array(["1", None, "abc", "x"]).dictionary_encode(), "integer", 2, "'abc'"),
    (pa.array(["1", "0x10"]), "bigint", 1, "'0x10'"),
    (pa.array(["1", "1.5"]), "bigint", 1, "'1.5'"),
    (pa.array(["3000000000"]), "integer", 0, "'3000000000'"),
    (pa.array([1, 2**31]), "integer", 1, str(2**31)),
    (pa.array([1.0, 1.5]), "integer", 1, "1.5"),
    (pa.array([1.0, float("nan")]), "bigint", 1, "nan"),
    (pa.array([1, 2**53 + 1]), "double", 1, str(2**53 + 1)),
    (pa.array([1.0, 1e300]), "real", 1, "1e+300"),
    (pa.array([1, 2]), "boolean", 1, "2"),
    (pa.array(["true", "1"]), "boolean", 1, "'1'"),
    (pa.array([b"a", b"\xff"]), "varchar", 1, "b'\\xff'"),
    (pa.array([Decimal("1.55")]), "decimal(3,1)", 0, "Decimal('1.55')"),
    (pa.array(["2024-02-29", "2023-02-29"]), "date", 1, "'2023-02-29'"),
    (pa.array(["yesterday"]), "timestamp", 0, "'yesterday'"),
    (pa.array([0, 1], pa.timestamp("us")), "date", 1, "datetime.datetime(1970, 1, 1, 0, 0, 0, 1)"),
    (pa.array([0, 1], pa.timestamp("ns")), "timestamp", 1, "Timestamp('1970-01-01 00:00:00.000000001')"),
]


@pytest.mark.case("tables:C3")
@pytest.mark.parametrize(("values", "kind", "row", "shown"), _MISFITS, ids=lambda part: str(part)[:20])
def test_the_first_value_that_does_not_fit_is_named(values: Any, kind: str, row: int, shown: str) -> None:
    """The error has the column, the first bad value and its row from 0."""
    with pytest.raises(Failed) as caught:
        _cast(values, kind)
    assert caught.value.code == "bad_value"
    assert f"column a does not fit its type, in row {row}" in caught.value.message
    assert caught.value.found == shown
    assert caught.value.expected == kind


def test_the_first_bad_value_of_many_rows_is_found() -> None:
    """The row is the first one wherever it lies."""
    for bad in (0, 1, 65_537, 99_999):
        values = [str(number) for number in range(100_000)]
        values[bad] = values[-1] = "abc"
        with pytest.raises(Failed, match=f"in row {bad};"):
            _cast(pa.array(values), "bigint")


@pytest.mark.parametrize(("values", "kind"), [(pa.array([1]), "timestamp"), (pa.array([1]), "blob")])
def test_types_without_a_cast_are_refused(values: Any, kind: str) -> None:
    """A number is no time: nobody says of which unit."""
    with pytest.raises(Failed) as caught:
        _cast(values, kind)
    assert caught.value.code == "bad_type"


def test_missing_columns_get_their_defaults_and_others_go() -> None:
    """A column that is added has its default, or null, in every row, and is noted as filled; others are dropped."""
    config = config_of({"a": "bigint", "b": {"type": "varchar", "default": "none"}, "c": "date"})
    found = shaped(pa.table({"gone": [1, 2], "a": [1, 2]}), config)
    assert found.table.to_pylist() == [{"a": a, "b": "none", "c": None} for a in (1, 2)]
    assert found.filled == {"b", "c"}
    assert found.table.schema.types == config.arrow_schema.types
    assert (found.rows_read, found.rows_filtered) == (2, 0)


def test_filled_columns_get_the_new_default() -> None:
    """A column that held nothing but an older default holds the new one, of any type; others keep their values."""
    config = config_of({"a": {"type": "bigint", "default": 7}, "b": {"type": "bigint", "default": 7}})
    found = shaped(pa.table({"a": ["x", "x"], "b": [1, 2]}), config, frozenset(["a"]))
    assert found.table.to_pylist() == [{"a": 7, "b": 1}, {"a": 7, "b": 2}]
    assert found.filled == {"a"}


def test_nulls_where_there_may_be_none_become_the_default() -> None:
    """A null in a column that has none becomes its default; without one the error names column and row."""
    rows = pa.table({"a": pa.array(["x", None]).dictionary_encode()})
    with_default = config_of({"a": {"type": "varchar", "nullable": False, "default": "y"}})
    assert shaped(rows, with_default).table.column("a").to_pylist() == ["x", "y"]
    with pytest.raises(Failed) as caught:
        shaped(rows, config_of({"a": {"type": "varchar", "nullable": False}}))
    assert caught.value.code == "null_value"
    assert "column a" in caught.value.message
    assert "row 1" in caught.value.message


def test_a_null_in_a_row_that_is_filtered_is_no_error() -> None:
    """Rows that go need not fit, and rows are counted from 0 before any went."""
    columns = {"a": {"type": "bigint", "nullable": False}, "b": "bigint"}
    rows = pa.table({"a": pa.array([None, 1, None]), "b": [0, 1, 2]})
    found = shaped(rows, config_of(columns, row_filter="b = 1"))
    assert (found.table.num_rows, found.rows_filtered) == (1, 2)
    with pytest.raises(Failed, match="row 2"):
        shaped(rows, config_of(columns, row_filter="b > 0"))


@pytest.mark.case("tables:C5")
def test_derived_columns_are_right_for_old_rows_and_stay_so() -> None:
    """Derived columns have their values in every row; shaping again changes nothing."""
    columns = COLUMNS | {"shout": "varchar", "twice": "bigint"}
    config = config_of(columns, derived={"shout": "upper(city)", "twice": "id * 2"}, sort="city,id")
    rows = trips()
    at = rows.schema.get_field_index("city")
    for given in (rows, rows.set_column(at, "city", rows.column("city").dictionary_encode())):
        once = shaped(given, config)
        assert once.filled == frozenset()
        found = once.table.to_pydict()
        assert found["twice"] == [2 * number for number in found["id"]]
        assert found["shout"] == [None if city is None else city.upper() for city in found["city"]]
        assert shaped(once.table, config).table.equals(once.table)


def test_rows_are_filtered_by_what_is_wanted() -> None:
    """The filter sees cast and derived columns; rows where it is null go."""
    config = config_of({"a": "bigint", "b": "bigint"}, derived={"b": "a * 10"}, row_filter="b >= 20", sort="b")
    found = shaped(pa.table({"a": ["3", "1", None, "2"]}), config)
    assert found.table.to_pylist() == [{"a": 2, "b": 20}, {"a": 3, "b": 30}]
    assert (found.rows_read, found.rows_filtered) == (4, 2)
    assert found.kept is not None
    assert found.kept.tolist() == [True, False, False, True]


def _ids(found: Shaped) -> list[Any]:
    return found.table.column("id").to_pylist()


def test_rows_are_sorted_stably() -> None:
    """Equal rows stay in their order, nulls come last, and sorted rows are left alone."""
    rows = pa.table({"city": ["b", None, "a", "b"], "id": [1, 2, 3, 4]})
    config = config_of({"city": "varchar", "id": "bigint"}, sort="city")
    once = shaped(rows, config)
    assert _ids(once) == [3, 1, 4, 2]
    assert _ids(shaped(once.table, config)) == [3, 1, 4, 2]


def test_no_rows_are_shaped_too() -> None:
    """A table without rows gets the columns."""
    config = config_of(COLUMNS | {"x": "bigint"}, derived={"x": "id"}, row_filter="id > 1", sort="id")
    assert shaped(trips(0), config).table.schema.types == config.arrow_schema.types
