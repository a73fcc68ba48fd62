"""Reading segment files whole, on one thread."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anew.core.errors import Failed
from anew.core.tables.arrays import Column, Held, whole, whole_table

UNREADABLE = (pa.ArrowException, OSError, ValueError, NotImplementedError)
"""What Arrow raises for a file that it cannot read: damaged, encrypted, or of a kind that it does not know."""

_FEW_BYTES = 4
"""A column of texts that takes fewer bytes a row than this before compression is a dictionary and places in it: reading
it as that is faster, and so is all that follows."""


def metadata_of(path: Path | str) -> Any:
    """The footer of a Parquet file.

    Raises:
        Failed: ``segment_unreadable``: it is not a Parquet file, or one that Arrow cannot read.
    """
    try:
        return pq.read_metadata(str(path))
    except UNREADABLE as error:
        raise unreadable(path, error) from error


def read_rows(path: Path | str, names: Collection[str] | None = None) -> pa.Table:
    """The rows of a Parquet file, some columns or all, one chunk each; texts with few values as dictionaries.

    Times that a file holds as INT96 are in µs: in ns those outside of the years 1677 to 2262 would wrap around.

    Raises:
        Failed: ``segment_unreadable``: it is not a Parquet file, a damaged one, or two of its columns have one name;
            names the column where one of them is to blame.
    """
    metadata = metadata_of(path)
    chosen = None if names is None else [name for name in _names(path, metadata) if name in set(names)]
    options = {"metadata": metadata, "memory_map": True, "pre_buffer": False, "coerce_int96_timestamp_unit": "us"}
    try:
        with pq.ParquetFile(str(path), read_dictionary=_dictionaries(metadata), **options) as file:
            read = file.read(columns=chosen, use_threads=False)
    except UNREADABLE as error:
        raise _unreadable_column(path, _names(path, metadata) if chosen is None else chosen, error) from error
    if len(set(read.column_names)) < len(read.column_names):
        raise unreadable(path, ValueError("two columns have one name"))
    # What another program says about its own types is none of a table's business.
    return whole_table(_without_views(read.replace_schema_metadata(None)))


def read_checked(path: Path | str, name: str) -> Column:
    """One column of a Parquet file that another program may have written, one chunk; checksums of pages are checked.

    Raises:
        Failed: As `read_rows`.
    """
    return _column(path, name, "us")


def int96_as(path: Path | str, name: str, unit: str) -> Column:
    """A column of INT96 in another unit than µs, modulo 2**64, one chunk.

    Raises:
        Failed: As `read_rows`.
    """
    return _column(path, name, unit)


def _column(path: Path | str, name: str, int96_unit: str) -> Column:
    options: dict[str, Any] = {"coerce_int96_timestamp_unit": int96_unit, "page_checksum_verification": True}
    try:
        with pq.ParquetFile(str(path), **options) as file:
            read = file.read(columns=[name], use_threads=False)
    except UNREADABLE as error:
        raise unreadable(path, error, name) from error
    return whole(_without_views(read.select([name]).replace_schema_metadata(None)).column(0))


def _names(path: Path | str, metadata: Any) -> list[str]:
    try:
        names: list[str] = metadata.schema.to_arrow_schema().names
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    return names


def _unreadable_column(path: Path | str, names: Collection[str], error: Exception) -> Failed:
    """The error about a file, with the first column that cannot be read alone."""
    for name in names:
        try:
            _column(path, name, "us")
        except Failed as failed:
            return failed
    return unreadable(path, error)


def plain_type(held: Held) -> Held:
    """The type of the values as a file holds them, however the program that wrote it held them."""
    kinds = pa.types
    if isinstance(held, pa.DictionaryType):
        return plain_type(held.value_type)
    if kinds.is_large_string(held) or kinds.is_string_view(held):
        return pa.string()
    return pa.binary() if kinds.is_large_binary(held) or kinds.is_binary_view(held) else held


def unreadable(path: Path | str, error: Exception, column: str | None = None) -> Failed:
    """The error about a file that cannot be read, or about one column of it."""
    what = "a file" if column is None else f"the column {column} of a file"
    return Failed("segment_unreadable", f"{what} cannot be read as Parquet", found=f"{path}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _without_views(table: pa.Table) -> pa.Table:
    kinds = pa.types
    for at, field in enumerate(table.schema):
        held: Any = field.type
        if kinds.is_string_view(held) or kinds.is_binary_view(held):
            large = pa.large_string() if kinds.is_string_view(held) else pa.large_binary()
            table = table.set_column(at, field.name, table.column(at).cast(large))
    return table


def _dictionaries(metadata: Any) -> list[str]:
    """The columns of texts or bytes that are quicker read as dictionaries."""
    rows = metadata.num_rows
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    found = []
    for at in range(metadata.num_columns if rows else 0):
        column = metadata.schema.column(at)
        if column.physical_type != "BYTE_ARRAY" or column.max_repetition_level or "." in column.path:
            continue
        chunks = [group.column(at) for group in groups]
        size = sum(chunk.total_uncompressed_size for chunk in chunks)
        if size < _FEW_BYTES * rows and all(chunk.has_dictionary_page for chunk in chunks):
            found.append(column.path)
    return found
