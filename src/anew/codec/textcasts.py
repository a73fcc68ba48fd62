"""Text as numbers, times, dates and the other flat types, whole columns at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from anew.codec.datum import FLOAT32_LIMIT
from anew.codec.kernels import Column, pc
from anew.codec.nodes import Node, kind

# Arrow's regular expressions are RE2's: no look-around, \z for the end.
_HAS_ZONE = r"(Z|[+-]\d\d:?\d\d)$"
_DATE_ONLY_CHARACTERS = len("2013-01-01")
_UUID = r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"
_TIME = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?$"


def from_text(node: Node, target: Any) -> Callable[[Column], Column]:
    """The cast of text to a flat type; it raises ValueError where a text is not one of the type."""
    of_kind = kind(node)
    if of_kind == "string":
        return lambda part: part
    if of_kind == "enum":
        symbols = pa.array(node["symbols"], pa.string())
        return lambda part: _only(part, pc.is_in(part, value_set=symbols))
    if of_kind == "string-uuid":
        return lambda part: _only(pc.utf8_lower(part), pc.match_substring_regex(part, _UUID))
    if pa.types.is_timestamp(target):
        return lambda part: _instants(part, target)
    if pa.types.is_time(target):
        return lambda part: _times(part, target)
    if of_kind == "boolean":
        truths = pa.array(["true", "false"])
        return lambda part: _only(part, pc.is_in(pc.utf8_lower(part), value_set=truths)).cast(target)
    if of_kind == "double":
        return _doubles
    if of_kind == "float":
        return lambda part: narrowed(_doubles(part))
    if of_kind in ("int", "long"):
        # Arrow would read 0x10 as sixteen.
        return lambda part: _only(part, pc.match_substring_regex(part, r"^-?\d+$")).cast(target)
    return lambda part: part.cast(target)


def narrowed(part: Column) -> Column:
    """Floating-point numbers as 32-bit ones; one that would become infinite raises ValueError."""
    wide = part.cast(pa.float64())
    size = pc.abs(wide)
    if pc.any(pc.and_(pc.is_finite(wide), pc.greater_equal(size, FLOAT32_LIMIT))).as_py():
        raise ValueError("out of the range of float")
    return part.cast(pa.float32())


def _only(part: Column, fits: Column) -> Column:
    """The part itself where every value that is not null fits."""
    if pc.any(pc.and_(pc.is_valid(part), pc.invert(fits.fill_null(True)))).as_py():
        raise ValueError("does not fit")
    return part


def _doubles(part: Column) -> Column:
    """Floating-point numbers; a number that is too great for one is not infinite."""
    made = part.cast(pa.float64())
    too_great = pc.and_(pc.is_inf(made), pc.match_substring_regex(part, r"\d"))
    if pc.any(too_great).as_py():
        raise ValueError("out of the range of double")
    return made


def _times(part: Column, target: Any) -> Column:
    """ISO-8601 times of day."""
    whole = pc.binary_join_element_wise("1970-01-01", _only(part, pc.match_substring_regex(part, _TIME)), "T")
    of_day = whole.cast(pa.timestamp("us")).cast(pa.timestamp(target.unit))
    return of_day.cast(pa.int64()).cast(pa.int32() if target.bit_width == 32 else pa.int64()).view(target)


def _instants(part: Column, target: Any) -> Column:
    """ISO-8601 text as timestamps; without an offset it is UTC, without a time it is midnight."""
    micros = pa.timestamp("us", target.tz)
    if target.tz is None:
        return part.cast(micros).cast(target)
    if not pc.any(pc.match_substring_regex(part, _HAS_ZONE)).as_py():
        return part.cast(pa.timestamp("us")).cast(micros).cast(target)
    timed = pc.if_else(
        pc.equal(pc.utf8_length(part), _DATE_ONLY_CHARACTERS), pc.binary_join_element_wise(part, "00:00:00Z", "T"), part
    )
    zoned = pc.if_else(pc.match_substring_regex(timed, _HAS_ZONE), timed, pc.binary_join_element_wise(timed, "Z", ""))
    return zoned.cast(micros).cast(target)
