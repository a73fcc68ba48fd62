"""The 64-bit hashes of keys and rows, equal to what Spark's ``xxhash64`` gives.

Spark's ``xxhash64(a, b, …)`` hashes ``a`` with seed 42, ``b`` with the result as seed, and so on; a null leaves
the seed as it is. A long hashes as its eight little-endian bytes (XXH64 with one 8-byte lane), which `hash_int64`
does for whole numpy arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from anew.core.arrow import bytes_list

SEED = 42
_PRIME1 = np.uint64(0x9E3779B185EBCA87)
_PRIME2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME3 = np.uint64(0x165667B19E3779F9)
_PRIME4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME5 = np.uint64(0x27D4EB2F165667C5)

Hashes = npt.NDArray[np.uint64]


def key_hash(key: bytes) -> int:
    """XXH64 of one key with Spark's seed, unsigned."""
    return xxhash.xxh64_intdigest(key, SEED)


def key_hashes(keys: Sequence[bytes]) -> Hashes:
    """``key_hash`` of each key, shape (n,)."""
    digest = xxhash.xxh64_intdigest
    return np.fromiter((digest(key, SEED) for key in keys), dtype=np.uint64, count=len(keys))


def hash_int64(numbers: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    """XXH64 of each int64's eight bytes with its own seed, shape (n,)."""
    with np.errstate(over="ignore"):
        lanes = numbers.view(np.uint64) * _PRIME2
        lanes = _rotate(lanes, 31) * _PRIME1
        digest = _rotate((seeds + _PRIME5 + np.uint64(8)) ^ lanes, 27) * _PRIME1 + _PRIME4
        digest = (digest ^ (digest >> np.uint64(33))) * _PRIME2
        digest = (digest ^ (digest >> np.uint64(29))) * _PRIME3
        return np.asarray(digest ^ (digest >> np.uint64(32)), dtype=np.uint64)


def row_hashes(rows: pa.RecordBatch) -> Hashes:
    """The hash of each row's content and stamp, shape (n,).

    ``rows`` has the columns of `anew.core.rows.ROWS` with *uncompressed* values. Chained: key, value body (skipped
    for a tombstone), then as longs schema id, time, xxhash64(origin), flags (1 append-timed, 2 tombstone),
    incarnation, feed partition, offset. The sum over rows, modulo 2**64, is the fingerprint of a set of rows.
    """
    digest = xxhash.xxh64_intdigest
    keys, values = bytes_list(rows.column("key")), rows.column("value").to_pylist()
    seeds = (digest(key, SEED) for key in keys)
    hashes = np.fromiter(
        (seed if value is None else digest(value, seed) for seed, value in zip(seeds, values, strict=True)),
        dtype=np.uint64,
        count=rows.num_rows,
    )
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


def _rotate(numbers: Hashes, bits: int) -> Hashes:
    return np.asarray((numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits)), dtype=np.uint64)
