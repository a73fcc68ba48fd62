"""What a batch of feed records does to the cells that a replica holds: a pure function of both.

A batch is not reduced by itself and then compared: the held cell takes part in the reduction as one more row. An
append-timed record may owe its time to an earlier one of its clock that is already in the cell (rule R6), and would
otherwise lose inside its batch against a record that it beats.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.codec.compression import Compressor
from anew.core.arrow import bytes_list, concat, replaced, take
from anew.core.cell import decode_headers, encode_cells, stamp_columns
from anew.core.dropping import buried, expired_among
from anew.core.reduce import find_winners, sort_rows
from anew.core.rows import ROWS

_TIME_AT, _TIME_END = 8, 16
_TIME = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Floors:
    """A version's frozen floors, ms: see rules R11 (time to live) and R12 (dropped tombstones)."""

    ttl_floor_ms: int = 0
    tombstone_floor_ms: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is to be written.

    Attributes:
        keys: The keys whose cell changes.
        cells: Their new cells.
        rejected: Indices of the rows that R12 turns away.
    """

    keys: list[bytes]
    cells: list[bytes]
    rejected: list[int]


def outcome_of(rows: pa.RecordBatch, held: dict[bytes, bytes], floors: Floors, codec: Compressor) -> Outcome:
    """The cells after ``rows`` (columns `ROWS`, values uncompressed) meet the ``held`` cells of their keys."""
    count = rows.num_rows
    held_keys, held_cells = list(held), list(held.values())
    # The held come last: of equal stamps the last row wins, so that a replay changes nothing.
    together = sort_rows(concat([_numbered(rows), *_held_rows(held_keys, held_cells, count)]))
    winners = find_winners(together)
    chosen = together.column("hash").to_numpy()[winners.indices]
    incoming = chosen < count
    kept, times = chosen[incoming], winners.times[incoming]
    late = _late_keys(rows, kept, times, held, floors.tombstone_floor_ms)
    if late:
        stays = np.array([key not in late for key in bytes_list(take(rows, kept).column("key"))], dtype=np.bool_)
        kept, times = kept[stays], times[stays]
    winning = replaced(take(rows, kept), "time", pa.array(times))
    winning = buried(winning, expired_among(winning, floors.ttl_floor_ms))
    stored = replaced(winning, "value", codec.compress_array(winning.column("value")))
    keys, cells = bytes_list(stored.column("key")), bytes_list(encode_cells(stored))
    for index, time in zip(chosen[~incoming & winners.raised], winners.times[~incoming & winners.raised], strict=True):
        cell = held_cells[index - count]
        keys.append(held_keys[index - count])
        cells.append(cell[:_TIME_AT] + _TIME.pack(int(time)) + cell[_TIME_END:])
    rejected = [i for i, key in enumerate(bytes_list(rows.column("key"))) if key in late] if late else []
    return Outcome(keys, cells, rejected)


def _numbered(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without their values, each with its index where its hash was."""
    bare = replaced(rows, "value", pa.nulls(rows.num_rows, pa.binary()))
    return replaced(bare, "hash", pa.array(np.arange(rows.num_rows)))


def _held_rows(keys: Sequence[bytes], cells: Sequence[bytes], first: int) -> list[pa.RecordBatch]:
    """The stamps of cells as rows that are numbered from ``first``; no batch when there is no cell."""
    count = len(keys)
    if count == 0:
        return []
    headers, origins = decode_headers(cells)
    columns: dict[str, pa.Array[Any]] = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.nulls(count, pa.binary()),
        "hash": pa.array(np.arange(first, first + count)),
        **stamp_columns(headers, origins),
    }
    return [pa.RecordBatch.from_arrays([columns[name] for name in ROWS.names], schema=ROWS)]


def _late_keys(
    rows: pa.RecordBatch,
    kept: npt.NDArray[np.int64],
    times: npt.NDArray[np.int64],
    held: dict[bytes, bytes],
    floor_ms: int,
) -> set[bytes]:
    """The keys without a cell whose winner, and so each of whose records, is below the tombstone floor (R12)."""
    below = kept[times < floor_ms]
    if below.size == 0:
        return set()
    return {key for key in bytes_list(take(rows, below).column("key")) if key not in held}
