"""Rows and configurations of which the tests of segment files are made."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from anew.core.tables.columns import Column, Role, parse_columns
from anew.core.tables.config import SegmentConfig, segment_config
from anew.core.tables.settings import TABLE_SETTINGS, TableSettings

EVERY_TYPE: dict[str, list[Any]] = {
    "boolean": [True, False, None, True],
    "smallint": [3, -(2**15), None, 2**15 - 1],
    "integer": [3, -(2**31), None, 2**31 - 1],
    "bigint": [3, -(2**63), None, 2**63 - 1],
    "real": [1.5, -0.0, None, float("inf")],
    "double": [1.5, -0.0, None, 1e300],
    "varchar": ["b", "", None, "a" * 70],
    "blob": [b"b", b"", None, b"\xff" * 70],
    "date": [dt.date(2024, 2, 29), dt.date(1, 1, 1), None, dt.date(9999, 12, 31)],
    "timestamp": [dt.datetime.fromisoformat(m) for m in ("2024-02-29T01:02:03.000004", "0001-01-01")]
    + [None, dt.datetime.fromisoformat("9999-12-31")],
    "decimal(10,2)": [Decimal("1.50"), Decimal("-99999999.99"), None, Decimal("0.00")],
    "decimal(38,0)": [Decimal(10**37), Decimal(-(10**37)), None, Decimal(0)],
}
"""Type → values of it, with the extreme ones and a null."""


def every_type() -> tuple[tuple[Column, ...], pa.Table]:
    """A column ``c0``, ``c1``, … of each type, and rows of them."""
    columns = tuple(Column(name=f"c{at}", type=kind) for at, kind in enumerate(EVERY_TYPE))
    held = {c.name: pa.array(EVERY_TYPE[c.type], c.arrow_type) for c in columns}
    by_name = dict(sorted(held.items()))
    return columns, pa.table(by_name)


def config_of(columns: dict[str, Any], **settings: Any) -> SegmentConfig:
    """A configuration: column → type, or what a schema file says of it."""
    entries = [
        {"name": name, "type": said} if isinstance(said, str) else {"name": name, **said}
        for name, said in columns.items()
    ]
    return segment_config(parse_columns({"columns": entries}), TableSettings(**TABLE_SETTINGS.parse(settings)))


COLUMNS: dict[str, Any] = {
    "amount": "double",
    "at": {"type": "timestamp", "role": Role.TIME.value},
    "city": "varchar",
    "id": "bigint",
    "name": "varchar",
}


def trips(count: int = 5_000, seed: int = 1) -> pa.Table:
    """Rows of `COLUMNS` in no order: twenty cities, names that are all different, nulls in ``amount`` and ``city``."""
    chance = np.random.default_rng(seed)
    numbers = chance.permutation(count)
    cities = [f"city{number}" for number in chance.integers(0, 20, count)]
    return pa.table(
        {
            "amount": pa.array(chance.normal(size=count), mask=chance.random(count) < 0.1),
            "at": pa.array(1_700_000_000_000_000 + chance.integers(0, 10**12, count)).cast(pa.timestamp("us")),
            "city": pa.array(cities, pa.string(), mask=chance.random(count) < 0.1),
            "id": pa.array(numbers),
            "name": pa.array([f"name {number}" for number in numbers], pa.string()),
        }
    )
