"""Write times of a push: what counts as a time, and up to when."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anew.core.errors import InvalidRequest
from anew.spark.stores.writtenat import written_times

_LATEST = 1_800_000_000_000
_MS = 1_704_067_200_123
_DAY = 1_704_067_200_000


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, _LATEST]), [1, _LATEST]),
        (pa.array([_MS], pa.uint64()), [_MS]),
        (pa.array([float(_MS)]), [_MS]),
        (pa.array([decimal.Decimal(_MS)]), [_MS]),
        (pa.array([f" {_MS} ", f"{_MS}.0", f"+{_MS}"]), [_MS] * 3),
        (
            pa.array(["2024-01-01T00:00:00.123Z", "2024-01-01 00:00:00.123456", "2024-01-01T00:00:00.123456789Z"]),
            [_MS] * 3,
        ),
        (pa.array(["2024-01-01", "2024-01-01T00:00", "2024-01-01T00:00:00z"]), [_DAY] * 3),
        (pa.array(["2024-01-01T01:00:00+01:00", "2024-01-01T01:00+0100", "2023-12-31T23:00:00-01"]), [_DAY] * 3),
        (pa.array(["2024-01-01"]).dictionary_encode(), [_DAY]),
        (pa.array([_MS // 1000], pa.timestamp("s")), [_DAY]),
        (pa.array([_MS], pa.timestamp("ms", "Asia/Tokyo")), [_MS]),
        (pa.array([_MS * 1_000 + 999], pa.timestamp("us")), [_MS]),
        (pa.array([_MS * 1_000_000 + 1], pa.timestamp("ns", "UTC")), [_MS]),
        (pa.array([datetime.date(2024, 1, 1)]), [_DAY]),
        (pa.array([_DAY], pa.date64()), [_DAY]),
    ],
)
def test_a_time_is_taken_in_every_form(column: Any, expected: list[int]) -> None:
    """Numbers of ms, timestamps of any unit, dates and ISO text are the same instants; what is below a ms goes."""
    found = written_times(column, _LATEST)
    assert (found.times_ms.tolist(), bool(found.bad.any())) == (expected, False)


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        (pa.array([_MS * 1_000]), "microseconds"),
        (pa.array([_MS * 1_000_000]), "nanoseconds"),
        (pa.array([str(_MS * 1_000)]), "microseconds"),
        (pa.array([str(_MS * 1_000_000)]), "nanoseconds"),
        (pa.array([_MS / 1_000]), "seconds"),
        (pa.array([_MS * 1e3]), "microseconds"),
        (pa.array([decimal.Decimal(_MS * 1_000)]), "microseconds"),
        (pa.array([_LATEST + 1]), None),
        (pa.array([0]), None),
        (pa.array([-5]), None),
        (pa.array(["99999999999999999999"]), None),
        (pa.array(["1" * 5_000]), None),
        (pa.array(["2024-13-01", "2024-02-30", "24:00", "noon", "", "2024-01-01T25:00:00Z"]), None),
        (pa.array(["9999-12-31T00:00:00Z"]), None),
        (pa.array([datetime.date(9999, 12, 31)]), None),
        (pa.array([2**31 - 1], pa.date32()), None),
        (pa.array([2**63 - 1, -(2**63)], pa.timestamp("s")), None),
        (pa.array([2**63 - 1, -(2**63)], pa.timestamp("us")), None),
        (pa.array([2**63], pa.uint64()), None),
        (pa.array([float("nan"), float("inf"), 1e300, 0.5]), None),
        (pa.array([decimal.Decimal(f"{_MS}.5")]), None),
        (pa.array([None], pa.string()), None),
        (pa.nulls(1), None),
        (pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers()), None),
    ],
)
def test_what_is_no_time_of_now_is_bad(column: Any, unit: str | None) -> None:
    """A time that is not after 0, beyond the limit or not one at all is bad, and its unit is named where it shows."""
    found = written_times(column, _LATEST)
    assert (bool(found.bad.all()), found.times_ms.tolist()) == (True, [0] * len(column))
    said = found.found(column, 0)
    assert (f"looks like {unit}" in said) if unit is not None else ("looks like" not in said)
    assert "2027-01-15T08:00:00.000Z" in found.expected


@pytest.mark.parametrize(
    "column", [pa.array([True]), pa.array([b"x"]), pa.array([[1]]), pa.array([1], pa.time64("us"))]
)
def test_a_column_that_holds_no_times_is_refused(column: Any) -> None:
    """A column of another type is refused with its type."""
    with pytest.raises(InvalidRequest) as caught:
        written_times(column, _LATEST)
    assert (caught.value.code, caught.value.found) == ("column_type", str(column.type))


@pytest.mark.case("rules:R6")
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-10, 2 * _LATEST)), st.integers(1, 2 * _LATEST))
@settings(derandomize=True, deadline=None)
def test_every_time_that_is_taken_is_within_the_limit(values: list[int], latest_ms: int) -> None:
    """For any number, as a number or as text: it is taken as it is if 0 < t ≤ the limit, else it is bad."""
    for column in (pa.array(values, pa.int64()), pa.array([str(value) for value in values], pa.string())):
        found = written_times(column, latest_ms)
        assert found.bad.tolist() == [not 0 < value <= latest_ms for value in values]
        assert found.times_ms.tolist() == [value if 0 < value <= latest_ms else 0 for value in values]
