"""Avro bytes of whole columns in numpy: each column becomes slots of bytes with a length per row.

A row's slots are laid side by side in a matrix, and one boolean selection drops the unused bytes: that is the
row's encoding. Strings are not copied through numpy: the selection ends where a string begins, and Arrow joins
the pieces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

Bytes = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.uint8]
Valid = npt.NDArray[np.bool_] | None
# pyarrow's stubs know no kernel that takes a column of just any type.
Column: TypeAlias = Any
pc: Any = pyarrow.compute


@dataclass(frozen=True)
class Slots:
    """Bytes of one value per row.

    Attributes:
        bytes_of: Shape (rows, width).
        lengths: How many bytes of a row count, shape (rows,); None where all do.
    """

    bytes_of: Bytes
    lengths: Lengths | None

    def masked(self, valid: Valid) -> Slots:
        """The same with nothing in the rows that are not valid."""
        if valid is None:
            return self
        full = np.uint8(self.bytes_of.shape[1]) if self.lengths is None else self.lengths
        return Slots(self.bytes_of, np.where(valid, full, np.uint8(0)))


def varint_slots(values: npt.NDArray[np.int64]) -> Slots:
    """Zigzag varints of signed 64-bit integers (Avro specification, binary encoding of int and long)."""
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    top = int(rest.max()) if len(rest) else 0
    width = max(1, -(-top.bit_length() // 7))
    if width == 1:
        return Slots(rest.astype(np.uint8).reshape(-1, 1), None)
    slots = np.empty((len(values), width), dtype=np.uint8)
    lengths = np.ones(len(values), dtype=np.uint8)
    for place in range(width):
        following = rest >> np.uint64(7)
        more = following != 0
        slots[:, place] = (rest.astype(np.uint8) & np.uint8(0x7F)) | (more.view(np.uint8) << np.uint8(7))
        lengths += more
        rest = following
    return Slots(slots, lengths)


def fixed_slots(values: npt.NDArray[Any]) -> Slots:
    """Little-endian bytes of fixed-width numbers (booleans, floats, doubles)."""
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return Slots(little.view(np.uint8).reshape(len(values), values.dtype.itemsize), None)


def branch_slots(valid: npt.NDArray[np.bool_], null_branch: int) -> Slots:
    """The index of a two-branch union per row; zigzag makes 0 and 1 into 0 and 2."""
    of_null, of_value = np.uint8(2 * null_branch), np.uint8(2 * (1 - null_branch))
    return Slots(np.where(valid, of_value, of_null).reshape(-1, 1), None)


def pack(slots: list[Slots], row_count: int) -> Column:
    """Join the slots of each row into one binary value per row."""
    if not slots:
        return pa.array([b""] * row_count, pa.binary())
    matrix = slots[0].bytes_of if len(slots) == 1 else np.concatenate([one.bytes_of for one in slots], axis=1)
    lengths = np.zeros(row_count, dtype=np.int32)
    for one in slots:
        lengths += np.int32(one.bytes_of.shape[1]) if one.lengths is None else one.lengths
    if all(one.lengths is None for one in slots):
        packed = np.ascontiguousarray(matrix).reshape(-1)
    else:
        packed = matrix[_used(slots, matrix)]
    offsets = np.zeros(row_count + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), row_count, [None, _buffer(offsets), _buffer(packed)])


def _buffer(array: Any) -> pa.Buffer:
    return pa.py_buffer(array)


def _used(slots: list[Slots], matrix: Bytes) -> npt.NDArray[np.bool_]:
    used = np.ones(matrix.shape, dtype=np.bool_)
    start = 0
    for one in slots:
        width = one.bytes_of.shape[1]
        if one.lengths is not None:
            for place in range(width):
                np.greater(one.lengths, place, out=used[:, start + place])
        start += width
    return used


def join(pieces: list[Column]) -> Column:
    """Join binary pieces row by row; a null piece is empty."""
    if len(pieces) == 1 and pieces[0].null_count == 0:
        return pieces[0]
    return pc.binary_join_element_wise(*pieces, b"", null_handling="replace", null_replacement=b"")


def valid_rows(column: Column) -> Valid:
    """Which rows are not null; None where all are."""
    if column.null_count == 0:
        return None
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), dtype=np.bool_)


def numbers(column: Column, arrow_type: pa.DataType) -> npt.NDArray[Any]:
    """A column's numbers, 0 where it is null; ``arrow_type`` is what to read its bits as."""
    plain = column.view(arrow_type) if column.type != arrow_type else column
    if plain.null_count:
        plain = plain.fill_null(pa.scalar(0, arrow_type))
    return np.asarray(plain.to_numpy(zero_copy_only=False))
