"""Reading segment files whole, on one thread."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anew.core.errors import Failed
from anew.core.tables.arrays import Held, whole_table

_FEW_BYTES = 4
"""A column of texts that takes fewer bytes a row than this before compression is a dictionary and places in it: reading
it as that is faster, and so is all that follows."""


def metadata_of(path: Path | str) -> Any:
    """The footer of a Parquet file.

    Raises:
        Failed: ``segment_unreadable``: it is no Parquet file.
    """
    try:
        return pq.read_metadata(str(path))
    except pa.ArrowInvalid as error:
        raise unreadable(path, error) from error


def read_rows(path: Path | str, names: Collection[str] | None = None) -> pa.Table:
    """The rows of a Parquet file, some columns or all, one chunk each; texts with few values as dictionaries.

    Raises:
        Failed: ``segment_unreadable``: it is no Parquet file, a damaged one, or two of its columns have one name.
    """
    metadata = metadata_of(path)
    chosen = None if names is None else [name for name in metadata.schema.to_arrow_schema().names if name in set(names)]
    try:
        with pq.ParquetFile(
            str(path), metadata=metadata, memory_map=True, read_dictionary=_dictionaries(metadata), pre_buffer=False
        ) as file:
            read = file.read(columns=chosen, use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise unreadable(path, error) from error
    if len(set(read.column_names)) < len(read.column_names):
        raise unreadable(path, ValueError("two columns have one name"))
    # What another program says about its own types is none of a table's business.
    return whole_table(_without_views(read.replace_schema_metadata(None)))


def plain_type(held: Held) -> Held:
    """The type of the values as a file holds them, however the program that wrote it held them."""
    kinds = pa.types
    if isinstance(held, pa.DictionaryType):
        return plain_type(held.value_type)
    if kinds.is_large_string(held) or kinds.is_string_view(held):
        return pa.string()
    return pa.binary() if kinds.is_large_binary(held) or kinds.is_binary_view(held) else held


def unreadable(path: Path | str, error: Exception) -> Failed:
    """The error about a file that cannot be read."""
    return Failed("segment_unreadable", "a file cannot be read as Parquet", found=f"{path}: {error}")


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
