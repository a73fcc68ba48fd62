"""Hashes of texts and bytes, eight bytes of each value at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from anew.core.hashing import Hashes
from anew.core.tables.arrays import Column, has_long_offsets

_LONG_BYTES = 256
"""Longer values are hashed one by one: their bytes take longer than the call."""
_SEED, _WORD = np.uint64(0x2545F4914F6CDD1D), np.uint64(0xFF51AFD7ED558CCD)
_KEEP = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)
"""Masks that keep that many first bytes of a little-endian number."""

_Mix = Callable[[Hashes], Hashes]
_Ints = npt.NDArray[np.int64]


def text_hashes(column: Column, mix: _Mix) -> Callable[[int, int], Hashes]:
    """What hashes the values from one row to another one of a column of texts or bytes; nulls have arbitrary hashes.

    ``mix`` mixes the bits of numbers in place, each step of it to be undone.
    """
    buffers = column.buffers()
    held = column.type
    kind = np.int64 if has_long_offsets(held) else np.int32
    if len(column) == 0 or buffers[1] is None:
        return lambda first, after: np.zeros(after - first, dtype=np.uint64)
    offsets = np.frombuffer(buffers[1], dtype=kind)[column.offset : column.offset + len(column) + 1]
    data = np.zeros(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], dtype=np.uint8)
    return lambda first, after: _block(data, offsets[first : after + 1].astype(np.int64), mix)


def _block(data: npt.NDArray[np.uint8], offsets: _Ints, mix: _Mix) -> Hashes:
    """The hashes of the values between offsets, shape (n,) for (n + 1,)."""
    begin, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    # Eight bytes are read at the start of the last one too.
    padded = np.zeros(size + 8, dtype=np.uint8)
    padded[:size] = data[begin : begin + size]
    lengths = np.diff(offsets)
    hashes = mix(lengths.astype(np.uint64) + _SEED)
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest == longest <= _LONG_BYTES:
        return _of_one_length(padded, hashes, shortest, mix)
    starts = offsets[:-1] - begin
    long = (lengths > _LONG_BYTES).nonzero()[0]
    lengths[long] = 0
    _words(padded, starts, lengths, hashes)
    mix(hashes)
    for row, start, end in zip(long.tolist(), starts[long].tolist(), (offsets[1:] - begin)[long].tolist(), strict=True):
        hashes[row] = xxhash.xxh64_intdigest(padded[start:end].tobytes())
    return hashes


def _of_one_length(padded: npt.NDArray[np.uint8], hashes: Hashes, length: int, mix: _Mix) -> Hashes:
    for at in range(0, length, 8):
        words: Any = np.ndarray((hashes.size,), dtype="<u8", buffer=padded, offset=at, strides=(length,))
        hashes ^= words & _KEEP[min(length - at, 8)]
        _stir(hashes)
    return mix(hashes)


def _words(padded: npt.NDArray[np.uint8], starts: _Ints, lengths: _Ints, hashes: Hashes) -> None:
    """Stir the words of values of different lengths into their hashes."""
    at_each_byte: Any = np.ndarray((padded.size - 7,), dtype="<u8", buffer=padded, strides=(1,))
    at, rows = 0, np.arange(lengths.size)
    while (rows := rows[lengths[rows] > at]).size:
        own = hashes[rows] ^ (at_each_byte[starts[rows] + at] & _KEEP[np.minimum(lengths[rows] - at, 8)])
        hashes[rows] = _stir(own)
        at += 8


def _stir(hashes: Hashes) -> Hashes:
    hashes *= _WORD
    hashes ^= hashes >> np.uint64(32)
    return hashes
