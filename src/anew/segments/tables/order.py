"""The order of rows by some columns: ascending, nulls last, NaN before them; equal rows stay as they come.

Values become numbers that have their order. Where all numbers of a row have room in 16 bits, numpy deals the rows by
them (a radix sort). Where they have room in 64 bits together with the row's place, the rows are put in order by sorting
these: numpy does that several times as fast as it finds the order of anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.core.sorting import Ints, key_windows, shared_prefix, window_order
from anew.core.tables.arrays import Column, Mask, codes, decoded, nulls, numbers, pc, whole

_WORD_BITS, _DEALT_BITS = 64, 16
_PROBE_ROWS = 4_096
_WHOLE_BYTES = (8, 16, 32, 64)
_AFTER_ALL = np.int64(2**63 - 1)

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Key:
    """Numbers in the order of values, shape (n,), the least being 0, and in how many bits they have room."""

    words: Words
    bits: int


def is_sorted(table: pa.Table, names: Sequence[str]) -> bool:
    """Whether rows are in the order of the columns named."""
    if table.num_rows > 2 * _PROBE_ROWS and not is_sorted(table.slice(0, _PROBE_ROWS), names):
        return False
    tied: Mask | None = None
    for name in names if table.num_rows > 1 else ():
        falls, same = _steps(whole(table.column(name)))
        if (falls if tied is None else falls & tied).any():
            return False
        tied = same if tied is None else same & tied
        if not tied.any():
            return True
    return True


def sort_order(table: pa.Table, names: Sequence[str]) -> Ints:
    """The indices that put rows in the order of the columns named, shape (n,)."""
    count = table.num_rows
    columns = [whole(table.column(name)) for name in names]
    if count < 2 or not columns:
        return np.arange(count)
    if len(columns) == 1 and not _has_numbers(columns[0].type):
        return _order_of(columns[0])
    keys = [key for column in columns for key in _keys(column)]
    bits, place_bits = sum(key.bits for key in keys), (count - 1).bit_length()
    if bits <= _DEALT_BITS:
        return _packed(keys).astype(np.uint16).argsort(kind="stable")
    if bits + place_bits <= _WORD_BITS:
        packed = _packed(keys)
        packed <<= np.uint64(place_bits)
        packed |= np.arange(count, dtype=np.uint64)
        packed.sort()
        return (packed & np.uint64((1 << place_bits) - 1)).view(np.int64)
    order: Ints | None = None
    # The last columns first: each later sort keeps the order of what is equal to it.
    for words in reversed(list(_in_words(keys))):
        order = window_order(words)[0] if order is None else order[window_order(words[order])[0]]
    assert order is not None
    return order


def taken(table: pa.Table, order: Ints) -> pa.Table:
    """The rows at ``order``."""
    indices: Any = pa.array(order)
    return pa.table({name: _taken(whole(table.column(name)), order, indices) for name in table.column_names})


def _taken(column: Column, order: Ints, indices: Column) -> Column:
    """The values at ``order``, which is ``indices`` too: nulls among numbers take Arrow longer than all of the rest."""
    held = column.type
    missing = nulls(column)
    if missing is None:
        return column.take(indices)
    if isinstance(held, pa.DictionaryType):
        return pa.DictionaryArray.from_arrays(_taken(column.indices, order, indices), column.dictionary)
    if not pa.types.is_primitive(held) or held.bit_width not in _WHOLE_BYTES:
        return column.take(indices)
    values: Any = numbers(column, f"u{held.bit_width // 8}")[order]
    present: Any = np.packbits(~missing[order], bitorder="little")
    return pa.Array.from_buffers(held, len(order), [pa.py_buffer(present), pa.py_buffer(values)])


def _in_words(keys: Sequence[_Key]) -> Iterator[Words]:
    """Keys packed into as few words as hold them in order."""
    together: list[_Key] = []
    for key in keys:
        if sum(one.bits for one in together) + key.bits > _WORD_BITS:
            yield _packed(together)
            together = []
        together.append(key)
    yield _packed(together)


def _packed(keys: Sequence[_Key]) -> Words:
    words = keys[0].words.copy()
    for key in keys[1:]:
        words <<= np.uint64(key.bits)
        words |= key.words
    return words


def _keys(column: Column) -> Iterator[_Key]:
    """What orders a column: its numbers; before them where it is null, when that has no room in the number."""
    found = _numbers(column)
    missing = nulls(column)
    present = found if missing is None else found[~missing]
    if present.size == 0:
        yield _Key(np.zeros(len(column), dtype=np.uint64), 0)
        return
    least, greatest = int(present.min()), int(present.max())
    words = found.view(np.uint64) - np.uint64(least % 2**64)
    span = greatest - least
    if missing is not None:
        if span + 1 >= 1 << _WORD_BITS:
            yield _Key(missing.astype(np.uint64), 1)
        else:
            span += 1
        words[missing] = span if span < 1 << _WORD_BITS else 0
    yield _Key(words, span.bit_length())


def _order_of(column: Column) -> Ints:
    """The order of a column without numbers of its own."""
    held, kinds = column.type, pa.types
    if column.null_count or not (kinds.is_string(held) or kinds.is_binary(held)):
        found: Ints = pc.sort_indices(column).to_numpy().astype(np.int64)
        return found
    bounds = pc.min_max(column.cast(pa.binary()))
    shared = shared_prefix([pa.array([bounds["min"].as_py(), bounds["max"].as_py()], pa.binary())])
    order, tied = window_order(key_windows(column, shared))
    if tied.size:
        # Those of equal windows lie together: sorting them all leaves each among its like.
        alike = order[tied]
        order[tied] = alike[pc.sort_indices(column.take(pa.array(alike))).to_numpy()]
    return order


def _has_numbers(held: Any) -> bool:
    """Whether finding the numbers of a column costs less than putting it in order."""
    kinds = pa.types
    if isinstance(held, pa.DictionaryType):
        return True
    return bool(kinds.is_integer(held) or kinds.is_floating(held) or kinds.is_boolean(held) or kinds.is_temporal(held))


def _numbers(column: Column) -> Ints:
    """Numbers in the order of the values, shape (n,); what nulls have is arbitrary."""
    held, kinds = column.type, pa.types
    if isinstance(held, pa.DictionaryType):
        if column.dictionary.null_count or len(column.dictionary) == 0:
            return _numbers(decoded(column))
        return _ranks(column.dictionary)[codes(column)]
    if kinds.is_boolean(held):
        return np.asarray(numbers(column.cast(pa.uint8()), np.uint8), dtype=np.int64)
    if kinds.is_integer(held):
        return np.asarray(numbers(column, held.to_pandas_dtype()), dtype=np.int64)
    if kinds.is_timestamp(held) or kinds.is_date32(held):
        return np.asarray(numbers(column, np.int64 if kinds.is_timestamp(held) else np.int32), dtype=np.int64)
    if kinds.is_float32(held) or kinds.is_float64(held):
        return _of_floats(numbers(column, held.to_pandas_dtype()).astype(np.float64))
    return _ranks(column)


def _of_floats(values: npt.NDArray[np.float64]) -> Ints:
    if _are_integers(values[:_PROBE_ROWS]) and _are_integers(values):
        # As they are: minutes or counts lie closer together than their bits do.
        return values.astype(np.int64)
    # -0.0 + 0.0 is 0.0: the two are equal.
    bits = (values + 0.0).view(np.int64)
    ordered = bits ^ ((bits >> 63) & np.int64(2**63 - 1))
    ordered[np.isnan(values)] = _AFTER_ALL
    return ordered


def _are_integers(values: npt.NDArray[np.float64]) -> bool:
    """Whether values are integers of 64 bits, not NaN or infinite."""
    with np.errstate(invalid="ignore"):
        return bool((values.astype(np.int64) == values).all())


def _ranks(column: Column) -> Ints:
    found: Ints = pc.rank(column, tiebreaker="dense").to_numpy().astype(np.int64)
    return found


def _steps(column: Column) -> tuple[Mask, Mask]:
    """Where a value comes before the one above it, and where both are equal, shapes (n - 1,)."""
    if _has_numbers(column.type):
        values = _numbers(column)
        falls, same = values[1:] < values[:-1], values[1:] == values[:-1]
    else:
        before, after = column[:-1], column[1:]
        falls = pc.less(after, before).fill_null(False).to_numpy(zero_copy_only=False)
        same = pc.equal(after, before).fill_null(False).to_numpy(zero_copy_only=False)
    missing = nulls(column)
    if missing is None:
        return falls, same
    above, here = missing[:-1], missing[1:]
    return np.where(above | here, above & ~here, falls), np.where(above | here, above & here, same)
