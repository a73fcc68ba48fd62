"""The rows of an answer as JSON has them, also those for which Python has no value."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.api.tables.query_wire import json_rows

_FAR = 253_402_300_800_000_000
"""The year 10,000 in µs."""


def _times(values: list[int | None], unit: str = "us", zone: str | None = None) -> pa.Array[Any]:
    return pa.array(values, pa.int64()).cast(pa.timestamp(unit, zone))


def _days(values: list[int | None]) -> pa.Array[Any]:
    return pa.array(values, pa.int32()).cast(pa.date32())


def _rows(column: Any) -> list[Any]:
    rows = json_rows(pa.table({"x": column}))
    json.dumps(rows)
    return [row[0] for row in rows]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (1, "1970-01-01T00:00:00.000001+00:00"),
        (_FAR - 1, "9999-12-31T23:59:59.999999+00:00"),
        (_FAR, "+10000-01-01T00:00:00+00:00"),
        (_FAR + 1, "+10000-01-01T00:00:00.000001+00:00"),
        (-62_135_596_800_000_000, "0001-01-01T00:00:00+00:00"),
        (-62_135_596_800_000_001, "+0000-12-31T23:59:59.999999+00:00"),
        (-62_198_755_200_000_000, "-0001-01-01T00:00:00+00:00"),
        (2**63 - 1, "infinity"),
        (-(2**63) + 1, "-infinity"),
    ],
)
def test_times_of_any_year_are_texts(value: int, text: str) -> None:
    """A time of whatever year is ISO-8601, with a sign where the year has not four digits of its own."""
    assert _rows(_times([value, None])) == [text, None]
    assert _rows(_times([value, None], zone="UTC")) == [text, None]


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (2_932_896, "9999-12-31"),
        (2_932_897, "+10000-01-01"),
        (-719_163, "+0000-12-31"),
        (-719_529, "-0001-12-31"),
        (2**31 - 1, "infinity"),
        (-(2**31) + 1, "-infinity"),
    ],
)
def test_days_of_any_year_are_texts(days: int, text: str) -> None:
    """The same for dates."""
    assert _rows(_days([days, None])) == [text, None]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_the_unit_of_a_time_does_not_show(unit: str) -> None:
    """Far times read the same in seconds and in fractions of them."""
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000}[unit]
    assert _rows(_times([_FAR // 1_000_000 * per_second], unit)) == ["+10000-01-01T00:00:00+00:00"]


def test_far_times_within_other_values_are_texts() -> None:
    """In lists, structs, maps and dictionaries of values too; the values beside them are as ever."""
    far, text = _times([_FAR, 0]), ["+10000-01-01T00:00:00+00:00", "1970-01-01T00:00:00+00:00"]
    lists: Any = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), far)
    assert _rows(lists) == [text, []]
    struct: Any = pa.StructArray.from_arrays([far, pa.array([b"a", None])], ["at", "raw"])
    assert _rows(struct) == [{"at": text[0], "raw": "YQ=="}, {"at": text[1], "raw": None}]
    offsets: Any = pa.array([0, 1, 2], pa.int32())
    keys: Any = pa.array(["a", "b"])
    pairs = pa.MapArray.from_arrays(offsets, keys, far)
    assert _rows(pairs) == [[["a", text[0]]], [["b", text[1]]]]
    encoded: Any = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), far)
    assert _rows(encoded) == [text[1], text[0], None]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63) + 1, 2**63 - 1)), max_size=5))
def test_no_time_breaks_an_answer(values: list[int | None]) -> None:
    """Whatever 64 bits mean as µs becomes a text that says the same time."""
    for value, text in zip(values, _rows(_times(values)), strict=True):
        if value is None or abs(value) == 2**63 - 1:
            assert text in (None, "infinity", "-infinity")
        else:
            assert int(np.datetime64(text.removesuffix("+00:00").removeprefix("+"), "us").astype(np.int64)) == value
