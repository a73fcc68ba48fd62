"""The 64-bit hashes of keys and rows, equal to what Spark's ``xxhash64`` gives.

Spark's ``xxhash64(a, b, …)`` hashes ``a`` with seed 42, ``b`` with the result as seed, and so on; a null leaves
the seed as it is. A long hashes as its eight little-endian bytes. Each row that a rebuild reads or proves is hashed, so
that `hashing.c` does it for whole columns.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from anew.core.arrow import bytes_list
from anew.core.compiled import load_compiled

SEED = 42

Hashes = npt.NDArray[np.uint64]


def key_hash(key: bytes) -> int:
    """XXH64 of one key with Spark's seed, unsigned."""
    return xxhash.xxh64_intdigest(key, SEED)


def key_hashes(keys: pa.Array[Any]) -> Hashes:
    """``key_hash`` of each key of a binary column without nulls, shape (n,)."""
    return hash_binary(keys, np.full(len(keys), SEED, dtype=np.uint64))


def hash_binary(column: pa.Array[Any], seeds: Hashes) -> Hashes:
    """XXH64 of each value of a binary column with its own seed, shape (n,); a null leaves its seed as it is."""
    hashes = np.array(seeds, dtype=np.uint64)
    if hashes.shape != (len(column),):
        raise ValueError(f"as many seeds as values are taken, not {hashes.shape} for {len(column)}")
    if len(column) == 0:
        return hashes
    is_large = column.type == pa.large_binary()
    if not is_large and column.type != pa.binary():
        raise TypeError(f"a binary column is hashed, not one of {column.type}")
    valid, ends, content = column.buffers()
    _native().hash_binary(
        len(column),
        column.offset,
        None if valid is None else valid.address,
        _address(ends),
        int(is_large),
        None if content is None else content.address,
        hashes.ctypes.data,
    )
    return hashes


def hash_int64(numbers: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    """XXH64 of each int64's eight bytes with its own seed, shape (n,)."""
    hashes, words = np.array(seeds, dtype=np.uint64), np.ascontiguousarray(numbers, dtype=np.int64)
    if words.shape != hashes.shape:
        raise ValueError(f"as many numbers as seeds are hashed, not {words.shape} with {hashes.shape}")
    _native().hash_int64(words.size, words.ctypes.data, hashes.ctypes.data)
    return hashes


def row_hashes(rows: pa.RecordBatch) -> Hashes:
    """The hash of each row's content and stamp, shape (n,).

    ``rows`` has the columns of `anew.core.rows.ROWS` with *uncompressed* values. Chained: key, value body (skipped
    for a tombstone), then as longs schema id, time, xxhash64(origin), flags (1 append-timed, 2 tombstone),
    incarnation, feed partition, offset. The sum over rows, modulo 2**64, is the fingerprint of a set of rows.
    """
    hashes = hash_binary(rows.column("value"), key_hashes(rows.column("key")))
    for numbers in _hashed_numbers(rows):
        hashes = hash_int64(numbers, hashes)
    return hashes


def origin_hash(origin: bytes) -> int:
    """Spark's ``xxhash64`` of an encoded origin, as the signed long that enters the row hash."""
    unsigned = xxhash.xxh64_intdigest(origin, SEED)
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned


def total(hashes: npt.NDArray[np.uint64] | npt.NDArray[np.int64]) -> int:
    """The sum of hashes modulo 2**64, unsigned."""
    return int(hashes.view(np.uint64).sum(dtype=np.uint64))


def _hashed_numbers(rows: pa.RecordBatch) -> list[npt.NDArray[np.int64]]:
    tombstones = rows.column("value").is_null().to_numpy(zero_copy_only=False)
    append_timed = rows.column("append_timed").to_numpy(zero_copy_only=False)
    flags = append_timed.astype(np.int64) + 2 * tombstones.astype(np.int64)
    columns = {name: _int64s(rows, name) for name in ("schema_id", "time", "incarnation", "feed_partition", "offset")}
    encoded = rows.column("origin").dictionary_encode()
    origins = [origin_hash(origin) for origin in bytes_list(encoded.dictionary)]
    hashed = np.array(origins, dtype=np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]
    return [
        columns["schema_id"],
        columns["time"],
        hashed,
        flags,
        columns["incarnation"],
        columns["feed_partition"],
        columns["offset"],
    ]


def _int64s(rows: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(rows.column(name).to_numpy(zero_copy_only=False), dtype=np.int64)


@functools.cache
def _native() -> ctypes.CDLL:
    """`hashing.c`.

    Raises:
        Failed: ``not_compiled``.
    """
    native = load_compiled("anew.core", "_hashing.so", ctypes.CDLL)
    count, pointer = ctypes.c_int64, ctypes.c_void_p
    native.hash_binary.restype, native.hash_int64.restype = None, None
    native.hash_binary.argtypes = [count, count, pointer, pointer, ctypes.c_int, pointer, pointer]
    native.hash_int64.argtypes = [count, pointer, pointer]
    return native


def _address(buffer: pa.Buffer | None) -> int:
    if buffer is None:
        raise ValueError("a binary column has offsets")
    return buffer.address
