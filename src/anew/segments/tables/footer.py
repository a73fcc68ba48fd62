"""What a file's footer says against what a configuration wants of the file's layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from anew.core.tables.config import Encoding, SegmentConfig

_CODECS = {"none": "UNCOMPRESSED"}
"""A codec's name in a footer where that is not its own in capitals."""
_FLOATS = frozenset({"real", "double"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a layout is not the one wanted.

    Attributes:
        kind: That of `anew.core.tables.config.Reason`, or ``statistics``.
        column: Which column it is about; None: the file.
        text: For people.
    """

    kind: str
    column: str | None
    text: str


def layout_faults(metadata: Any, config: SegmentConfig) -> tuple[Fault, ...]:
    """Where the layout of a file (`pq.FileMetaData`) is not the one wanted: levels and sorting are not looked at.

    The columns of the configuration that the file does not have are left out. A file without rows has no layout.
    """
    if metadata.num_rows == 0:
        return ()
    places = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    faults = list(_group_faults([group.num_rows for group in groups], config.row_group_rows))
    for column in config.columns:
        if column.name in places:
            chunks = [group.column(places[column.name]) for group in groups]
            faults += _chunk_faults(column.name, chunks, config)
            # Columns with NaN have no statistics, and no reader of ours goes by those of floats.
            if column.type not in _FLOATS and not all(chunk.is_stats_set for chunk in chunks):
                faults.append(Fault("statistics", column.name, f"statistics of {column.name}: none"))
            # No writer has dictionaries of two values.
            if column.type != "boolean":
                faults += _dictionary_faults(column.name, chunks, config.encodings[column.name])
    return tuple(faults)


def sorting_is_said(metadata: Any, config: SegmentConfig) -> bool:
    """Whether the footer says of every row group that it is in the order of the configuration, and of no other."""
    places = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    wanted = tuple(pq.SortingColumn(places[name]) for name in config.sort)
    return all(tuple(metadata.row_group(number).sorting_columns) == wanted for number in range(metadata.num_row_groups))


def _group_faults(sizes: list[int], wanted: int) -> Iterator[Fault]:
    if any(size != wanted for size in sizes[:-1]) or sizes[-1] > wanted:
        yield Fault("row_group_rows", None, f"row groups hold up to {max(sizes)} rows, wanted {wanted}")


def _chunk_faults(name: str, chunks: list[Any], config: SegmentConfig) -> Iterator[Fault]:
    encoding = config.encodings[name]
    codec = _CODECS.get(encoding.codec, encoding.codec.upper())
    found = {chunk.compression for chunk in chunks}
    if found != {codec}:
        yield Fault("codec", name, f"codec of {name}: {', '.join(sorted(found)).lower()}, wanted {encoding.codec}")
    if any((chunk.bloom_filter_offset is not None) != (encoding.bloom is not None) for chunk in chunks):
        yield Fault("bloom", name, f"bloom filter of {name}: {'none' if encoding.bloom else 'there'}")
    if any(_has_page_index(chunk) != config.page_index for chunk in chunks):
        yield Fault("page_index", name, f"page index of {name}: {'none' if config.page_index else 'there'}")


def _has_page_index(chunk: Any) -> bool:
    """Without statistics there is nothing for a column index to say."""
    return bool(chunk.has_offset_index and (chunk.has_column_index or not chunk.is_stats_set))


def _dictionary_faults(name: str, chunks: list[Any], encoding: Encoding) -> Iterator[Fault]:
    """A dictionary is given up where values are too many, and never where there are none."""
    there = any(chunk.has_dictionary_page for chunk in chunks)
    if there != encoding.dictionary:
        yield Fault("dictionary", name, f"dictionary of {name}: {'there' if there else 'none'}")
