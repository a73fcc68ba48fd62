"""Naming the rows of an input that do not fit: file, line, column. Reads the offending files again, in order."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlparse

import pyarrow as pa

from anew.codec.avro import parse_schema
from anew.codec.container import read_container
from anew.codec.vector import Misfit
from anew.core.plan import PushInput
from anew.rebuild.header import opened_text
from anew.segments.basefile import iter_columns
from anew.spark.pushscan import EncodeTask, cast_selected, written_times

_CHUNK_ROWS = 10_000


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


def locate(uris: list[str], files: PushInput, task: EncodeTask) -> Iterator[BadRow]:
    """The rows of the files that do not fit, in order, as they are found."""
    columns = [*dict.fromkeys([*task.key, *task.value, *([task.written_at] if task.written_at else [])])]
    for uri in uris:
        path = Path(unquote(urlparse(uri).path))
        if files.format == "parquet":
            chunks: Iterator[_Chunk] = _parquet_chunks(path, columns)
        elif files.format == "avro":
            chunks = _avro_chunks(path, columns)
        else:
            chunks = _text_chunks(path, files, columns)
        for chunk in chunks:
            yield from _misfits(path, chunk, task)


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


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    row: dict[str, str | None] | None
    text: Any


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Rows as a batch with the line of each, and the rows that could not be parsed."""

    batch: pa.RecordBatch
    lines: list[int]
    unparsed: list[_Row]


def _parquet_chunks(path: Path, columns: list[str]) -> Iterator[_Chunk]:
    first = 1
    for batch in iter_columns(str(path), columns):
        yield _Chunk(batch, list(range(first, first + batch.num_rows)), [])
        first += batch.num_rows


def _avro_chunks(path: Path, columns: list[str]) -> Iterator[_Chunk]:
    first = 1
    with path.open("rb") as source:
        for batch in read_container(source, columns):
            yield _Chunk(batch, list(range(first, first + batch.num_rows)), [])
            first += batch.num_rows


def _text_chunks(path: Path, files: PushInput, columns: list[str]) -> Iterator[_Chunk]:
    with opened_text(path) as lines:
        rows = _json_rows(lines) if files.format == "json" else _csv_rows(lines, files.options)
        while chunk := list(itertools.islice(rows, _CHUNK_ROWS)):
            parsed = [row for row in chunk if row.row is not None]
            arrays: list[Any] = [pa.array([(row.row or {}).get(c) for row in parsed], pa.string()) for c in columns]
            batch = pa.RecordBatch.from_arrays(arrays, names=columns)
            yield _Chunk(batch, [row.line for row in parsed], [row for row in chunk if row.row is None])


def _csv_rows(lines: IO[str], options: dict[str, str]) -> Iterator[_Row]:
    separator = options.get("sep", options.get("delimiter", ","))
    null_text = options.get("nullValue", "")
    header: list[str] | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        cells = next(csv.reader([line], delimiter=separator))
        if header is None:
            header = cells
        elif len(cells) != len(header):
            yield _Row(number, None, line.rstrip("\n"))
        else:
            values = [None if cell in ("", null_text) else cell for cell in cells]
            yield _Row(number, dict(zip(header, values, strict=True)), line.rstrip("\n"))


def _json_rows(lines: IO[str]) -> Iterator[_Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            parsed = json.loads(line)
        except json.JSONDecodeError:
            parsed = None
        if not isinstance(parsed, dict):
            yield _Row(number, None, line.rstrip("\n"))
            continue
        texts = {name: _json_text(value) for name, value in parsed.items()}
        yield _Row(number, texts, parsed)


def _json_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def _misfits(path: Path, chunk: _Chunk, task: EncodeTask) -> Iterator[BadRow]:
    file, batch = str(path), chunk.batch
    bad = [BadRow(file, row.line, "-", str(row.text), "a row that parses", row.text) for row in chunk.unparsed]
    misfits: list[Misfit] = []
    for schema_text, names in ((task.key_schema, task.key), (task.value_schema, task.value)):
        misfits += cast_selected(parse_schema(schema_text), batch, names).misfits
    if task.written_at is not None:
        column: Any = batch.column(task.written_at)
        _, wrong = written_times(column)
        misfits += [Misfit(int(i), task.written_at, str(column[int(i)]), "a time") for i in wrong.nonzero()[0]]
    bad += [
        BadRow(file, chunk.lines[m.row], m.column, m.found, m.expected, batch.slice(m.row, 1).to_pylist()[0])
        for m in misfits
    ]
    yield from sorted(bad, key=lambda row: row.line)
