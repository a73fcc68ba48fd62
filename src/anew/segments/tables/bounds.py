"""The smallest and the greatest value of a column, in JSON."""

from __future__ import annotations

import base64
import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from anew.core.tables.arrays import Column, codes, pc

MOST_CHARACTERS = 64
"""Longer texts (and bytes) are cut: a bound of so many says as much."""

_LAST_CHARACTER, _SURROGATES = 0x10FFFF, range(0xD800, 0xE000)


def bounds_of(column: Column) -> tuple[Any, Any]:
    """The least and the greatest value in JSON, nulls left out; None: none, or none that JSON has a form for."""
    held = column.type
    if isinstance(held, pa.DictionaryType):
        return bounds_of(_used(column))
    if pa.types.is_null(held) or len(column) == column.null_count:
        return None, None
    if pa.types.is_floating(held):
        values = column.drop_null().to_numpy()
        # NaN is the least and the greatest of all that it is among.
        return _json(float(values.min())), _json(float(values.max()))
    both = pc.min_max(column)
    return _json(_value(both["min"])), _json(_upper(_value(both["max"])))


def footer_bounds(statistics: Any) -> tuple[Any, Any]:
    """The same of what a Parquet footer says of a row group's column; None where it has no form in JSON."""
    try:
        return _json(statistics.min), _json(_upper(statistics.max))
    except (ValueError, OverflowError):
        return None, None


def _used(column: Column) -> Column:
    present = column.drop_null() if column.null_count else column
    used = np.bincount(codes(present), minlength=len(present.dictionary)).nonzero()[0]
    return present.dictionary.take(pa.array(used))


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        # Python has no dates before the year 1 nor after 9999.
        return None


def _upper(value: Any) -> Any:
    """A value that is not less than the one given, and not long; None where there is none."""
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        return _next_text(value[:MOST_CHARACTERS])
    if isinstance(value, bytes) and len(value) > MOST_CHARACTERS:
        kept = value[:MOST_CHARACTERS].rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    return value


def _next_text(text: str) -> str | None:
    """The first text after all those that begin with this one."""
    kept = text.rstrip(chr(_LAST_CHARACTER))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dt.date):
        return value.replace(tzinfo=None).isoformat() if isinstance(value, dt.datetime) else value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value[:MOST_CHARACTERS]).decode()
    return value[:MOST_CHARACTERS] if isinstance(value, str) else value
