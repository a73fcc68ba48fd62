"""Arrow columns as single arrays, and what numpy sees of them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

# pyarrow's stubs know no array and no kernel for columns of just any type.
Column: TypeAlias = Any
Held: TypeAlias = Any
pc: Any = pyarrow.compute
Mask = npt.NDArray[np.bool_]

_MOST_BYTES = 2**31 - 2**20
"""What an array of texts with 32-bit offsets can hold, with a margin."""


def whole(column: Column) -> Column:
    """A column as one array, shape (n,); texts that are too many for 32-bit offsets get 64-bit ones."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    held = column.type
    if isinstance(held, pa.DictionaryType):
        column = column.unify_dictionaries()
    elif column.nbytes > _MOST_BYTES and (pa.types.is_string(held) or pa.types.is_binary(held)):
        column = column.cast(pa.large_string() if pa.types.is_string(held) else pa.large_binary())
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def whole_table(table: pa.Table) -> pa.Table:
    """A table whose columns have one chunk each."""
    return table_of({name: whole(table.column(name)) for name in table.column_names})


def table_of(columns: dict[str, Column]) -> pa.Table:
    """A table of named columns of one length."""
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def decoded(column: Column) -> Column:
    """A column without a dictionary."""
    return column.dictionary_decode() if isinstance(column.type, pa.DictionaryType) else column


def has_long_offsets(held: Held) -> bool:
    """Whether a column is of texts or bytes that may be more than 2 GiB."""
    return pa.types.is_large_string(held) or pa.types.is_large_binary(held)


def is_text(held: Held) -> bool:
    """Whether a column is of texts or bytes, not of places in a dictionary of them."""
    return pa.types.is_string(held) or pa.types.is_binary(held) or has_long_offsets(held)


def numbers(column: Column, kind: Any) -> Any:
    """The fixed-width values of a column as they lie in memory, shape (n,); what nulls hold is arbitrary."""
    buffers = column.buffers()
    if len(column) == 0 or buffers[1] is None:
        return np.zeros(len(column), dtype=kind)
    return np.frombuffer(buffers[1], dtype=kind)[column.offset : column.offset + len(column)]


def nulls(column: Column) -> Mask | None:
    """Where a column is null, shape (n,); None where nowhere."""
    if not column.null_count:
        return None
    found: Mask = column.is_null().to_numpy(zero_copy_only=False)
    return found


def codes(column: Column) -> npt.NDArray[np.int64]:
    """The places in the dictionary of a dictionary column, shape (n,); 0 for nulls."""
    indices = column.indices
    if indices.null_count:
        indices = indices.fill_null(0)
    found: npt.NDArray[np.int64] = indices.to_numpy(zero_copy_only=False)
    return found


def all_null(count: int, held: Held) -> Column:
    """A column of nulls, shape (count,)."""
    return pa.nulls(count, held)


def mask_of(found: Column) -> Mask:
    """A boolean column as numpy's, shape (n,); null is false."""
    column = whole(found)
    if column.null_count:
        column = column.fill_null(False)
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.bool_)
