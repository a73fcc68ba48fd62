"""Base files: sorted Parquet of rows (`anew.core.rows.ROWS`), values compressed by the version's codec."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from anew.codec.compression import Compressor
from anew.core.arrow import binary_lengths
from anew.core.errors import Failed
from anew.core.hashing import total
from anew.core.ledger import Entry
from anew.core.rows import ROWS
from anew.deepstore.interface import DeepStore
from anew.segments.ascending import check_ascending
from anew.segments.content import check_content
from anew.segments.manifest import BaseFile
from anew.segments.proof import FileProof, ProvingSink
from anew.segments.provenfile import ProvenFile

ROW_GROUP_ROWS = 65_536
_ROW_GROUP_BYTES = 64 << 20
"""Keys and values of a row group are no more than that, or one row: who reads one holds all of it.

Where groups end follows from the rows alone, and not from how they came in batches: a repair makes a lost file again
from its rows, to the last byte.
"""
_DICTIONARY_COLUMNS: Any = ["schema_id", "origin", "incarnation", "feed_partition"]
_COMPRESSION: Any = {name: "none" if name in ("key", "value", "hash") else "zstd" for name in ROWS.names}
_COUNTED = ["key", "schema_id", "hash"]


@dataclass(slots=True)
class BaseFileWriter:
    """Writes one base file from sorted batches; nothing exists under its path until `close` succeeded."""

    store: DeepStore
    path: str
    codec: Compressor
    _stack: contextlib.ExitStack
    _sink: ProvingSink
    _writer: pq.ParquetWriter
    _pending: list[pa.RecordBatch]
    _pending_rows: int = 0
    _pending_bytes: int = 0
    _smallest: bytes | None = None
    _largest: bytes | None = None

    @classmethod
    def open(cls, store: DeepStore, path: str, codec: Compressor) -> BaseFileWriter:
        """Start a file whose values are compressed by a codec."""
        stack = contextlib.ExitStack()
        sink = ProvingSink(stack.enter_context(store.write(path)))
        target: Any = sink
        sorting = pq.SortingColumn(ROWS.get_field_index("key"))
        writer = pq.ParquetWriter(
            target,
            ROWS,
            compression=_COMPRESSION,
            use_dictionary=_DICTIONARY_COLUMNS,
            write_statistics=["key"],
            sorting_columns=[sorting],
            store_schema=False,
        )
        return cls(store, path, codec, stack, sink, writer, [])

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows that come after all before them."""
        if rows.num_rows == 0:
            return
        if self._smallest is None:
            self._smallest = rows.column("key")[0].as_py()
        self._largest = rows.column("key")[rows.num_rows - 1].as_py()
        wanted, first = rows.select(ROWS.names), 0
        sizes = np.cumsum(binary_lengths(rows.column("value")).astype(np.int64) + binary_lengths(rows.column("key")))
        while first < rows.num_rows:
            before = int(sizes[first - 1]) if first else 0
            room = before + _ROW_GROUP_BYTES - self._pending_bytes
            fits = min(int(np.searchsorted(sizes, room, side="right")), first + ROW_GROUP_ROWS - self._pending_rows)
            after = max(fits, first + (not self._pending_rows))
            if after == first:
                self._flush()
                continue
            self._pending.append(wanted.slice(first, after - first))
            self._pending_rows += after - first
            self._pending_bytes += int(sizes[after - 1]) - before
            first = after

    def close(self) -> BaseFile | None:
        """Finish the file, read it back, and say what it holds; None (and no file) when there was no row.

        Raises:
            Failed: ``checksum_mismatch``: the deep store does not hold what was written; ``unsorted_base_file``: its
                keys are not strictly ascending; ``rows_altered``: its content is not that of the rows that were read.
        """
        self._flush()
        self._writer.close()
        if self._smallest is None or self._largest is None:
            self.abort()
            return None
        self._sink.end_piece()
        self._stack.close()
        proof = self._sink.proof()
        stored = self.store.stat(self.path)
        if stored is None:
            raise Failed("file_missing", "a base file is gone right after it was written", found=self.path)
        account = read_back(self.store, self.path, proof, self.codec)
        return BaseFile(
            path=self.path,
            rows=account.live.count,
            tombstones=account.tombstones.count,
            bytes=stored.size_bytes,
            checksum=self._sink.checksum,
            smallest_key=self._smallest.hex(),
            largest_key=self._largest.hex(),
            fingerprint=(account.live + account.tombstones).hash,
            proof=proof,
        )

    def abort(self) -> None:
        """Give the file up; nothing appears under its path."""
        with contextlib.suppress(_Abandoned):
            self._stack.__exit__(_Abandoned, _Abandoned(), None)

    def _flush(self) -> None:
        if self._pending:
            # Pages end where a chunk does: the same rows give the same bytes only in one.
            self._writer.write_table(pa.Table.from_batches(self._pending, schema=ROWS).combine_chunks())
            self._sink.end_piece()
            self._pending, self._pending_rows, self._pending_bytes = [], 0, 0


class _Abandoned(Exception):
    """Tells the deep store that a file is not wanted."""


@dataclass(frozen=True, slots=True)
class Account:
    """The rows of a finished file, counted from the file itself."""

    live: Entry
    tombstones: Entry


def read_back(store: DeepStore, path: str, proof: FileProof, codec: Compressor) -> Account:
    """Prove a file's bytes, count and sum its rows as they lie in the store, and check that its keys ascend strictly.

    The rows of one row group, which the path chooses, are hashed again from their content. All others carry the hashes
    that they were read with: a gather that pairs keys with values of their neighbours does so in every row group.

    Raises:
        Failed: ``checksum_mismatch``, ``unsorted_base_file``, ``rows_altered``, each naming the file.
    """
    live = dead = Entry()
    last: bytes | None = None
    groups = range(proof.row_groups)
    hashed = xxhash.xxh3_64_intdigest(path.encode()) % proof.row_groups
    with store.open(path) as source:
        file = ProvenFile(path, source, proof)
        for group in groups:
            for batch in file.rows([group], None if group == hashed else _COUNTED):
                if group == hashed:
                    check_content(batch, codec, path)
                last = check_ascending(batch.column("key"), last, path)
                # A tombstone has schema id 0 and no live row has, so that the values need not be read.
                alive = batch.column("schema_id").to_numpy() != 0
                hashes = batch.column("hash").to_numpy()
                count = int(alive.sum())
                live += Entry(count=count, hash=total(np.ascontiguousarray(hashes[alive])))
                dead += Entry(count=batch.num_rows - count, hash=total(np.ascontiguousarray(hashes[~alive])))
    return Account(live, dead)
