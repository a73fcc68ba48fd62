"""Writing segment files: bytes that a configuration decides, the same for the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anew.core.errors import Failed
from anew.core.tables.arrays import Column, codes, has_long_offsets, is_text, nulls, pc, whole
from anew.core.tables.columns import type_name
from anew.core.tables.config import SegmentConfig

FORMAT_VERSION = "2.6"
_BATCH_ROWS, _CODES_BATCH_ROWS = 2_048, 8_192
"""So many rows are encoded at once: more than Arrow's own number, as it looks at the dictionary once for each batch.
Four times as many where all texts are dictionaries: a page ends with a batch, and one of long texts would be large."""


def write_segment(table: pa.Table, config: SegmentConfig, path: str | Path) -> None:
    """Write rows, already sorted, as a segment file.

    Args:
        table: The columns of ``config.arrow_schema`` in their order; texts and bytes may be dictionaries of them.
        config: What decides the bytes.
        path: A local file; another one at the path is lost.

    Raises:
        Failed: ``wrong_columns``: the table has not the columns of the configuration; ``null_value``.
    """
    schema = _written_schema(table, config)
    columns = [whole(table.column(name)) for name in schema.names]
    size = config.row_group_rows
    options = parquet_options(config, table.num_rows)
    # Statistics leave NaN out, and some readers take them as bounds of all values: there they would lose rows.
    options["write_statistics"] = [
        name for name, column in zip(schema.names, columns, strict=True) if not has_nan(column)
    ]
    if not any(is_text(column.type) for column in columns):
        options["write_batch_size"] = _CODES_BATCH_ROWS
    with pq.ParquetWriter(str(path), schema, **options) as writer:
        for first in range(0, table.num_rows, size):
            group: Any = [_compact(column.slice(first, size)) for column in columns]
            writer.write_table(pa.Table.from_arrays(group, schema=schema), row_group_size=size)


def bloom_values(config: SegmentConfig, rows: int) -> int:
    """For how many values the bloom filters of a file are made: those of a row group, or of the only one."""
    return max(1, min(config.row_group_rows, rows))


def parquet_options(config: SegmentConfig, rows: int) -> dict[str, Any]:
    """What pyarrow is told of a file of so many rows; the same for whoever wants the same bytes."""
    encodings, names = config.encodings, [column.name for column in config.columns]
    values = bloom_values(config, rows)
    return {
        "version": FORMAT_VERSION,
        "compression": {name: encodings[name].codec for name in names},
        "compression_level": {name: level for name in names if (level := encodings[name].level) is not None} or None,
        "use_dictionary": [name for name in names if encodings[name].dictionary] or False,
        "bloom_filter_options": {
            name: {"ndv": values, "fpp": fpp} for name in names if (fpp := encodings[name].bloom) is not None
        }
        or None,
        "write_page_index": config.page_index,
        "sorting_columns": [pq.SortingColumn(names.index(name)) for name in config.sort] or None,
        "write_statistics": True,
        "write_batch_size": _BATCH_ROWS,
        # Arrow's own schema would tell readers how the writer held the columns.
        "store_schema": False,
    }


def _written_schema(table: pa.Table, config: SegmentConfig) -> pa.Schema:
    expected = config.arrow_schema
    if table.column_names != expected.names:
        raise Failed(
            "wrong_columns",
            "rows have other columns than their segment",
            found=table.column_names,
            expected=str(expected),
        )
    fields = []
    for column in config.columns:
        held: Any = table.schema.field(column.name).type
        value: Any = held.value_type if isinstance(held, pa.DictionaryType) else held
        if value != column.arrow_type and not (has_long_offsets(value) and type_name(value) == column.type):
            raise Failed(
                "wrong_columns", f"the column {column.name} is of another type", found=held, expected=column.type
            )
        if not column.nullable and table.column(column.name).null_count:
            raise Failed("null_value", f"the column {column.name} has nulls", expected="none")
        fields.append(pa.field(column.name, held, column.nullable))
    return pa.schema(fields)


def has_nan(column: Column) -> bool:
    """Whether a column is of floats one of which is NaN."""
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())


def _compact(column: Column) -> Column:
    """A dictionary column with no values but those that it has, in the order of the whole dictionary."""
    if not isinstance(column.type, pa.DictionaryType):
        return column
    places = codes(column)
    missing = nulls(column)
    used = np.bincount(places if missing is None else places[~missing], minlength=len(column.dictionary)) > 0
    if used.all() and used.size:
        return column
    kept = used.nonzero()[0]
    renamed = (np.cumsum(used) - 1).astype(np.int32) if used.size else np.zeros(1, np.int32)
    indices: Any = pa.array(renamed[places], mask=missing)
    return pa.DictionaryArray.from_arrays(indices, column.dictionary.take(pa.array(kept)))
