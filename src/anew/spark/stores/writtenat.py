"""Write times of a push's rows: milliseconds since the epoch, out of a column of numbers, times, dates or text.

A time is taken only if 0 < t ≤ the plan's time + skew limit, as rule R6 bounds what writers give: one from the far
future would win against every later write and delete, and would never expire.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.codec.filerows import is_utf8
from anew.codec.kernels import pc
from anew.core.errors import InvalidRequest
from anew.spark.inputcolumns import LATEST_MS

_NO_TIME = 0
_DIGITS = r"^\s*[+-]?\d{1,18}(\.0*)?\s*$"
_INSTANT = r"^\s*\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|z|[+-]\d\d(:?\d\d)?)?)?\s*$"
_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"
_UNITS = (("seconds", 1_000, 1), ("microseconds", 1, 1_000), ("nanoseconds", 1, 1_000_000))
_PLAUSIBLE_SINCE_MS = 315_532_800_000


@dataclass(frozen=True, slots=True)
class WriteTimes:
    """The times of some rows.

    Attributes:
        times_ms: Milliseconds since the epoch; 0 where there is none that is taken. Shape (n,).
        bad: Where there is none. Shape (n,).
        latest_ms: The latest time that is taken.
    """

    times_ms: npt.NDArray[np.int64]
    bad: npt.NDArray[np.bool_]
    latest_ms: int

    @property
    def expected(self) -> str:
        """What is taken, in words."""
        return f"a time after 1970-01-01 and not after {_shown_ms(self.latest_ms)}: ms since the epoch, or ISO-8601"

    def found(self, column: Any, row: int) -> str:
        """The value of a row in words, with the unit that a number out of range looks like."""
        value = _python_value(column, row)
        if value is None:
            return "null"
        unit = _unit_of(value, self.latest_ms)
        return str(value)[:80] + ("" if unit is None else f", which looks like {unit}")


def written_times(column: Any, latest_ms: int) -> WriteTimes:
    """The write times of a column.

    Whole numbers, and numbers with a fraction that is zero, are milliseconds; text is such a number, or ISO-8601 with
    ``Z``, an offset, or neither (UTC). What a time has below a millisecond is cut off, as a clock of milliseconds does.

    Args:
        column: An Arrow array of numbers, timestamps, dates or text.
        latest_ms: The latest time that is taken, in ms since the epoch.

    Raises:
        InvalidRequest: ``column_type``: a column of another type.
    """
    if pa.types.is_dictionary(column.type):
        return written_times(column.dictionary_decode(), latest_ms)
    times = _milliseconds(column).fill_null(_NO_TIME).to_numpy(zero_copy_only=False)
    bad = (times <= 0) | (times > latest_ms)
    return WriteTimes(np.where(bad, _NO_TIME, times), bad, latest_ms)


def _python_value(column: Any, row: int) -> Any:
    """A value of a column, or what of it can be shown."""
    try:
        return column[row].as_py()
    except UnicodeDecodeError:
        raw: bytes = column.slice(row, 1).cast(pa.binary())[0].as_py()
        return raw.decode("utf-8", "backslashreplace")
    except (ValueError, OverflowError):
        return f"{column.type} {column[row].value}"


def _milliseconds(column: Any) -> Any:
    """Milliseconds as int64, null where there are none."""
    is_a, of_type = pa.types, column.type
    if is_a.is_null(of_type):
        return pa.nulls(len(column), pa.int64())
    if is_a.is_string(of_type) or is_a.is_large_string(of_type) or is_a.is_string_view(of_type):
        return _of_text(column)
    if is_a.is_timestamp(of_type):
        return _floored(column)
    if is_a.is_date(of_type):
        as_ms = column if is_a.is_date64(of_type) else column.cast(pa.date64())
        return as_ms.cast(pa.int64())
    if is_a.is_integer(of_type):
        fits = pc.less_equal(column, pa.scalar(2**63 - 1, pa.uint64())) if of_type == pa.uint64() else None
        return (column if fits is None else pc.if_else(fits, column, pa.scalar(None, of_type))).cast(pa.int64())
    if is_a.is_floating(of_type):
        return _of_floats(column.cast(pa.float64()))
    if is_a.is_decimal(of_type):
        whole = pc.if_else(pc.equal(pc.trunc(column), column), column, pa.scalar(None, of_type))
        return _of_floats(whole.cast(pa.float64()))
    raise InvalidRequest(
        "column_type",
        "the column of the write time holds no times",
        found=str(of_type),
        expected="whole numbers (ms since the epoch), timestamps, dates, or text of these",
    )


def _floored(column: Any) -> Any:
    """Timestamps of any unit as whole milliseconds; those that milliseconds have no number for are null."""
    raw = column.cast(pa.int64())
    match column.type.unit:
        case "s":
            most = 2**62 // 1000
            within = pc.and_(pc.less_equal(raw, most), pc.greater_equal(raw, -most)).fill_null(False)
            return pc.multiply(pc.if_else(within, raw, pa.scalar(None, pa.int64())), 1000)
        case "ms":
            return raw
        case unit:
            by = 1_000 if unit == "us" else 1_000_000
            whole = np.floor_divide(raw.fill_null(0).to_numpy(zero_copy_only=False), by)
            return pc.if_else(raw.is_valid(), pa.array(whole), pa.scalar(None, pa.int64()))


def _of_floats(column: Any) -> Any:
    whole = pc.and_(pc.equal(pc.trunc(column), column), pc.less(pc.abs(column), 2.0**53))
    kept = pc.if_else(whole.fill_null(False), column, pa.scalar(None, pa.float64()))
    return kept.cast(pa.int64())


def _of_text(column: Any) -> Any:
    if not is_utf8(column):
        raw = column.cast(pa.binary()).to_pylist()
        column = pa.array([None if value is None else value.decode("utf-8", "replace") for value in raw], pa.string())
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    nothing = pa.scalar(None, pa.string())
    digits = pc.if_else(pc.match_substring_regex(text, _DIGITS), text, nothing)
    whole = pc.replace_substring_regex(digits, r"^\+|\.0*$", "")
    instants = pc.if_else(pc.match_substring_regex(text, _INSTANT), text, nothing)
    return pc.coalesce(whole.cast(pa.int64()), _of_instants(instants))


def _of_instants(texts: Any) -> Any:
    """ISO-8601 texts as milliseconds; null where the calendar has no such time."""
    upper = pc.replace_substring_regex(texts, "z$", "Z")
    upper = pc.replace_substring_regex(upper, r"([+-]\d\d)$", r"\1:00") if _have_short_zones(upper) else upper
    has_zone = pc.match_substring_regex(upper, r"[T ].*" + _ZONE)
    timed = pc.if_else(
        pc.less_equal(pc.utf8_length(upper), 10), pc.binary_join_element_wise(upper, "T00:00:00", ""), upper
    )
    zoned = pc.if_else(has_zone, timed, pc.binary_join_element_wise(timed, "Z", ""))
    try:
        return _floored(zoned.cast(pa.timestamp("ns", "UTC")))
    except pa.ArrowInvalid:
        return pa.array([_of_instant(text) for text in zoned.to_pylist()], pa.int64())


def _have_short_zones(texts: Any) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, r"[T ]\d\d:\d\d(:\d\d(\.\d+)?)?[+-]\d\d$")).as_py())


def _of_instant(text: str | None) -> int | None:
    if text is None:
        return None
    for unit in ("us", "ns"):
        try:
            made: Any = pa.array([text]).cast(pa.timestamp(unit, "UTC"))
        except pa.ArrowInvalid:
            continue
        return int(_floored(made)[0].as_py())
    return None


def _unit_of(value: Any, latest_ms: int) -> str | None:
    """The unit in which a number is a plausible time, if it is not one in ms."""
    try:
        number = float(value) if not isinstance(value, datetime.date) else None
    except (ValueError, TypeError):
        return None
    if number is None or number != number:
        return None
    for name, times, by in _UNITS:
        if _PLAUSIBLE_SINCE_MS <= number * times / by <= latest_ms and not _PLAUSIBLE_SINCE_MS <= number <= latest_ms:
            return name
    return None


def _shown_ms(at_ms: int) -> str:
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=min(at_ms, LATEST_MS))  # noqa: DTZ001 - UTC
    return f"{at.isoformat(timespec='milliseconds')}Z"
