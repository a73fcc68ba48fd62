"""Tables as views over segment files that were written with different columns: adapted while they are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anew.core.errors import Failed
from anew.core.tables.columns import Column
from anew.sql.instance import quoted, select, text_literal

_GLOB = re.compile(r"[*?\[\]{}]")


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A Parquet file of a table, and which columns it holds in which canonical types.

    Attributes:
        path: Local and absolute.
        present: Column → type; what is not there is answered with the wanted column's default.
    """

    path: str
    present: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableView:
    """A table as queries see it: these columns in this order, whatever each file holds."""

    name: str
    columns: tuple[Column, ...]
    files: tuple[SegmentFile, ...]


def view_statement(view: TableView) -> str:
    """The statement that makes the view.

    Raises:
        Failed: ``bad_segment_path``: DuckDB would read a path as a pattern.
    """
    return f"CREATE VIEW {quoted(view.name)} AS {' UNION ALL '.join(_parts(view))}"


def _parts(view: TableView) -> list[str]:
    """One SELECT for all files that hold the wanted columns alike: a filter on a stored column reaches the scan.

    Files of several types are not read as one: DuckDB would convert all to what the first of them holds.
    """
    groups: dict[tuple[tuple[str, str], ...], list[SegmentFile]] = {}
    for file in view.files:
        held = tuple((c.name, file.present[c.name]) for c in view.columns if c.name in file.present)
        groups.setdefault(held, []).append(file)
    if not groups:
        return [f"SELECT {_row(view.columns, set())} WHERE false"]
    return [select(_row(view.columns, {name for name, _ in held}), _scan(files)) for held, files in groups.items()]


def _row(columns: tuple[Column, ...], stored: set[str]) -> str:
    return ", ".join(f"{_value(c, stored)} AS {quoted(c.name)}" for c in columns)


def _value(column: Column, stored: set[str]) -> str:
    # A cast to the type that it has is none: only other types are converted, and a value that does not fit is an error.
    held = quoted(column.name) if column.name in stored else _default(column)
    return f"CAST({held} AS {column.type})"


def _default(column: Column) -> str:
    if column.default is None:
        return "NULL"
    text = text_literal(str(column.default))
    return f"from_base64({text})" if column.type == "blob" else text


def _scan(files: Sequence[SegmentFile]) -> str:
    for file in files:
        if _GLOB.search(file.path):
            expected = "a path without * ? [ ] { }"
            raise Failed("bad_segment_path", "a file cannot be queried there", found=file.path, expected=expected)
    paths = ", ".join(text_literal(file.path) for file in files)
    # Names of folders are no columns.
    return f"read_parquet([{paths}], hive_partitioning = false)"
