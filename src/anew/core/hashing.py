"""The 64-bit hashes of keys and rows, equal to what Spark's ``xxhash64`` gives.

Spark's ``xxhash64(a, b, …)`` hashes ``a`` with seed 42, ``b`` with the result as seed, and so on; a null leaves
the seed as it is. A long hashes as its eight little-endian bytes (XXH64 with one 8-byte lane), which `hash_int64`
does for whole numpy arrays.
"""

from __future__ import annotations

from typing import Any

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

_STRIPE_BYTES = 32
_FEW = 48
"""So many values of one length take as long one by one as together."""

Hashes = npt.NDArray[np.uint64]


def key_hash(key: bytes) -> int:
    """XXH64 of one key with Spark's seed, unsigned."""
    return xxhash.xxh64_intdigest(key, SEED)


def key_hashes(keys: pa.Array[Any]) -> Hashes:
    """``key_hash`` of each key of a binary column without nulls, shape (n,)."""
    return hash_binary(keys, np.full(len(keys), SEED, dtype=np.uint64))


def hash_binary(column: pa.Array[Any], seeds: Hashes) -> Hashes:
    """XXH64 of each value of a binary column with its own seed, shape (n,); a null leaves its seed as it is.

    Values of one length are hashed together; a length that few values have is not worth that and goes one by one.
    """
    if len(column) < _FEW:
        return _one_by_one(column, seeds)
    starts, lengths, data = _placed(column)
    if column.null_count == 0 and (lengths == lengths[0]).all():
        whole = data[starts[0] : starts[-1] + lengths[0]].reshape(len(column), int(lengths[0]))
        return _xxh64(whole, seeds)
    hashes = seeds.copy()
    present = column.is_valid().to_numpy(zero_copy_only=False).nonzero()[0]
    by_length = present[lengths[present].argsort(kind="stable")]
    sizes = np.diff(np.append(np.flatnonzero(np.diff(lengths[by_length], prepend=-1)), by_length.size))
    together = np.repeat(sizes >= _FEW, sizes)
    alone = by_length[~together]
    hashes[alone] = _one_by_one(column.take(alone), seeds[alone])
    by_length = by_length[together]
    first = 0
    for size in sizes[sizes >= _FEW]:
        rows = by_length[first : first + size]
        first += size
        length = int(lengths[rows[0]])
        windows = np.lib.stride_tricks.sliding_window_view(data, length) if length else np.zeros((1, 0), np.uint8)
        hashes[rows] = _xxh64(windows[starts[rows] if length else np.zeros(rows.size, np.int64)], seeds[rows])
    return hashes


def _one_by_one(column: pa.Array[Any], seeds: Hashes) -> Hashes:
    digest = xxhash.xxh64_intdigest
    values: list[bytes | None] = column.to_pylist()
    pairs = zip(values, seeds.tolist(), strict=True)
    hashes = (seed if value is None else digest(value, seed) for value, seed in pairs)
    return np.fromiter(hashes, np.uint64, len(values))


def _placed(column: pa.Array[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each value starts in the column's bytes, how long it is, and the bytes."""
    plain = column.cast(pa.large_binary()) if column.type != pa.large_binary() else column
    _, offsets_buffer, data_buffer = plain.buffers()
    if len(plain) == 0 or offsets_buffer is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    offsets: npt.NDArray[np.int64] = _viewed(offsets_buffer, np.int64)[plain.offset : plain.offset + len(plain) + 1]
    data = np.zeros(0, np.uint8) if data_buffer is None else _viewed(data_buffer, np.uint8)
    return offsets[:-1], np.diff(offsets), data


def _viewed(buffer: Any, kind: Any) -> Any:
    """A buffer of Arrow's as numbers."""
    return np.frombuffer(buffer, dtype=kind)


def _xxh64(block: npt.NDArray[np.uint8], seeds: Hashes) -> Hashes:
    """XXH64 of each row of a block of bytes, shape (n, length), with its own seed.

    Source: the specification of XXH64 in the xxHash repository, section "XXH64 Algorithm Description".
    """
    length = block.shape[1]
    words = np.ascontiguousarray(block[:, : length // 8 * 8]).view("<u8")
    word = 0
    if length >= _STRIPE_BYTES:
        digest, word = _stripes(words, seeds, length // _STRIPE_BYTES)
    else:
        digest = seeds + _PRIME5
    digest = digest + np.uint64(length)
    for index in range(word, words.shape[1]):
        digest = _rotate(digest ^ _round(np.uint64(0), words[:, index]), 27) * _PRIME1 + _PRIME4
    at = words.shape[1] * 8
    if length - at >= 4:
        half = np.ascontiguousarray(block[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint64)
        digest = _rotate(digest ^ (half * _PRIME1), 23) * _PRIME2 + _PRIME3
        at += 4
    for index in range(at, length):
        digest = _rotate(digest ^ (block[:, index].astype(np.uint64) * _PRIME5), 11) * _PRIME1
    return _avalanche(digest)


def _stripes(words: npt.NDArray[np.uint64], seeds: Hashes, count: int) -> tuple[Hashes, int]:
    """The digest of the whole 32-byte stripes of each row, and how many words they took."""
    lanes = [seeds + _PRIME1 + _PRIME2, seeds + _PRIME2, seeds, seeds - _PRIME1]
    for stripe in range(count):
        lanes = [_round(lane, words[:, stripe * 4 + number]) for number, lane in enumerate(lanes)]
    digest = sum((_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)), np.uint64(0))
    for lane in lanes:
        digest = (digest ^ _round(np.uint64(0), lane)) * _PRIME1 + _PRIME4
    return np.asarray(digest, dtype=np.uint64), count * 4


def _round(lane: Any, word: Hashes) -> Hashes:
    return _rotate(np.asarray(lane + word * _PRIME2, dtype=np.uint64), 31) * _PRIME1


def _avalanche(digest: Hashes) -> Hashes:
    digest = (digest ^ (digest >> np.uint64(33))) * _PRIME2
    digest = (digest ^ (digest >> np.uint64(29))) * _PRIME3
    return np.asarray(digest ^ (digest >> np.uint64(32)), dtype=np.uint64)


def hash_int64(numbers: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    """XXH64 of each int64's eight bytes with its own seed, shape (n,)."""
    with np.errstate(over="ignore"):
        lanes = numbers.view(np.uint64) * _PRIME2
        lanes = _rotate(lanes, 31) * _PRIME1
        return _avalanche(_rotate((seeds + _PRIME5 + np.uint64(8)) ^ lanes, 27) * _PRIME1 + _PRIME4)


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


def _rotate(numbers: Hashes, bits: int) -> Hashes:
    return np.asarray((numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits)), dtype=np.uint64)
