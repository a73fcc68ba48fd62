"""Tables as views over segment files that were written with different columns: adapted while they are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anew.core.errors import Failed
from anew.core.tables.columns import Column
from anew.sql.conversions import Conversion, Conversions
from anew.sql.instance import Connection, quoted, select, text_literal

_GLOB = re.compile(r"[*?\[\]{}]")
_ZONED_NANOSECONDS = "TIMESTAMPTZ_NS"


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A Parquet file of a table, and which columns it holds in which canonical types.

    Attributes:
        path: Local and absolute.
        present: Column → type; what is not there is answered with the wanted column's default.
        segment: The name of the segment, for errors.
        nulls: The columns that have nulls.
        foreign: Whether another program may have written it: then DuckDB is asked in which types it reads the columns.
    """

    path: str
    present: Mapping[str, str]
    segment: str = ""
    nulls: frozenset[str] = frozenset()
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class TableView:
    """A table as queries see it: these columns in this order, whatever each file holds."""

    name: str
    columns: tuple[Column, ...]
    files: tuple[SegmentFile, ...]


class _Held(NamedTuple):
    """How some files hold a column: its canonical type, the one in which DuckDB reads it, and whether it has nulls."""

    kind: str
    read_as: str
    nulls: bool


def view_statement(view: TableView, conversions: Conversions, connection: Connection) -> str:
    """The statement that makes the view.

    Raises:
        Failed: ``bad_segment_path``: DuckDB would read a path as a pattern.
        duckdb.Error: A file is not there, or is not a Parquet file.
    """
    parts = " UNION ALL ".join(_parts(view, conversions, connection))
    return f"CREATE VIEW {quoted(view.name)} AS {parts}"


def stored_values(file: SegmentFile, name: str, connection: Connection) -> str:
    """The statement that selects the stored values of one column of a file, in the canonical type in which it is held.

    Raises:
        Failed, duckdb.Error: As `view_statement`.
    """
    return select(f"{_stored(name, _held(file, name, _read_as(file, connection)))} AS value", _scan([file]))


def _parts(view: TableView, conversions: Conversions, connection: Connection) -> list[str]:
    """One SELECT for all files that hold the wanted columns alike: a filter on a stored column reaches the scan.

    Files of several types are not read as one: DuckDB would convert all to what the first of them holds.
    """
    groups: dict[tuple[tuple[str, _Held], ...], list[SegmentFile]] = {}
    for file in view.files:
        read_as = _read_as(file, connection)
        held = tuple((c.name, _held(file, c.name, read_as)) for c in view.columns if c.name in file.present)
        groups.setdefault(held, []).append(file)
    if not groups:
        row = ", ".join(f"{_default(c)} AS {quoted(c.name)}" for c in view.columns)
        return [f"SELECT {row} WHERE false"]
    return [select(_row(view, dict(held), conversions), _scan(files)) for held, files in groups.items()]


def _held(file: SegmentFile, name: str, read_as: Mapping[str, str]) -> _Held:
    kind = file.present[name]
    return _Held(kind, read_as.get(name.lower(), kind), name in file.nulls)


def _read_as(file: SegmentFile, connection: Connection) -> dict[str, str]:
    """Column, in lower case → DuckDB's type of it; of a file of this project nobody has to ask."""
    if not file.foreign:
        return {}
    described = connection.execute(f"DESCRIBE {select('*', _scan([file]))}").fetchall()
    return {str(row[0]).lower(): str(row[1]) for row in described}


def _row(view: TableView, held: Mapping[str, _Held], conversions: Conversions) -> str:
    values = (
        _value(Conversion(view.name, c, held[c.name].kind), held[c.name], conversions)
        if c.name in held
        else _default(c)
        for c in view.columns
    )
    return ", ".join(f"{value} AS {quoted(c.name)}" for value, c in zip(values, view.columns, strict=True))


def _value(conversion: Conversion, held: _Held, conversions: Conversions) -> str:
    """The values that a refresh would write: converted, and with the default for nulls where there may be none."""
    column = conversion.column
    value = conversions.expression(_stored(column.name, held), conversion)
    if column.nullable or not held.nulls:
        return value
    if column.default is None:
        return conversions.without_nulls(value, conversion)
    return f"COALESCE({value}, {_default(column)})"


def _stored(name: str, held: _Held) -> str:
    """The values that a file holds; a cast to the type that DuckDB reads already is none."""
    stored = quoted(name)
    if held.read_as.startswith(_ZONED_NANOSECONDS):
        # There is no cast from these to TIMESTAMP. An import takes whole microseconds only.
        stored = f"CAST({stored} AS TIMESTAMP WITH TIME ZONE)"
    return f"CAST({stored} AS {held.kind})"


def _default(column: Column) -> str:
    if column.default is None:
        return f"CAST(NULL AS {column.type})"
    text = text_literal(str(column.default))
    return f"CAST({f'from_base64({text})' if column.type == 'blob' else text} AS {column.type})"


def _scan(files: Sequence[SegmentFile]) -> str:
    for file in files:
        if _GLOB.search(file.path):
            expected = "a path without * ? [ ] { }"
            raise Failed("bad_segment_path", "a file cannot be queried there", found=file.path, expected=expected)
    paths = ", ".join(text_literal(file.path) for file in files)
    # Names of folders are not columns. Statistics of floats leave NaN out; unless it is told so, DuckDB takes them as
    # bounds of all values.
    return f"read_parquet([{paths}], hive_partitioning = false, can_have_nan = true)"
