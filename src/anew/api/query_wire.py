"""Queries over tables on the wire, and the JSON face of their rows."""

from __future__ import annotations

import base64
import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from anew.api.wire import Request

ARROW_TYPE = "application/vnd.apache.arrow.stream"
HEADER_READS = "anew-reads"
"""A JSON list: what was read of each table."""

_HUGEINT = pa.decimal128(38, 0)


class AskQuery(Request):
    """One SELECT, or EXPLAIN of one."""

    sql: str


def json_rows(table: pa.Table) -> list[list[Any]]:
    """The rows as JSON has them: bytes as base64, times as ISO-8601 UTC, decimals as texts, no NaN."""
    columns = [_listed(column) for column in table.columns]
    return [[_plain(value) for value in row] for row in zip(*columns, strict=True)]


def _listed(column: Any) -> list[Any]:
    found: list[Any] = column.to_pylist()
    # What SQL's sums of whole numbers are: numbers, not money.
    return [None if value is None else int(value) for value in found] if column.type == _HUGEINT else found


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
