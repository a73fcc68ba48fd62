"""Arrow calls whose published types are narrower than what they accept, wrapped once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def bytes_list(column: pa.Array[Any]) -> list[bytes]:
    """The values of a binary column without nulls."""
    values: list[Any] = column.to_pylist()
    return values


def binary_lengths(column: pa.Array[Any]) -> npt.NDArray[np.int32]:
    """The length of each value of a binary column, nulls as 0, shape (n,)."""
    lengths: Any = pc.binary_length(column)  # type: ignore[call-overload]  # binary arrays are accepted
    return np.asarray(lengths.fill_null(0).to_numpy(zero_copy_only=False))


def join_binary(*columns: pa.Array[Any]) -> pa.BinaryArray:
    """The concatenation of binary columns row by row, nulls as nothing, shape (n,)."""
    joined: Any = pc.binary_join_element_wise(  # type: ignore[call-overload]  # binary arrays are accepted
        *columns, b"", null_handling="replace", null_replacement=""
    )
    result: pa.BinaryArray = joined
    return result


def split_binary(column: pa.Array[Any], head_bytes: int) -> tuple[npt.NDArray[np.uint8], pa.BinaryArray]:
    """The first bytes of each value, shape (n, head_bytes), and the rest of each, shape (n,).

    The values are not null and have so many bytes at least. (`pyarrow.compute.binary_slice` fails on values that are
    shorter than the slice: "Negative buffer resize".)
    """
    count = len(column)
    if count == 0:
        return np.empty((0, head_bytes), np.uint8), pa.array([], pa.binary())
    buffers: list[Any] = column.buffers()
    ends = np.frombuffer(buffers[1], np.int32)[column.offset : column.offset + count + 1]
    data = np.frombuffer(buffers[2], np.uint8)[ends[0] : ends[-1]]
    starts = ends[:-1] - ends[0]
    lengths = np.diff(ends)
    if (lengths == lengths[0]).all():
        rows = data.reshape(count, int(lengths[0]))
        heads, tails = rows[:, :head_bytes], rows[:, head_bytes:]
    else:
        places = starts[:, None] + np.arange(head_bytes)
        is_tail = np.ones(data.size, dtype=np.bool_)
        is_tail[places.ravel()] = False
        heads, tails = data[places], data[is_tail]
    offsets = np.append(0, np.cumsum(lengths - head_bytes)).astype(np.int32)
    rest: Any = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets.data), pa.py_buffer(tails.tobytes())]
    )
    return heads, rest


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the rows of all, which have one schema."""
    joined: pa.RecordBatch = pa.concat_batches(list(batches))  # type: ignore[attr-defined]  # missing from the stubs
    return joined


def in_portions(rows: pa.RecordBatch, most_records: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows in order, so many and so many bytes of their ``key`` and ``value`` at once at most, or one row."""
    if rows.num_rows <= most_records and rows.nbytes <= most_bytes:
        if rows.num_rows > 0:
            yield rows
        return
    sizes = np.cumsum(binary_lengths(rows.column("value")).astype(np.int64) + binary_lengths(rows.column("key")))
    first = 0
    while first < rows.num_rows:
        before = int(sizes[first - 1]) if first else 0
        fits = int(np.searchsorted(sizes, before + most_bytes, side="right"))
        after = min(max(fits, first + 1), first + most_records)
        yield rows.slice(first, after - first)
        first = after


def take(batch: pa.RecordBatch, indices: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """The rows at ``indices``."""
    return batch.take(indices)


def replaced(batch: pa.RecordBatch, name: str, column: pa.Array[Any]) -> pa.RecordBatch:
    """The batch with the column of that name replaced."""
    at = batch.schema.get_field_index(name)
    return batch.set_column(at, batch.schema.field(at), column)
