"""What a batch of feed records does to the cells that a replica holds: a pure function of both.

Most records are alone with their key in their batch and newer than its cell: they win as they are. All others are
reduced, and not by themselves to be compared afterwards: the held cell takes part in the reduction as one more row. An
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
from anew.core.cell import APPEND_TIMED, decode_headers, decode_origins, encode_cells, stamp_columns
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
    keys = bytes_list(rows.column("key"))
    clear = _clear_wins(rows, keys, held)
    won, raised = _Won(np.arange(rows.num_rows), rows.column("time").to_numpy()), dict[bytes, bytes]()
    if not clear.all():
        won, raised = _contested(rows, keys, held, clear)
    late = _late(won, keys, held, floors.tombstone_floor_ms)
    rejected = list[int]()
    if late.any():
        late_keys = {keys[row] for row in won.rows[late].tolist()}
        rejected = [row for row, key in enumerate(keys) if key in late_keys]
        won = _Won(won.rows[~late], won.times[~late])
    changed, winning = keys, rows
    if rejected or not clear.all():
        changed = [keys[row] for row in won.rows.tolist()]
        winning = replaced(take(rows, won.rows), "time", pa.array(won.times))
    winning = buried(winning, expired_among(winning, floors.ttl_floor_ms))
    stored = replaced(winning, "value", codec.compress_array(winning.column("value")))
    return Outcome([*changed, *raised], [*bytes_list(encode_cells(stored)), *raised.values()], rejected)


@dataclass(frozen=True, slots=True)
class _Won:
    """Rows that win over all others of their key and over its cell, and the times they win with; shape (n,) each."""

    rows: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]


def _late(won: _Won, keys: list[bytes], held: dict[bytes, bytes], floor_ms: int) -> npt.NDArray[np.bool_]:
    """Which winners, and so all records of their keys, are below the tombstone floor and meet no cell (rule R12)."""
    late = won.times < floor_ms
    late[late] = [keys[row] not in held for row in won.rows[late].tolist()]
    return late


def _clear_wins(rows: pa.RecordBatch, keys: list[bytes], held: dict[bytes, bytes]) -> npt.NDArray[np.bool_]:
    """Which rows win without the reduction, shape (n,): alone with their key here, and no cell or an older one.

    A greater time wins (rule R6) with one exception, which the reduction decides: of two append-timed records of one
    clock the one at the later offset does.
    """
    count = len(keys)
    distinct = dict(zip(keys, range(count), strict=True))
    clear = np.ones(count, dtype=np.bool_)
    if len(distinct) < count:
        of_key = np.fromiter(map(distinct.__getitem__, keys), np.int64, count)
        clear = np.bincount(of_key, minlength=count)[of_key] == 1
    cells = list(map(held.get, keys))
    among = np.fromiter((cell is not None for cell in cells), np.bool_, count).nonzero()[0]
    if among.size:
        headers = decode_headers([cell for cell in cells if cell is not None])
        timed = rows.column("append_timed").to_numpy(zero_copy_only=False)[among]
        earlier = (headers["flags"] & APPEND_TIMED == 0) | (headers["offset"] < rows.column("offset").to_numpy()[among])
        clear[among] &= (headers["time"] < rows.column("time").to_numpy()[among]) & (earlier | ~timed)
    return clear


def _contested(
    rows: pa.RecordBatch, keys: list[bytes], held: dict[bytes, bytes], clear: npt.NDArray[np.bool_]
) -> tuple[_Won, dict[bytes, bytes]]:
    """The rows that win, of ``clear`` or by reduction; and by key the held cells that win with a raised time."""
    others = (~clear).nonzero()[0]
    disputed = [key for key in dict.fromkeys(keys[row] for row in others.tolist()) if key in held]
    disputed_cells = [held[key] for key in disputed]
    count = rows.num_rows
    # The held come last: of equal stamps the last row wins, so that a replay changes nothing.
    bare = take(_numbered(rows), others)
    together = sort_rows(concat([bare, *_held_rows(disputed, disputed_cells, count)]))
    winners = find_winners(together)
    chosen = together.column("hash").to_numpy()[winners.indices]
    incoming = chosen < count
    later = (~incoming & winners.raised).nonzero()[0]
    raised = {
        disputed[index]: disputed_cells[index][:_TIME_AT] + _TIME.pack(time) + disputed_cells[index][_TIME_END:]
        for index, time in zip((chosen[later] - count).tolist(), winners.times[later].tolist(), strict=True)
    }
    at_once = clear.nonzero()[0]
    won = _Won(
        np.concatenate([at_once, chosen[incoming]]),
        np.concatenate([rows.column("time").to_numpy()[at_once], winners.times[incoming]]),
    )
    return won, raised


def _numbered(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without their values, each with its index where its hash was."""
    bare = replaced(rows, "value", pa.nulls(rows.num_rows, pa.binary()))
    return replaced(bare, "hash", pa.array(np.arange(rows.num_rows)))


def _held_rows(keys: Sequence[bytes], cells: Sequence[bytes], first: int) -> list[pa.RecordBatch]:
    """The stamps of cells as rows that are numbered from ``first``; no batch when there is no cell."""
    count = len(keys)
    if count == 0:
        return []
    headers = decode_headers(cells)
    columns: dict[str, pa.Array[Any]] = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.nulls(count, pa.binary()),
        "hash": pa.array(np.arange(first, first + count)),
        **stamp_columns(headers, decode_origins(cells, headers)),
    }
    return [pa.RecordBatch.from_arrays([columns[name] for name in ROWS.names], schema=ROWS)]
