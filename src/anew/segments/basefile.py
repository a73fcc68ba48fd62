"""Base files: sorted Parquet of rows (`anew.core.rows.ROWS`), values compressed by the version's codec."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anew.core.errors import Failed
from anew.core.hashing import total
from anew.core.ledger import MODULUS, Entry
from anew.core.rows import ROWS
from anew.deepstore.interface import DeepStore
from anew.segments.ascending import check_ascending
from anew.segments.manifest import BaseFile

ROW_GROUP_ROWS = 65_536
_DICTIONARY_COLUMNS: Any = ["schema_id", "origin", "incarnation", "feed_partition"]
_COMPRESSION: Any = {name: "none" if name in ("key", "value", "hash") else "zstd" for name in ROWS.names}
_READ_BATCH_ROWS = 32_768


@dataclass(slots=True)
class BaseFileWriter:
    """Writes one base file from sorted batches; nothing exists under its path until `close` succeeded."""

    store: DeepStore
    path: str
    _stack: contextlib.ExitStack
    _writer: pq.ParquetWriter
    _pending: list[pa.RecordBatch]
    _pending_rows: int = 0
    _smallest: bytes | None = None
    _largest: bytes | None = None

    @classmethod
    def open(cls, store: DeepStore, path: str) -> BaseFileWriter:
        """Start a file."""
        stack = contextlib.ExitStack()
        sink = stack.enter_context(store.write(path))
        sorting = pq.SortingColumn(ROWS.get_field_index("key"))
        writer = pq.ParquetWriter(
            sink,
            ROWS,
            compression=_COMPRESSION,
            use_dictionary=_DICTIONARY_COLUMNS,
            write_statistics=["key"],
            sorting_columns=[sorting],
            store_schema=False,
        )
        return cls(store, path, stack, writer, [])

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows that come after all before them."""
        if rows.num_rows == 0:
            return
        if self._smallest is None:
            self._smallest = rows.column("key")[0].as_py()
        self._largest = rows.column("key")[rows.num_rows - 1].as_py()
        wanted, first = rows.select(ROWS.names), 0
        while first < rows.num_rows:
            piece = wanted.slice(first, ROW_GROUP_ROWS - self._pending_rows)
            self._pending.append(piece)
            self._pending_rows += piece.num_rows
            first += piece.num_rows
            if self._pending_rows == ROW_GROUP_ROWS:
                self._flush()

    def close(self) -> BaseFile | None:
        """Finish the file, read it back, and say what it holds; None (and no file) when there was no row.

        Raises:
            Failed: ``unsorted_base_file``: what was written does not read back as strictly ascending keys.
        """
        self._flush()
        self._writer.close()
        if self._smallest is None or self._largest is None:
            self.abort()
            return None
        self._stack.close()
        stored = self.store.stat(self.path)
        if stored is None:
            raise Failed("file_missing", "a base file is gone right after it was written", found=self.path)
        account = read_account(self.store, self.path)
        return BaseFile(
            path=self.path,
            rows=account.live.count,
            tombstones=account.tombstones.count,
            bytes=stored.size_bytes,
            checksum=self.store.checksum(self.path),
            smallest_key=self._smallest.hex(),
            largest_key=self._largest.hex(),
            fingerprint=(account.live + account.tombstones).hash,
        )

    def abort(self) -> None:
        """Give the file up; nothing appears under its path."""
        with contextlib.suppress(_Abandoned):
            self._stack.__exit__(_Abandoned, _Abandoned(), None)

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending, schema=ROWS))
            self._pending, self._pending_rows = [], 0


class _Abandoned(Exception):
    """Tells the deep store that a file is not wanted."""


@dataclass(frozen=True, slots=True)
class Account:
    """The rows of a finished file, counted from the file itself."""

    live: Entry
    tombstones: Entry


def read_account(store: DeepStore, path: str) -> Account:
    """Count and sum a file's rows as they lie on disk, and check that its keys ascend strictly.

    Raises:
        Failed: ``unsorted_base_file``, naming the file and the key.
    """
    live = dead = Entry()
    last: bytes | None = None
    with store.open(path) as source:
        for batch in pq.ParquetFile(source).iter_batches(_READ_BATCH_ROWS, columns=["key", "schema_id", "hash"]):
            last = check_ascending(batch.column("key"), last, path)
            # A tombstone has schema id 0 and no live row has, so that the values need not be read.
            alive = batch.column("schema_id").to_numpy() != 0
            hashes = batch.column("hash").to_numpy()
            count = int(alive.sum())
            live += Entry(count=count, hash=total(np.ascontiguousarray(hashes[alive])))
            dead += Entry(count=batch.num_rows - count, hash=total(np.ascontiguousarray(hashes[~alive])) % MODULUS)
    return Account(live, dead)


def read_rows(source: Any, part: int = 0, parts: int = 1) -> Iterator[pa.RecordBatch]:
    """The rows of a base file (a local path or an open file), batch by batch, columns ``ROWS``.

    With ``parts``: of its row groups only those of one part, in order, so that all parts together are the file.
    """
    with pq.ParquetFile(source, memory_map=isinstance(source, str)) as file:
        count = file.num_row_groups
        groups = list(range(count * part // parts, count * (part + 1) // parts))
        for batch in file.iter_batches(_READ_BATCH_ROWS, row_groups=groups) if groups else ():
            yield batch.cast(ROWS) if batch.schema != ROWS else batch
