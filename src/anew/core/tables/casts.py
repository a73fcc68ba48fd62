"""Casts of whole columns that lose nothing, and the first value that does not fit where one would.

Whatever turns a column of a segment into another type goes through `cast_column`: a refresh, a local rebuild, and a
query of a segment that is stale. So a query answers before the refresh as it does after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from anew.core.errors import Failed
from anew.core.tables.arrays import Column, Held, all_null, decoded, has_long_offsets, pc
from anew.core.tables.columns import Column as TableColumn
from anew.core.tables.columns import type_name

# Arrow would read 0x10 as sixteen, and 1 as true. Its regular expressions are RE2's: \z is the end.
_INTEGER = r"\A[+-]?[0-9]+\z"
_HAS_ZONE = r"(Z|[+-][0-9]{2}:?[0-9]{2})\z"
_INFINITE = r"(?i)\A[+-]?inf(inity)?\z"
_NOT_SHOWN = "<value out of range"
"""How Arrow writes a date or a time whose year has more than five digits."""
_SHOWN_CHARACTERS = 100

_Convert = Callable[[Column], Column]
_MISFITS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError)
"""What a conversion raises for a value that does not fit."""


def cast_column(column: Column, wanted: TableColumn) -> Column:
    """A column as the type wanted, shape (n,); a dictionary of it stays one where nothing changes but its values.

    Casts lose nothing but digits that a float does not hold. Texts are read as numbers, ``true`` and ``false``,
    ISO-8601 dates and times (UTC where they say nothing). A float fits a decimal that gives the same float back.

    Raises:
        Failed: ``bad_value``: names the column, the first value that does not fit and its row, counted from 0;
            ``bad_type``: no value of the column could fit.
    """
    value_type = column.type.value_type if isinstance(column.type, pa.DictionaryType) else column.type
    if value_type == wanted.arrow_type or _is_large(value_type, wanted.type):
        return column
    convert = _converter(value_type, wanted)
    plain = decoded(column)
    try:
        return convert(plain)
    except _MISFITS:
        row = first_misfit(plain, convert)
        raise Failed(
            "bad_value",
            f"a value of the column {wanted.name} does not fit its type, in row {row}",
            found=shown_value(plain[row]),
            expected=wanted.type,
        ) from None


def first_misfit(column: Column, convert: Callable[[Column], Any]) -> int:
    """The row of the first value on which a conversion of the column fails, found by converting halves."""
    first, count = 0, len(column)
    while count > 1:
        half = count // 2
        if _fits(column.slice(first, half), convert):
            first, count = first + half, count - half
        else:
            count = half
    return first


def shown_value(value: Any) -> str:
    """A value of a column for people, cut where it is long."""
    try:
        text = repr(value.as_py())
    except (ValueError, OverflowError):
        # Python has no dates before the year 1 nor after 9999.
        text = str(value.cast(pa.string()).as_py())
        text = f"{value.type} {value.value}" if text.startswith(_NOT_SHOWN) else text
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _fits(part: Column, convert: Callable[[Column], Any]) -> bool:
    try:
        convert(part)
    except _MISFITS:
        return False
    return True


def _is_large(held: Held, wanted: str) -> bool:
    return has_long_offsets(held) and type_name(held) == wanted


def _converter(held: Held, wanted: TableColumn) -> _Convert:
    """What casts a column or a part of it, or raises ArrowInvalid or ValueError."""
    kinds, target = pa.types, wanted.arrow_type
    if kinds.is_null(held):
        return lambda part: all_null(len(part), target)
    if has_long_offsets(held):
        small = pa.string() if kinds.is_large_string(held) else pa.binary()
        inner = _converter(small, wanted) if small != target else _plain(target)
        return lambda part: inner(part.cast(small))
    if not _may_become(held, target):
        raise Failed(
            "bad_type",
            f"no value of the column {wanted.name} can become one of its new type",
            found=str(held),
            expected=wanted.type,
        )
    if kinds.is_string(held):
        return _from_text(target)
    if kinds.is_timestamp(held) and kinds.is_timestamp(target):
        # A zone is but how a time is shown.
        return lambda part: part.cast(pa.timestamp("us", held.tz)).cast(target)
    if kinds.is_temporal(held) and kinds.is_string(target):
        return _shown_time
    if kinds.is_float32(target):
        return _narrowed
    if kinds.is_floating(held) and kinds.is_decimal(target):
        return lambda part: _exact_decimal(part, target)
    if kinds.is_boolean(target) or kinds.is_date(target) or kinds.is_date(held):
        return lambda part: _and_back(part, target)
    if kinds.is_binary(held):
        return lambda part: _valid_text(part.cast(target))
    return _plain(target)


def _plain(target: Held) -> _Convert:
    return lambda part: part.cast(target)


def _may_become(held: Held, target: Held) -> bool:
    kinds = pa.types
    if kinds.is_string(target):
        return _is_scalar(held)
    if kinds.is_binary(target):
        return bool(kinds.is_string(held) or kinds.is_fixed_size_binary(held))
    if kinds.is_string(held):
        return True
    if kinds.is_timestamp(target) or kinds.is_date(target):
        return bool(kinds.is_timestamp(held) or kinds.is_date(held))
    if (kinds.is_boolean(held) and kinds.is_decimal(target)) or (kinds.is_decimal(held) and kinds.is_boolean(target)):
        return False
    return bool(kinds.is_boolean(held) or kinds.is_integer(held) or kinds.is_floating(held) or kinds.is_decimal(held))


def _is_scalar(held: Held) -> bool:
    return not (pa.types.is_nested(held) or pa.types.is_dictionary(held))


def _from_text(target: Held) -> _Convert:
    kinds = pa.types
    if kinds.is_integer(target):
        return lambda part: _only(part, pc.match_substring_regex(part, _INTEGER)).cast(target)
    if kinds.is_boolean(target):
        truths = pa.array(["true", "false"])
        return lambda part: _only(part, pc.is_in(pc.utf8_lower(part), value_set=truths)).cast(target)
    if kinds.is_float32(target):
        return lambda part: _narrowed(_finite(part))
    if kinds.is_float64(target):
        return _finite
    if kinds.is_timestamp(target):
        return _instants
    return _plain(target)


def _instants(part: Column) -> Column:
    naive, zoned = pa.timestamp("us"), pa.timestamp("us", "UTC")
    has_zone = pc.match_substring_regex(part, _HAS_ZONE)
    # The end of a date looks like an offset.
    has_zone = pc.and_(has_zone, pc.greater(pc.utf8_length(part), len("2013-01-01")))
    if not pc.any(has_zone).as_py():
        return part.cast(naive)
    with_zone = pc.if_else(has_zone, part, None).cast(zoned).cast(naive)
    return pc.if_else(has_zone, with_zone, pc.if_else(has_zone, None, part).cast(naive))


def _finite(part: Column) -> Column:
    """Texts as doubles; one that no double is as large as is none."""
    read = part.cast(pa.float64())
    infinite = pc.is_inf(read)
    if pc.any(infinite).as_py():
        _only(part.filter(infinite), pc.match_substring_regex(part.filter(infinite), _INFINITE))
    return read


def _shown_time(part: Column) -> Column:
    text = part.cast(pa.string())
    if pc.any(pc.starts_with(text, _NOT_SHOWN)).as_py():
        raise ValueError
    return text


def _exact_decimal(part: Column, target: Held) -> Column:
    """Floats as decimals that give the same floats back, which is asked by way of text: that rounds as it should."""
    became = part.cast(target)
    if not became.cast(pa.string()).cast(pa.float64()).cast(part.type).equals(_without_signs(part)):
        raise ValueError
    return became


def _without_signs(part: Column) -> Column:
    """Floats with 0.0 for -0.0."""
    return pc.add(part, pa.scalar(0.0, part.type))


def _narrowed(part: Column) -> Column:
    narrow = part.cast(pa.float32())
    wide = part.cast(pa.float64())
    if pc.any(pc.and_(pc.is_finite(wide), pc.invert(pc.is_finite(narrow)))).as_py():
        raise ValueError
    return narrow


def _and_back(part: Column, target: Held) -> Column:
    """The cast of what it gives back again."""
    became = part.cast(target)
    if not became.cast(part.type).equals(part):
        raise ValueError
    return became


def _valid_text(part: Column) -> Column:
    part.validate(full=True)
    return part


def _only(part: Column, fits: Column) -> Column:
    """The part itself where every value that is not null fits."""
    if pc.any(pc.and_(pc.is_valid(part), pc.invert(fits.fill_null(True)))).as_py():
        raise ValueError
    return part
