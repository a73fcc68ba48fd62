"""The format of a key's cell in RocksDB: a versioned header, the origin, the stored value.

::

    0   u8   format version (1)         8   i64  time, ms
    1   u8   flags: 1 tombstone,       16   u32  incarnation
             2 append-timed            20   u32  feed partition (a job's: batch)
    2   u8   length of the origin      24   i64  offset (a job's: sequence)
    3   u8   0, kept for later         32        origin, order-preserving bytes
    4   u32  value schema's id               …   value, compressed by the version's codec

Numbers are little-endian. A reader refuses a format version that it does not know.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.core.arrow import binary_lengths, join_binary
from anew.core.errors import Failed
from anew.core.merge import Cell
from anew.core.rows import ROWS
from anew.core.stamp import Stamp

FORMAT_VERSION = 1
HEADER_BYTES = 32
TOMBSTONE = 1
APPEND_TIMED = 2

_HEADER = struct.Struct("<BBBBIqIIq")
_HEADER_TYPE = np.dtype(
    [
        ("format", "u1"),
        ("flags", "u1"),
        ("origin_bytes", "u1"),
        ("reserved", "u1"),
        ("schema_id", "<u4"),
        ("time", "<i8"),
        ("incarnation", "<u4"),
        ("feed_partition", "<u4"),
        ("offset", "<i8"),
    ]
)


def encode_cell(cell: Cell) -> bytes:
    """The bytes of one cell; `encode_cells` is the same for many."""
    stamp = cell.stamp
    flags = (TOMBSTONE if cell.value is None else 0) | (APPEND_TIMED if stamp.append_timed else 0)
    header = _HEADER.pack(
        FORMAT_VERSION,
        flags,
        len(stamp.origin),
        0,
        cell.schema_id,
        stamp.time_ms,
        stamp.incarnation,
        stamp.partition,
        stamp.offset,
    )
    return header + stamp.origin + (b"" if cell.value is None else cell.value)


def decode_cell(encoded: bytes) -> Cell:
    """The cell of its bytes.

    Raises:
        Failed: The bytes are of a format version that this release does not know, or too short.
    """
    if len(encoded) < HEADER_BYTES:
        raise Failed("corrupt_cell", "a cell is too short", found=len(encoded), expected=f">= {HEADER_BYTES} bytes")
    version, flags, origin_bytes, _, schema_id, time_ms, incarnation, partition, offset = _HEADER.unpack_from(encoded)
    _check_format(version)
    value_start = HEADER_BYTES + origin_bytes
    if len(encoded) < value_start:
        raise Failed("corrupt_cell", "a cell is too short", found=len(encoded), expected=f">= {value_start} bytes")
    origin = encoded[HEADER_BYTES:value_start]
    stamp = Stamp(time_ms, origin, bool(flags & APPEND_TIMED), incarnation, partition, offset)
    return Cell(stamp, None if flags & TOMBSTONE else encoded[value_start:], schema_id)


def encode_cells(rows: pa.RecordBatch) -> pa.BinaryArray:
    """The cell of each row (columns of `anew.core.rows.ROWS`, values as they are to be stored), shape (n,)."""
    headers = np.zeros(rows.num_rows, dtype=_HEADER_TYPE)
    tombstones = rows.column("value").is_null().to_numpy(zero_copy_only=False)
    append_timed = rows.column("append_timed").to_numpy(zero_copy_only=False)
    headers["format"] = FORMAT_VERSION
    headers["flags"] = tombstones * TOMBSTONE + append_timed * APPEND_TIMED
    headers["origin_bytes"] = binary_lengths(rows.column("origin"))
    for name in ("schema_id", "time", "incarnation", "feed_partition", "offset"):
        headers[name] = rows.column(name).to_numpy(zero_copy_only=False)
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(HEADER_BYTES), rows.num_rows, [None, pa.py_buffer(headers.tobytes())]
    )
    return join_binary(fixed.cast(pa.binary()), rows.column("origin"), rows.column("value"))


def decode_cells(keys: Sequence[bytes], cells: Sequence[bytes]) -> pa.RecordBatch:
    """The rows (columns `anew.core.rows.ROWS`, values as they are stored, hashes 0) of cells, shape (n,).

    Raises:
        Failed: ``corrupt_cell``: one is too short; ``unknown_cell_format``.
    """
    shortest = min(map(len, cells), default=HEADER_BYTES)
    if shortest < HEADER_BYTES:
        raise Failed("corrupt_cell", "a cell is too short", found=shortest, expected=f">= {HEADER_BYTES} bytes")
    headers = decode_headers(cells)
    starts = (headers["origin_bytes"] + np.int64(HEADER_BYTES)).tolist()
    dead = (headers["flags"] & TOMBSTONE).tolist()
    values = [None if gone else cell[at:] for cell, at, gone in zip(cells, starts, dead, strict=True)]
    columns: dict[str, pa.Array[Any]] = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "hash": pa.array(np.zeros(len(cells), dtype=np.int64)),
        **stamp_columns(headers, decode_origins(cells, headers)),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in ROWS.names], schema=ROWS)


def stamp_columns(headers: npt.NDArray[np.void], origins: Sequence[bytes]) -> dict[str, pa.Array[Any]]:
    """Schema ids and stamps of what `decode_headers` and `decode_origins` gave, as columns of `anew.core.rows.ROWS`."""
    return {
        "schema_id": pa.array(headers["schema_id"].astype(np.int32)),
        "time": pa.array(headers["time"].astype(np.int64)),
        "origin": pa.array(origins, pa.binary()),
        "append_timed": pa.array((headers["flags"] & APPEND_TIMED).astype(np.bool_)),
        "incarnation": pa.array(headers["incarnation"].astype(np.int32)),
        "feed_partition": pa.array(headers["feed_partition"].astype(np.int32)),
        "offset": pa.array(headers["offset"].astype(np.int64)),
    }


def decode_headers(cells: Sequence[bytes]) -> npt.NDArray[np.void]:
    """The headers of cells: a structured array of shape (n,) with the fields of the format.

    Raises:
        Failed: A cell is of a format version that this release does not know.
    """
    headers = np.frombuffer(b"".join([cell[:HEADER_BYTES] for cell in cells]), dtype=_HEADER_TYPE)
    others = headers["format"][headers["format"] != FORMAT_VERSION]
    if others.size:
        _check_format(int(others[0]))
    return headers


def decode_origins(cells: Sequence[bytes], headers: npt.NDArray[np.void]) -> list[bytes]:
    """The encoded origins of cells, given their headers."""
    lengths = headers["origin_bytes"].tolist()
    return [cell[HEADER_BYTES : HEADER_BYTES + length] for cell, length in zip(cells, lengths, strict=True)]


def _check_format(version: int) -> None:
    if version != FORMAT_VERSION:
        raise Failed(
            "unknown_cell_format",
            "a cell was written by another release",
            found=f"format version {version}",
            expected=f"format version {FORMAT_VERSION}",
            hint="load the replica again with this release: remove its directory and restart the node",
        )
