"""What the row groups of a file say of their columns: by it a reader passes over those that it does not need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from anew.core.tables.columns import type_name
from anew.core.tables.segment import ColumnStats
from anew.segments.tables.bounds import footer_bounds
from anew.segments.tables.reading import metadata_of

_FLOATS = frozenset({"real", "double"})


class RowGroup(NamedTuple):
    """So many rows, and what is known of their columns; fingerprints are not, they are 0."""

    rows: int
    columns: dict[str, ColumnStats]


def row_groups(path: Path) -> list[RowGroup]:
    """The row groups of a segment's file, as its footer describes them.

    Raises:
        Failed: ``segment_unreadable``: it is no Parquet file.
    """
    metadata = metadata_of(path)
    schema = metadata.schema.to_arrow_schema()
    types = {field.name: type_name(field.type) for field in schema}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [RowGroup(group.num_rows, dict(_columns(group, types))) for group in groups]


def _columns(group: Any, types: dict[str, str | None]) -> Iterator[tuple[str, ColumnStats]]:
    for number in range(group.num_columns):
        chunk = group.column(number)
        held, found = types.get(chunk.path_in_schema), chunk.statistics
        # A footer leaves NaN out of its bounds, and a query does not.
        if held is not None and held not in _FLOATS and found is not None and found.has_null_count:
            least, greatest = footer_bounds(found) if found.has_min_max else (None, None)
            yield (
                chunk.path_in_schema,
                ColumnStats(type=held, nulls=found.null_count, least=least, greatest=greatest, fingerprint=0),
            )
