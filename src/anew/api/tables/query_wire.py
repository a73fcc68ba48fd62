"""Queries over tables on the wire, and the JSON face of their rows."""

from __future__ import annotations

import base64
import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from anew.api.wire import Request

ARROW_TYPE = "application/vnd.apache.arrow.stream"
HEADER_READS = "anew-reads"
"""A JSON list: what was read of each table."""

_ENDLESS, _ENDLESS_DAY = 2**63 - 1, 2**31 - 1
_HUGEINT = pa.decimal128(38, 0)


class AskQuery(Request):
    """One SELECT, or EXPLAIN of one."""

    sql: str


def json_rows(table: pa.Table) -> list[list[Any]]:
    """The rows as JSON has them: bytes as base64, times as ISO-8601 UTC, decimals as texts, no NaN.

    Years before 1 and after 9999 have a sign, as in ISO-8601 (``+10000-01-01``, ``-0001-12-31``); SQL's endless times
    are ``infinity`` and ``-infinity``.
    """
    columns = [_listed(column) for column in table.columns]
    return [[_plain(value) for value in row] for row in zip(*columns, strict=True)]


def _listed(column: Any) -> list[Any]:
    found = [value for chunk in column.chunks for value in _values(chunk)]
    # What SQL's sums of whole numbers are: numbers, not money.
    return [None if value is None else int(value) for value in found] if column.type == _HUGEINT else found


def _values(array: Any) -> list[Any]:
    """The values of an array; those that Python has no form for as texts."""
    try:
        values: list[Any] = array.to_pylist()
    except (ValueError, OverflowError):
        # Python has no times before the year 1 nor after 9999.
        return _each(array)
    return values


def _each(array: Any) -> list[Any]:
    held = array.type
    kinds = pa.types
    if kinds.is_dictionary(held):
        return _each(array.dictionary_decode())
    if kinds.is_timestamp(held) or kinds.is_date(held):
        return [None if not value.is_valid else _time(value) for value in array]
    if kinds.is_struct(held):
        names = [held.field(at).name for at in range(held.num_fields)]
        fields = zip(*(_values(field) for field in array.flatten()), strict=True)
        rows = (dict(zip(names, row, strict=True)) for row in fields)
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if kinds.is_map(held):
        return [None if not row.is_valid else _pairs(row.values) for row in array]
    if kinds.is_union(held):
        return [_values(pa.repeat(row.value, 1))[0] if row.value is not None else None for row in array]
    if kinds.is_nested(held):
        return [None if not row.is_valid else _values(row.values) for row in array]
    texts: list[Any] = array.cast(pa.string()).to_pylist()
    return texts


def _pairs(entries: Any) -> list[Any]:
    keys, values = entries.flatten()
    return list(zip(_values(keys), _values(values), strict=True))


def _time(value: Any) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        held, count = value.type, int(value.value)
    endless = _ENDLESS_DAY if pa.types.is_date32(held) else _ENDLESS
    if abs(count) >= endless:
        return "infinity" if count > 0 else "-infinity"
    unit: Any = {pa.date32(): "D", pa.date64(): "ms"}.get(held) or held.unit
    shown = str(np.datetime64(count, unit))
    year, _, rest = shown.removeprefix("-").partition("-")
    # Whole seconds have no fraction, as in other years.
    text = f"{'-' if shown.startswith('-') else '+'}{year:0>4}-{rest}".removesuffix(".000000").removesuffix(".000")
    return text if pa.types.is_date(held) else f"{text}+00:00"


def _plain(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case dt.datetime():
            return (value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)).isoformat()
        case dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return value.total_seconds()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case list() | tuple():
            return [_plain(each) for each in value]
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case _:
            return value
