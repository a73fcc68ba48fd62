"""Naming the rows of an input that do not fit: file, line, column. Reads the offending files again, in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from anew.codec.avro import parse_schema
from anew.codec.carried import carried_schema
from anew.codec.casting import Cast
from anew.codec.converting import shown_value
from anew.codec.filerows import FileRows
from anew.codec.vector import Misfit
from anew.core.stores.plan import PushInput
from anew.spark.inputcolumns import EncodeTask, cast_selected, path_of, wanted_columns
from anew.spark.inputfiles import Piece, read_piece
from anew.spark.stores.writtenat import written_times


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that does not fit.

    Attributes:
        file: The path.
        line: Its line in a text file, its row number (from 1) in a Parquet file.
        column: The column that does not fit, ``-`` when the row cannot be parsed.
        row: The row as it was found.
    """

    file: str
    line: int
    column: str
    found: str
    expected: str
    row: Any

    @property
    def shown(self) -> str:
        """One line for people."""
        return f"{self.file}:{self.line}: {self.column}: found {self.found}, expected {self.expected}"


Further = Callable[[Cast], list[Misfit]]
"""More values of a cast's input that do not fit, beside those that the cast found itself."""


def locate(uris: list[str], files: PushInput, task: EncodeTask, further: Further | None = None) -> Iterator[BadRow]:
    """The rows of the files that do not fit, in order, as they are found: read as the tasks of the build read them.

    Args:
        uris: The files to look at.
        files: How they are read.
        task: What is wanted of them.
        further: What is wanted of values besides; None: nothing.
    """
    wanted = wanted_columns(task)
    for uri in uris:
        piece = Piece(path_of(uri), 0)
        for rows in read_piece(piece, files, wanted):
            yield from _misfits(piece.path, rows, task, further)


def write_bad_rows(target: Path, rows: Iterator[BadRow]) -> int:
    """Put bad rows aside as JSON lines; returns how many."""
    count = 0
    with target.open("w", encoding="utf-8") as sink:
        for row in rows:
            record = {
                "file": row.file,
                "line": row.line,
                "column": row.column,
                "found": row.found,
                "expected": row.expected,
                "row": row.row,
            }
            sink.write(json.dumps(record, default=str) + "\n")
            count += 1
    return count


def _misfits(file: str, rows: FileRows, task: EncodeTask, further: Further | None) -> Iterator[BadRow]:
    batch = rows.batch
    bad = [BadRow(file, row.line, "-", row.text, row.expected, row.text) for row in rows.unparsed]
    misfits: list[Misfit] = []
    for schema_text, names in ((task.key_schema, task.key), (task.value_schema, task.value)):
        cast = cast_selected(parse_schema(schema_text), batch, names)
        misfits += cast.misfits if further is None else [*cast.misfits, *further(cast)]
    if task.written_at is not None:
        column: Any = batch.column(task.written_at)
        written = written_times(column, task.latest_ms)
        for row in written.bad.nonzero()[0].tolist():
            misfits.append(Misfit(row, task.written_at, written.found(column, row), written.expected))
    bad += [
        BadRow(file, int(rows.lines[m.row]), m.column, m.found, m.expected, _shown_row(batch, m.row)) for m in misfits
    ]
    yield from sorted(bad, key=lambda row: row.line)


def _shown_row(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    """A row's values by name; those that Python has no value for in words."""
    shown: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values: Any = column
        field = batch.schema.field(name)
        try:
            shown[name] = values[row].as_py() if carried_schema(field) is None else shown_value(values, field, row)
        except (ValueError, OverflowError):
            shown[name] = shown_value(values, field, row)
    return shown
