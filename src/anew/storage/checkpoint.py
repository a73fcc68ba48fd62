"""A replica as it was at one moment, read from a checkpoint by another process than the one that serves it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from anew.codec.compression import Compressor
from anew.core.admission import with_hashes
from anew.core.arrow import concat, replaced
from anew.core.cell import decode_cells
from anew.core.errors import Failed
from anew.core.feed import PositionMap
from anew.core.hashing import hash_binary, key_hashes
from anew.core.rows import ROWS
from anew.storage.memory import MIB, sst_options
from anew.storage.replica import Base, read_base, read_position
from anew.storage.rocks import Cursor, Database, Options, as_failed, behind

BATCH_ROWS = 4_096
_READAHEAD_BYTES = 4 * MIB
_UNREADABLE_SCHEMA_ID = -1
_HINT = "verify again; if it fails again, remove the replica's directory and restart the node: it loads again"


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """An open checkpoint: what the replica started from, and its position; see `open_checkpoint`."""

    base: Base
    position: PositionMap
    _database: Database

    def rows(self, codec: Compressor, after: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """All cells behind a key, in key order: columns `anew.core.rows.ROWS`, values uncompressed, with hashes.

        A cell that nobody can read does not end the scan: its hash is that of its key and bytes, like no row's.
        """
        with self._database.cursor(readahead_bytes=_READAHEAD_BYTES) as cursor:
            cursor.seek(behind(after))
            while batch := _next_of(cursor):
                yield _rows([key for key, _ in batch], [cell for _, cell in batch], codec)

    def stored_rows(self, codec: Compressor) -> Iterator[pa.RecordBatch]:
        """All cells in key order as rows of a base: as `rows`, with the values as they are stored, compressed.

        Raises:
            Failed: ``storage_broken``: a cell cannot be read.
        """
        with self._database.cursor(readahead_bytes=_READAHEAD_BYTES) as cursor:
            cursor.seek(behind(None))
            while batch := _next_of(cursor):
                stored = decode_cells([key for key, _ in batch], [cell for _, cell in batch])
                plain = replaced(stored, "value", codec.decompress_array(stored.column("value")))
                yield replaced(stored, "hash", with_hashes(plain).column("hash"))


@contextmanager
def open_checkpoint(directory: Path) -> Iterator[CheckpointView]:
    """Open a checkpoint for reading.

    Raises:
        Failed: ``storage_broken``.
    """
    with as_failed("RocksDB cannot open a checkpoint", directory, _HINT):
        database = Database(str(directory), sst_options(), Options(), may_write=False)
    try:
        base = read_base(database)
        if base is None:
            raise Failed("storage_broken", "a checkpoint is of no whole replica", found=str(directory), hint=_HINT)
        yield CheckpointView(base, PositionMap(dict(read_position(database))), database)
    finally:
        database.close()


def _next_of(cursor: Cursor) -> list[tuple[bytes, bytes]]:
    with as_failed("RocksDB cannot read a checkpoint", "its cells", _HINT):
        return cursor.take(BATCH_ROWS)


def _rows(keys: Sequence[bytes], cells: Sequence[bytes], codec: Compressor) -> pa.RecordBatch:
    try:
        rows = decode_cells(keys, cells)
        return with_hashes(replaced(rows, "value", codec.decompress_array(rows.column("value"))))
    except Failed:
        if len(keys) > 1:
            return concat([_rows([key], [cell], codec) for key, cell in zip(keys, cells, strict=True)])
    return _unreadable(keys, cells)


def _unreadable(keys: Sequence[bytes], cells: Sequence[bytes]) -> pa.RecordBatch:
    hashes = hash_binary(pa.array(cells, pa.binary()), key_hashes(pa.array(keys, pa.binary())))
    row: dict[str, Any] = {name: [0] for name in ROWS.names} | {
        "key": keys,
        "value": cells,
        "schema_id": [_UNREADABLE_SCHEMA_ID],
        "origin": [b""],
        "append_timed": [False],
        "hash": hashes.view("int64"),
    }
    return pa.RecordBatch.from_pydict(row, schema=ROWS)
