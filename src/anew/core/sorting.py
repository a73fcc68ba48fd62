"""The order of rows by `SORT_COLUMNS`, found by comparing eight bytes of each key as a number wherever they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.arrow import take
from anew.core.rows import SORT_COLUMNS

Ints = npt.NDArray[np.int64]
Windows = npt.NDArray[np.uint64]

_FIRST_BYTES = np.array([(1 << 64) - (1 << 64 - 8 * count) for count in range(9)], dtype=np.uint64)
"""Masks that keep that many first bytes of a big-endian number."""
_SORT_COLUMNS = list(SORT_COLUMNS)


def sort_order(rows: pa.RecordBatch) -> Ints:
    """The indices that put rows in the order of `SORT_COLUMNS`, shape (n,); equal rows stay in their order.

    Quick where those with the same key are in order already.
    """
    keys: pa.Array[Any] = rows.column("key")
    if len(keys) < 2:
        return np.arange(len(keys))
    windows = key_windows(keys, _shared_by_all(keys))
    order, tied = window_order(windows)
    if tied.size:
        among = take(rows.select(_SORT_COLUMNS), order[tied])
        if not is_sorted(among):
            sort_keys: Any = [(name, "ascending") for name in SORT_COLUMNS]
            order[tied] = order[tied][pc.sort_indices(among, sort_keys=sort_keys).to_numpy()]
    return order


def window_order(windows: Windows) -> tuple[Ints, Ints]:
    """The indices that put windows in order, equal ones as they come, and the places there of those that are not alone.

    Shapes (n,) and (ties,). numpy sorts numbers several times as fast where it need not keep the order of equal ones.
    """
    order: Ints = np.arange(len(windows))
    inside, was_sorted = windows, not (windows[1:] < windows[:-1]).any()
    if not was_sorted:
        order = windows.argsort()
        inside = windows[order]
    same = np.concatenate([[False], inside[1:] == inside[:-1], [False]])
    tied = (same[1:] | same[:-1]).nonzero()[0]
    if tied.size and not was_sorted:
        groups = np.cumsum(~same[tied])
        # One number of a group and an index within it; neither takes 32 bits, as Arrow's offsets have 31.
        order[tied] = np.sort(groups << 32 | order[tied]) & 0xFFFFFFFF
    return order, tied


def is_sorted(rows: pa.RecordBatch) -> bool:
    """Whether rows are in the order of `SORT_COLUMNS`."""
    equal = np.ones(max(rows.num_rows - 1, 0), dtype=np.bool_)
    for name in SORT_COLUMNS:
        before, after = rows.column(name)[:-1], rows.column(name)[1:]
        if (equal & pc.greater(before, after).to_numpy(zero_copy_only=False)).any():
            return False
        equal &= pc.equal(before, after).to_numpy(zero_copy_only=False)
        if not equal.any():
            return True
    return True


def shared_prefix(columns: Sequence[pa.Array[Any]]) -> int:
    """How many first bytes all keys of ascending columns, each with one key at least, have in common."""
    return _alike(min(keys[0].as_py() for keys in columns), max(keys[-1].as_py() for keys in columns))


def key_windows(keys: pa.Array[Any], start: int) -> Windows:
    """Eight bytes of each key from ``start`` on as a number, zeros for what is missing: in key order, but with ties.

    All keys have the same ``start`` first bytes.
    """
    buffers: list[Any] = keys.buffers()
    offsets = np.frombuffer(buffers[1], dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    size = end - begin
    padded = np.zeros(size + 8, dtype=np.uint8)
    if size:
        padded[:size] = np.frombuffer(buffers[2], dtype=np.uint8)[begin:end]
    at_each_byte: npt.NDArray[Any] = np.ndarray((size + 1,), dtype=">u8", buffer=padded, strides=(1,))
    starts = offsets[:-1] + (start - begin)
    own_bytes = np.minimum(offsets[1:] - begin - starts, 8)
    windows: Windows = at_each_byte[starts].astype(np.uint64) & _FIRST_BYTES[own_bytes]
    return windows


def _shared_by_all(keys: pa.Array[Any]) -> int:
    bounds: Any = pc.min_max(keys).as_py()
    return _alike(bounds["min"], bounds["max"])


def _alike(least: bytes, greatest: bytes) -> int:
    unlike = (at for at, (one, other) in enumerate(zip(least, greatest, strict=False)) if one != other)
    return next(unlike, min(len(least), len(greatest)))
