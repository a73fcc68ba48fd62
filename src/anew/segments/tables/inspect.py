"""Reading finished files back: what they hold, and whether they are what was promised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from anew.core.errors import Failed
from anew.core.tables.arrays import whole
from anew.core.tables.columns import type_name
from anew.core.tables.config import SegmentConfig
from anew.core.tables.segment import ColumnStats, Contents
from anew.segments.tables.bounds import bounds_of
from anew.segments.tables.fingerprint import Fingerprints, fingerprints
from anew.segments.tables.footer import layout_faults, sorting_is_said
from anew.segments.tables.order import is_sorted
from anew.segments.tables.partitions import partitions_of
from anew.segments.tables.reading import metadata_of, read_rows


@dataclass(frozen=True, slots=True)
class ReadBack:
    """A finished file as it was read back.

    Attributes:
        metadata: Its footer (`pq.FileMetaData`).
        table: Its rows; texts and bytes may be dictionaries.
    """

    metadata: Any
    table: pa.Table


def read_back(path: Path | str) -> ReadBack:
    """Read a whole file.

    Raises:
        Failed: ``segment_unreadable``.
    """
    return ReadBack(metadata_of(path), read_rows(path))


def contents_of(
    path: Path | str, config: SegmentConfig | None = None, filled: frozenset[str] = frozenset()
) -> Contents:
    """What a file holds, read from the file itself.

    Args:
        path: A local file.
        config: Whose partitioning is meant; None: no partitions.
        filled: The columns whose values are nothing but the default, which a file does not tell.

    Raises:
        Failed: ``segment_unreadable``; ``unsupported_type``: names a column of a type that tables do not have.
    """
    read = read_back(path)
    return contents_from(read, config, fingerprints(read.table), filled)


def contents_from(
    read: ReadBack, config: SegmentConfig | None, prints: Fingerprints, filled: frozenset[str] = frozenset()
) -> Contents:
    """What a file that was read back holds, with its fingerprints.

    Raises:
        Failed: ``unsupported_type``.
    """
    columns = {}
    for name in read.table.column_names:
        column = whole(read.table.column(name))
        least, greatest = bounds_of(column)
        columns[name] = ColumnStats(
            type=_type(name, column.type),
            nulls=column.null_count,
            least=least,
            greatest=greatest,
            fingerprint=prints.columns[name],
            filled=name in filled,
        )
    partitioning = None if config is None else config.partition
    return Contents(
        rows=read.table.num_rows,
        columns=columns,
        row_fingerprint=prints.rows,
        partitions=None
        if partitioning is None
        else partitions_of(whole(read.table.column(partitioning.column)), partitioning),
        created_by=read.metadata.created_by or "",
    )


def verify_segment(path: Path | str, config: SegmentConfig, *, rows: int | None = None) -> None:
    """Read a file and check that it is what the configuration promises.

    Checked are the schema, the order (of the rows, and what the footer says of it), row groups, codecs, dictionaries,
    bloom filters, page indexes and statistics; levels cannot be seen.

    Args:
        path: A local file.
        config: What it was made with.
        rows: How many rows it has to have.

    Raises:
        Failed: ``segment_unsound``, ``segment_unreadable``.
    """
    check_sound(read_back(path), config, rows=rows)


def check_sound(read: ReadBack, config: SegmentConfig, *, rows: int | None = None) -> None:
    """`verify_segment` of a file that was read back.

    Raises:
        Failed: ``segment_unsound``.
    """
    found = read.metadata.schema.to_arrow_schema().remove_metadata()
    if not found.equals(config.arrow_schema):
        raise _unsound("its columns are others", str(found), str(config.arrow_schema))
    count = read.table.num_rows
    if count != read.metadata.num_rows or (rows is not None and count != rows):
        raise _unsound("it has another number of rows", count, read.metadata.num_rows if rows is None else rows)
    for column in config.columns:
        if not column.nullable and read.table.column(column.name).null_count:
            raise _unsound(f"{column.name} has nulls", read.table.column(column.name).null_count, 0)
    if not is_sorted(read.table, config.sort):
        raise _unsound("it is not sorted", None, ", ".join(config.sort))
    if not sorting_is_said(read.metadata, config):
        raise _unsound("it does not say how it is sorted", None, ", ".join(config.sort) or "nothing said")
    faults = layout_faults(read.metadata, config)
    if faults:
        raise _unsound("its layout is another one", "; ".join(fault.text for fault in faults), None)


def _type(name: str, held: Any) -> str:
    found = type_name(held)
    if found is None:
        raise Failed("unsupported_type", f"tables have no type for the column {name}", found=str(held))
    return found


def _unsound(message: str, found: Any, expected: Any) -> Failed:
    return Failed(
        "segment_unsound", f"a segment file is not what was promised: {message}", found=found, expected=expected
    )
