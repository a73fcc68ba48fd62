"""Tables of tests: configurations, segment files and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anew.core.tables.columns import Column, parse_columns, type_name
from anew.core.tables.config import SegmentConfig, segment_config
from anew.core.tables.settings import TableSettings
from anew.sql.query import Limits
from anew.sql.views import SegmentFile

LIMITS = Limits(memory_bytes=256_000_000, seconds=20.0, rows=100_000, threads=1)


def columns(**types: str) -> tuple[Column, ...]:
    """Columns by name and type; ``type=default`` gives one a default."""
    entries: list[dict[str, Any]] = []
    for name, told in types.items():
        kind, _, default = told.partition("=")
        number = kind in ("smallint", "integer", "bigint")
        entries.append({"name": name, "type": kind, "default": int(default) if default and number else default or None})
    return parse_columns({"columns": entries})


def config(derived: dict[str, str], *, row_filter: str | None = None) -> SegmentConfig:
    """A configuration over a column of each sort."""
    known = columns(
        a="bigint",
        B="varchar",
        d="date",
        f="double",
        ts="timestamp",
        flag="boolean",
        x="integer",
        y="varchar",
        z="date",
    )
    return segment_config(known, TableSettings(derived=derived, row_filter=row_filter))


def segment(path: Path, table: pa.Table, *, row_group_rows: int = 10_000) -> SegmentFile:
    """A Parquet file of the table, and what it holds."""
    pq.write_table(table, path, row_group_size=row_group_rows)
    return SegmentFile(str(path), {field.name: str(type_name(field.type)) for field in table.schema})
