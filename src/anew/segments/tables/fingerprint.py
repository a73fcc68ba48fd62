"""Fingerprints of columns and of rows: sums of 64-bit hashes, which know neither order nor encoding.

A value's hash is a mix of its bits that can be undone, so that equal fixed-width values alone have equal hashes.
A row's hash combines those of its values in the order of the columns' names and is mixed again: values that change
places among rows change it. Nothing outside this module depends on which hash it is, but fingerprints are kept in the
catalog: another hash needs another segment format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anew.core.errors import Failed
from anew.core.hashing import Hashes
from anew.core.tables.arrays import Column, Held, codes, is_text, nulls, numbers, whole
from anew.segments.tables.texthash import text_hashes

MODULUS = 2**64
_BLOCK_ROWS = 16_384
"""So many rows at once that a block and what is made of it stay in the processor's nearer caches."""
_NULL = np.uint64(0x8C7D3C5E91F4A6B3)
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_NAN64, _NAN32 = np.uint64(0x7FF8000000000000), np.uint32(0x7FC00000)

_Hasher = Callable[[int, int], Hashes]
"""The hashes of the values from one row to another one."""


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """The fingerprints of a table.

    Attributes:
        columns: Column → that of its values.
        rows: That of the rows.
        among: That of the rows of some columns.
    """

    columns: dict[str, int]
    rows: int
    among: int


def column_hashes(column: Column) -> Hashes:
    """A 64-bit hash of each value, shape (n,): the same for equal values of one type, however they are encoded.

    Integers of any width are hashed by their value, floats by their bits (so that -0.0 is not 0.0, and any NaN is any
    other), timestamps in µs; every null has the same hash.

    Raises:
        Failed: ``unsupported_type``.
    """
    array = whole(column)
    hasher, count = _hasher(array), len(array)
    hashes = np.empty(count, dtype=np.uint64)
    for first in range(0, count, _BLOCK_ROWS):
        after = min(first + _BLOCK_ROWS, count)
        hashes[first:after] = hasher(first, after)
    return hashes


def fingerprint(hashes: Hashes) -> int:
    """The sum of hashes modulo 2**64."""
    return int(hashes.sum(dtype=np.uint64))


def fingerprints(table: pa.Table, among: Collection[str] | None = None) -> Fingerprints:
    """The fingerprint of every column, and those of the rows of all and of the columns ``among``, in one pass.

    Whatever the order of rows and columns; ``among`` None: all columns.

    Raises:
        Failed: ``unsupported_type``.
    """
    hashers = {name: _hasher(whole(table.column(name))) for name in sorted(table.column_names)}
    sums = dict.fromkeys(hashers, 0)
    rows = [_Rows(frozenset(hashers))]
    if among is not None and hashers.keys() != set(among):
        rows.append(_Rows(frozenset(among)))
    for first in range(0, table.num_rows, _BLOCK_ROWS):
        after = min(first + _BLOCK_ROWS, table.num_rows)
        for each in rows:
            each.begin(after - first)
        for name, hasher in hashers.items():
            hashes = hasher(first, after)
            sums[name] += fingerprint(hashes)
            for each in rows:
                each.add(name, hashes)
        for each in rows:
            each.end()
    columns = {name: total % MODULUS for name, total in sums.items()}
    return Fingerprints(columns, rows[0].total % MODULUS, rows[-1].total % MODULUS)


class _Rows:
    """Sums up the hashes of rows, of some columns, block by block."""

    def __init__(self, names: Collection[str]) -> None:
        self.total = 0
        self._names = names
        self._block: Hashes = np.zeros(0, dtype=np.uint64)

    def begin(self, count: int) -> None:
        self._block = np.zeros(count, dtype=np.uint64)

    def add(self, name: str, hashes: Hashes) -> None:
        if name in self._names:
            self._block ^= hashes
            self._block *= _SECOND

    def end(self) -> None:
        self.total += fingerprint(_mixed(self._block)) if self._names else 0


def _mixed(bits: Hashes) -> Hashes:
    """Bits mixed in place; each step can be undone, so that no two become one."""
    bits *= _FIRST
    bits ^= bits >> np.uint64(32)
    bits *= _SECOND
    bits ^= bits >> np.uint64(29)
    return bits


def _hasher(column: Column) -> _Hasher:
    held = column.type
    if isinstance(held, pa.DictionaryType):
        of_dictionary = column_hashes(column.dictionary)
        places = codes(column)
        # An empty dictionary has nulls only, whose place 0 is not there.
        among = of_dictionary if of_dictionary.size else np.zeros(1, dtype=np.uint64)
        return _nulls_hashed(column, lambda first, after: among.take(places[first:after]))
    if pa.types.is_null(held):
        return lambda first, after: np.full(after - first, _NULL)
    return _nulls_hashed(column, _plain_hasher(column, held))


def _nulls_hashed(column: Column, hasher: _Hasher) -> _Hasher:
    missing = nulls(column)
    if missing is None:
        return hasher

    def hashed(first: int, after: int) -> Hashes:
        hashes = hasher(first, after)
        hashes[missing[first:after]] = _NULL
        return hashes

    return hashed


def _plain_hasher(column: Column, held: Held) -> _Hasher:
    kinds = pa.types
    if kinds.is_boolean(held):
        return _plain_hasher(column.cast(pa.uint8()), pa.uint8())
    if kinds.is_timestamp(held) and held.unit != "us":
        return _plain_hasher(column.cast(pa.timestamp("us"), safe=False), pa.timestamp("us"))
    if kinds.is_integer(held):
        return _of_integers(numbers(column, held.to_pandas_dtype()))
    if kinds.is_date32(held) or kinds.is_timestamp(held):
        return _of_integers(numbers(column, np.int32 if kinds.is_date32(held) else np.int64))
    if kinds.is_float32(held) or kinds.is_float64(held):
        return _of_floats(numbers(column, held.to_pandas_dtype()))
    if kinds.is_decimal128(held):
        return _of_decimals(column)
    if is_text(held):
        return text_hashes(column, _mixed)
    raise Failed("unsupported_type", "tables have no columns of this type", found=str(held))


def _of_integers(values: Any) -> _Hasher:
    return lambda first, after: _mixed(values[first:after].astype(np.int64).view(np.uint64))


def _of_floats(values: Any) -> _Hasher:
    bits, nan = (np.uint64, _NAN64) if values.dtype == np.float64 else (np.uint32, _NAN32)

    def hashed(first: int, after: int) -> Hashes:
        block = values[first:after]
        seen = block.view(bits).copy()
        seen[np.isnan(block)] = nan
        return _mixed(seen.astype(np.uint64, copy=False))

    return hashed


def _of_decimals(column: Column) -> _Hasher:
    words: Any = np.zeros(2 * len(column), dtype=np.uint64)
    buffer = column.buffers()[1]
    if len(column) and buffer is not None:
        words = np.frombuffer(buffer, dtype=np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
    pairs = words.reshape(-1, 2)
    return lambda first, after: _mixed(_mixed(pairs[first:after, 0].copy()) ^ pairs[first:after, 1])
