"""Reading base files: each piece is read once, its hash is compared with the manifest's, and those bytes are decoded.

Nothing else opens base files (checked by import-linter): what was not proved is not decoded. A file that an earlier
format's manifest names has a SHA-256 alone: it is read twice, the first time for its checksum, which proves the hashes
that are made of its pieces on the way.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anew.core.errors import Failed
from anew.core.rows import ROWS
from anew.deepstore.failures import check_sum
from anew.deepstore.interface import DeepStore
from anew.segments.manifest import BaseFile
from anew.segments.proof import FileProof, prove_stream

READ_BATCH_ROWS = 32_768
_CHUNK_BYTES = 4 << 20
_MAGIC = b"PAR1"
_TAIL_BYTES = 8
"""At the end of a Parquet file: the length of its metadata (4 bytes, little-endian) and the magic."""


def read_proven(store: DeepStore, file: BaseFile, slice_: int = 0, slices: int = 1) -> Iterator[pa.RecordBatch]:
    """The rows of a base file in key order, batch by batch, columns ``ROWS``.

    Args:
        store: Where it is.
        file: What the manifest says of it.
        slice_: With ``slices``: of its row groups only those of one slice, in order, so that all slices together are
            the file.
        slices: Into how many slices.

    Raises:
        Failed: ``checksum_mismatch``, naming file and row group; ``file_missing``.
        Unreachable: The deep store does not answer.
    """
    with store.open(file.path) as source:
        proof = file.proof or prove_whole(store, file.path, file.checksum)
        count = proof.row_groups
        yield from ProvenFile(file.path, source, proof).rows(
            range(count * slice_ // slices, count * (slice_ + 1) // slices)
        )


def prove_whole(store: DeepStore, path: str, checksum: str) -> FileProof:
    """The proof of a file of which only the SHA-256 is known: read whole, a few MB at a time.

    Raises:
        Failed: ``checksum_mismatch``, naming the file.
    """
    with store.open(path) as source:
        ends = _piece_ends(source)
        source.seek(0)
        proof, found = prove_stream(_chunks(source), ends)
    check_sum(path, found, checksum)
    return proof


@dataclass(slots=True)
class ProvenFile:
    """An open base file and its proof."""

    path: str
    source: pa.NativeFile
    proof: FileProof

    def rows(self, groups: Sequence[int], columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of some row groups, batch by batch; all columns (then ``ROWS``), or these.

        Raises:
            Failed: ``checksum_mismatch``.
        """
        if not groups:
            return
        held: Any = _Held(self.proof.size_bytes)
        with pq.ParquetFile(held, metadata=self._metadata(), pre_buffer=False) as file:
            for group in groups:
                held.hold(self.proof.span(group)[0], self._piece(group))
                for batch in file.iter_batches(READ_BATCH_ROWS, row_groups=[group], columns=columns):
                    yield batch.cast(ROWS) if columns is None and batch.schema != ROWS else batch

    def _metadata(self) -> pq.FileMetaData:
        footer = self._piece(self.proof.row_groups)
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer.to_pybytes()))
        if metadata.num_row_groups != self.proof.row_groups:
            raise Failed(
                "checksum_mismatch",
                f"the footer of {self.path} is of another file",
                found=f"{metadata.num_row_groups} row groups",
                expected=f"{self.proof.row_groups}, as its manifest says",
                hint="the file is damaged: anew store repair NAME",
            )
        return metadata

    def _piece(self, piece: int) -> pa.Buffer:
        begin, end = self.proof.span(piece)
        self.source.seek(begin)
        content = self.source.read_buffer(end - begin)
        self.proof.check(self.path, piece, content)
        return content


@dataclass(slots=True)
class _Held:
    """A file of which one piece is there: what ``pyarrow.parquet`` reads from while it decodes a row group."""

    size_bytes: int
    closed: bool = field(init=False, default=False)
    _begin: int = field(init=False, default=0)
    _content: memoryview = field(init=False, default_factory=lambda: memoryview(b""))
    _position: int = field(init=False, default=0)

    def hold(self, begin: int, content: pa.Buffer) -> None:
        """From now on these bytes are there, and no others."""
        self._begin, self._content = begin, memoryview(content)

    def read(self, size: int = -1) -> memoryview:
        """The next bytes, which must be of the piece that is held."""
        begin = self._position - self._begin
        end = begin + size
        if size < 0 or begin < 0 or end > len(self._content):
            raise io.UnsupportedOperation("a row group lies outside of the bytes that were proved")
        self._position += size
        return self._content[begin:end]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go somewhere."""
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size_bytes}
        self._position = bases[whence] + offset
        return self._position

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def flush(self) -> None:
        """Nothing is written."""

    def close(self) -> None:
        """Let go of the bytes."""
        self.closed, self._content = True, memoryview(b"")


def _piece_ends(source: pa.NativeFile) -> tuple[int, ...]:
    """Where the pieces of a file end, as its own footer says; not proved yet.

    A footer that cannot be read gives one piece, whose bytes will not have the file's checksum.
    """
    size = source.size()
    try:
        metadata = pq.read_metadata(source)
        begins = [_begin_of(metadata.row_group(group)) for group in range(metadata.num_row_groups)]
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError):
        return (size,)
    source.seek(size - _TAIL_BYTES)
    footer = size - _TAIL_BYTES - int.from_bytes(source.read(4), "little")
    ends = (*begins[1:], footer, size)
    return ends if all(end > before for before, end in zip((0, *ends), ends, strict=False)) else (size,)


def _begin_of(group: Any) -> int:
    """Where the first page of a row group is."""
    columns = [group.column(index) for index in range(group.num_columns)]
    begins: list[int | None] = [column.data_page_offset for column in columns]
    begins += [column.dictionary_page_offset for column in columns]
    return min(begin for begin in begins if begin is not None)


def _chunks(source: pa.NativeFile) -> Iterator[bytes]:
    while chunk := source.read(_CHUNK_BYTES):
        yield chunk
