"""Partitions of rows: numbers from 0 on that a value of a row's partition column decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.core.hashing import SEED, hash_binary, hash_int64
from anew.core.tables.arrays import Column, codes, nulls, pc, whole
from anew.core.tables.config import Partitioning


def partition_numbers(column: pa.ChunkedArray[Any] | Column, partitioning: Partitioning) -> npt.NDArray[np.int64]:
    """The partition of each row, shape (n,), from 0 to below the count.

    ``xxhash64`` is Spark's ``pmod(xxhash64(value), count)``, integers of any width as longs; ``modulo`` is
    ``pmod(value, count)``, a null as 0.
    """
    array = whole(column)
    if isinstance(array.type, pa.DictionaryType) and len(array.dictionary) and not array.null_count:
        return partition_numbers(array.dictionary, partitioning)[codes(array)]
    if isinstance(array.type, pa.DictionaryType):
        array = array.dictionary_decode()
    if partitioning.function == "modulo":
        return np.asarray(np.mod(_int64s(array), partitioning.count), dtype=np.int64)
    return np.asarray(np.mod(_hashes(array), partitioning.count), dtype=np.int64)


def partitions_of(column: pa.ChunkedArray[Any] | Column, partitioning: Partitioning) -> tuple[int, ...]:
    """The partitions of rows, ascending."""
    array = whole(column)
    values = array if isinstance(array.type, pa.DictionaryType) else pc.unique(array)
    return tuple(np.unique(partition_numbers(values, partitioning)).tolist())


def _hashes(array: Column) -> npt.NDArray[np.int64]:
    """Spark's ``xxhash64`` of each value, signed; a null leaves the seed as it is."""
    seeds = np.full(len(array), SEED, dtype=np.uint64)
    if not pa.types.is_integer(array.type):
        return hash_binary(array.cast(pa.large_binary()), seeds).view(np.int64)
    hashes = hash_int64(_int64s(array), seeds)
    missing = nulls(array)
    if missing is not None:
        hashes[missing] = SEED
    return hashes.view(np.int64)


def _int64s(array: Column) -> npt.NDArray[np.int64]:
    filled = array.fill_null(0) if array.null_count else array
    return np.ascontiguousarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)
