"""Parquet files that others wrote, as input: their columns, and their rows with the types that they were written in."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anew.codec.filerows import FileRows, batch_of, line_numbers, unreadable_file
from anew.core.errors import InvalidRequest

_BATCH_ROWS = 32_768
_MICROS_OF_NANOS = 9_200_000_000_000_000
"""Times within so many microseconds of 1970 have a number of nanoseconds."""
_EXPECTED = "a Parquet file, whole and not encrypted"


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Row groups of a file, one after the other.

    Attributes:
        begin: The first, from 0.
        end: The one after the last.
        first_row: The number of their first row, from 1.
        bytes: What they take, packed.
    """

    begin: int
    end: int
    first_row: int
    bytes: int


def parquet_names(path: str) -> list[str]:
    """The names of a file's columns.

    Raises:
        InvalidRequest: ``unreadable_input``, naming the file.
    """
    with _Opened(path) as file:
        names: list[str] = file.schema_arrow.names
        return names


def row_groups(path: str, target_bytes: int) -> list[RowGroups]:
    """A file's row groups, in parts of about so many bytes; one part at least.

    Raises:
        InvalidRequest: ``unreadable_input``, naming the file.
    """
    parts: list[RowGroups] = []
    begin = size = 0
    first = row = 1
    with _Opened(path) as file:
        meta = file.metadata
        for index in range(meta.num_row_groups):
            group = meta.row_group(index)
            size, row = size + max(0, group.total_byte_size), row + group.num_rows
            if size >= target_bytes or index == meta.num_row_groups - 1:
                parts.append(RowGroups(begin, index + 1, first, size))
                begin, size, first = index + 1, 0, row
    return parts or [RowGroups(0, 0, 1, 0)]


def read_parquet(path: str, columns: Sequence[str], part: RowGroups | None = None) -> Iterator[FileRows]:
    """Some columns of a file's rows; those that it does not have are left out. Rows are numbered from 1.

    Times that were written as INT96 come in microseconds. Text is not checked to be UTF-8.

    Raises:
        InvalidRequest: ``unreadable_input``, naming the file, and the row from which on it cannot be read.
    """
    row = 1 if part is None else part.first_row
    with _Opened(path) as file, _Opened(path, int96_unit="ns") as exact:
        wanted = [name for name in columns if name in file.schema_arrow.names]
        groups = list(range(file.num_row_groups) if part is None else range(part.begin, part.end))
        int96 = _int96_columns(file, wanted)
        finer = _batches(path, exact, groups, int96, row) if int96 else None
        for batch in _batches(path, file, groups, wanted, row):
            if finer is not None:
                _check_int96(path, batch, next(finer), row)
            arrays: dict[str, Any] = {name: _plain(batch.column(name)) for name in wanted}
            yield FileRows(batch_of(arrays, batch.num_rows), line_numbers(row, batch.num_rows))
            row += batch.num_rows


def _batches(path: str, file: Any, groups: list[int], wanted: list[str], row: int) -> Iterator[pa.RecordBatch]:
    if not groups:
        return
    batches = file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=wanted)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError, ValueError) as error:
            found = f"{_first_line(error)}, in the rows from {row} on"
            raise unreadable_file(path, f"columns {', '.join(wanted)}: {found}", _EXPECTED) from error
        if batch is None:
            return
        if batch.schema.names != wanted:
            batch = _in_order(path, batch, wanted)
        row += batch.num_rows
        yield batch


def _in_order(path: str, batch: pa.RecordBatch, wanted: list[str]) -> pa.RecordBatch:
    if sorted(batch.schema.names) != sorted(wanted):
        found = f"columns {', '.join(batch.schema.names)} where {', '.join(wanted)} were asked for"
        raise unreadable_file(path, found, "columns with a name each")
    return batch.select(wanted)


class _Opened:
    """A Parquet file that is open while the block runs."""

    def __init__(self, path: str, int96_unit: str = "us") -> None:
        self._path, self._unit = path, int96_unit

    def __enter__(self) -> Any:
        try:
            options: Any = {"page_checksum_verification": True, "coerce_int96_timestamp_unit": self._unit}
            self._file = pq.ParquetFile(self._path, memory_map=True, **options)
            # Types that Arrow does not have show only here.
            _ = self._file.schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:
            raise unreadable_file(self._path, _first_line(error), _EXPECTED) from error
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _int96_columns(file: Any, wanted: list[str]) -> list[str]:
    schema = file.schema
    leaves = [schema.column(index) for index in range(len(schema))]
    found = {leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}
    return [name for name in wanted if name in found and pa.types.is_timestamp(file.schema_arrow.field(name).type)]


def _check_int96(path: str, batch: pa.RecordBatch, exact: pa.RecordBatch, row: int) -> None:
    """Raise where INT96 has digits below a microsecond; times that nanoseconds cannot reach are not checked."""
    for name in exact.schema.names:
        micros, nanos = (_numbers(one.column(name)) for one in (batch, exact))
        wrong = (np.abs(micros) < _MICROS_OF_NANOS) & (nanos % 1000 != 0)
        if wrong.any():
            index = int(wrong.argmax())
            raise InvalidRequest(
                "lossy_time",
                f"{path}: the column {name} has times in nanoseconds that microseconds would cut",
                found=f"{exact.column(name)[index]} at row {row + index}",
                expected="INT96 times in whole microseconds",
                hint="write the column in microseconds",
            )


def _numbers(column: Any) -> Any:
    return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)


def _plain(column: Any) -> Any:
    """A column without extension types; UUIDs as text."""
    if isinstance(column.type, pa.BaseExtensionType):
        is_uuid = column.type.extension_name == "arrow.uuid"
        column = column.storage
        if is_uuid:
            texts = [None if value is None else str(uuid.UUID(bytes=value)) for value in column.to_pylist()]
            return pa.array(texts, pa.string())
    return column


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
