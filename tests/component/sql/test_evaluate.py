"""Derived columns and row filters over Arrow tables."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from anew.core.errors import Failed
from anew.sql.evaluate import derive, matching
from tests.component.sql.tables import config

ROWS = 100_000
NUMBERS = [(i * 7_919) % ROWS for i in range(ROWS)]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Many rows in several chunks, in an order that is not that of the values."""
    numbers = NUMBERS
    whole = pa.table(
        {"a": pa.array(numbers, pa.int64()), "B": [None if n % 10 == 0 else f"v{n}" for n in numbers], "x": numbers}
    )
    return pa.concat_tables([whole.slice(0, 33_333), whole.slice(33_333)])


def test_derived_columns_are_computed_in_order_of_rows(table: pa.Table) -> None:
    """Each row has its own results, exactly in the types of the columns; one that was there is replaced in place."""
    made = derive(table, config({"x": "a % 7", "y": "b || '-' || x", "z": "DATE '2013-01-01' + x"}))
    assert made.column_names == ["a", "B", "x", "y", "z"]
    assert [made.schema.field(name).type for name in ("x", "y", "z")] == [pa.int32(), pa.string(), pa.date32()]
    assert made["a"].to_pylist() == NUMBERS
    assert made["x"].to_pylist() == [n % 7 for n in NUMBERS]
    assert made["y"].to_pylist() == [None if n % 10 == 0 else f"v{n}-{n % 7}" for n in NUMBERS]
    assert made["z"].to_pylist() == [dt.date(2013, 1, 1) + dt.timedelta(n % 7) for n in NUMBERS]


def test_matching_is_a_mask_in_order_of_rows(table: pa.Table) -> None:
    """A row matches when the condition is true; where it is null, it does not."""
    met = matching(table, "a % 2 = 0 AND b <> 'v4'")
    assert met.null_count == 0
    assert met.to_pylist() == [n % 2 == 0 and n % 10 != 0 and n != 4 for n in NUMBERS]


def test_rows_without_columns_count() -> None:
    """Constants are computed for every row, and for none when there is none."""
    rows = pa.table({"a": [1, 2, 3]})
    assert derive(rows, config({"x": "40 + 2 -- always"}))["x"].to_pylist() == [42] * 3
    assert derive(rows.slice(0, 0), config({"x": "1"})).schema.field("x").type == pa.int32()
    assert matching(rows, "true").to_pylist() == [True] * 3


def test_timestamps_are_utc() -> None:
    """Zoned timestamps are read, and naive ones computed, in UTC."""
    moment = dt.datetime(2013, 1, 1, 23, 30, tzinfo=dt.UTC)
    rows = pa.table({"ts": pa.array([moment], pa.timestamp("us", "UTC"))})
    made = derive(rows, config({"x": "extract(hour FROM ts)", "y": "strftime(ts::TIMESTAMPTZ, '%d %H:%M')"}))
    assert made.select(["x", "y"]).to_pylist() == [{"x": 23, "y": "01 23:30"}]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("a / 2", "0.5 in row 1"),
        ("'v' || a", "v0 in row 0"),
        ("a * 3000000000", "3000000000 in row 1"),
        ("CASE WHEN a = 2 THEN '2.6' END", "2.6 in row 2"),
    ],
)
def test_a_value_that_does_not_fit_is_named(expression: str, found: str) -> None:
    """What the column's type cannot hold without loss is an error with column, value and row."""
    with pytest.raises(Failed) as failed:
        derive(pa.table({"a": [0, 1, 2]}), config({"x": expression}))
    assert (failed.value.code, failed.value.found) == ("bad_value", found)
    assert "column x" in failed.value.message


@pytest.mark.parametrize("expression", ["9223372036854775807 + a", "CAST('v' || a AS INTEGER)", "f"])
def test_an_expression_that_fails_says_why(expression: str) -> None:
    """An error while computing, or a column that the rows lack, is `expression_failed`."""
    with pytest.raises(Failed) as failed:
        derive(pa.table({"a": [0, 1, 2]}), config({"x": expression}))
    assert failed.value.code == "expression_failed"
    with pytest.raises(Failed) as failed:
        matching(pa.table({"a": [0, 1], "f": ["v", "w"]}), f"({expression})::BOOLEAN")
    assert failed.value.code == "expression_failed"
