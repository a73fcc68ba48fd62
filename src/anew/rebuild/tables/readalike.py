"""Whether the two readers of a segment, Arrow in a refresh and DuckDB in a query, read the same values from a file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from anew.core.errors import AnewError, Failed, InvalidRequest
from anew.core.tables.arrays import pc
from anew.core.tables.columns import Column
from anew.core.tables.segment import ColumnStats
from anew.segments.tables.fingerprint import MODULUS, column_hashes, fingerprint
from anew.sql.query import Limits, QueryEngine
from anew.sql.views import SegmentFile, TableView

_TABLE = "file"
_SHOWN_CHARACTERS = 100
_LIMITS = Limits(memory_bytes=2 * 2**30, seconds=3_600.0, rows=2**62, threads=1)


def check_read_alike(path: Path, columns: Mapping[str, ColumnStats]) -> None:
    """Raise for a column of a file of which queries would answer other values than a refresh would write.

    Args:
        path: A local file.
        columns: Column → what Arrow found in it.

    Raises:
        Failed: ``unreadable_column``: queries cannot read it; ``read_differently``; ``wrong_statistics``: filters would
            lose rows, as the file's statistics leave values out. All name file and column.
    """
    with tempfile.TemporaryDirectory(prefix="anew-import-") as folder:
        # DuckDB would read some letters of a path as a pattern.
        link = Path(folder) / "file.parquet"
        link.symlink_to(path)
        for name, stats in columns.items():
            _check_column(path, link, name, stats)


def _check_column(path: Path, link: Path, name: str, stats: ColumnStats) -> None:
    file = SegmentFile(str(link), {name: stats.type}, segment=path.stem, foreign=True)
    column = Column(name=name, type=stats.type)
    try:
        engine = QueryEngine([TableView(_TABLE, (column,), (file,))])
        try:
            found, extremes = _read(engine, column)
            lost = next((value for value in sorted(extremes) if _is_lost(engine, column, value)), None)
        finally:
            engine.close()
    except AnewError as error:
        raise Failed(
            "unreadable_column",
            f"queries cannot read the column {name} of {path}",
            found=str(error.found).replace(str(link), str(path)),
            expected="a column that is sound",
            hint="write the file again with another program, or leave the column out of the table's schema",
        ) from None
    if lost is not None:
        raise Failed(
            "wrong_statistics",
            f"filters on the column {name} of {path} would lose rows: its statistics leave values out",
            found=f"no row with {lost[:_SHOWN_CHARACTERS]}, which is there",
            expected="statistics that hold for all values",
            hint="write the file again with another program",
        )
    if found != stats.fingerprint:
        raise Failed(
            "read_differently",
            f"the column {name} of {path} means different values to different readers",
            found="DuckDB reads other values than Arrow",
            expected="the same values from both",
            hint="write the file again with another program, or leave the column out of the table's schema",
        )


def _read(engine: QueryEngine, column: Column) -> tuple[int, set[str]]:
    """The fingerprint of a column, and texts of the least and the greatest value of each part of it."""
    total, extremes = 0, set[str]()
    for batch in engine.rows(_TABLE, _LIMITS):
        values = pa.Table.from_batches([batch]).column(0).cast(column.arrow_type)
        total += fingerprint(column_hashes(values))
        if not pa.types.is_binary(values.type):
            both = pc.min_max(values)
            found = (both[which].cast(pa.string()).as_py() for which in ("min", "max"))
            extremes |= {text for text in found if text is not None}
    return total % MODULUS, extremes


def _is_lost(engine: QueryEngine, column: Column, value: str) -> bool:
    """Whether a filter on a value that is there finds no row: statistics of its row group leave it out."""
    literal = "'" + value.replace("'", "''") + "'"
    sql = f'SELECT count(*) AS found FROM {_TABLE} WHERE "{column.name}" = CAST({literal} AS {column.type})'  # noqa: S608 - a column's name is letters, digits and _, and the text is escaped
    try:
        return bool(engine.execute(sql, _LIMITS).column("found")[0].as_py() == 0)
    except InvalidRequest:
        # DuckDB reads no such text as a value of the type: no filter asks for it so.
        return False
