"""The proof of a base file: a hash of its bytes, piece by piece, that whoever reads a piece computes again.

A piece is a row group with everything up to the next one, and in the end the footer, so that each byte of a file is in
one piece. The hash is XXH3-128: it finds damage at the speed of memory, and a task that reads a part of a file need not
read the rest. It is no defence against somebody who forges a file: against that stands who may write to a deep store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pyarrow as pa
import xxhash
from pydantic import BaseModel, ConfigDict

from anew.core.errors import Failed

_HASH_DIGITS = 32


class FileProof(BaseModel):
    """The pieces of a base file: one for each row group, then one for the footer.

    Attributes:
        ends: Where each piece ends, in bytes from the file's beginning; it begins where the one before it ends.
        hashes: XXH3-128 of each piece's bytes, hex.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ends: tuple[int, ...]
    hashes: tuple[str, ...]

    @property
    def row_groups(self) -> int:
        """How many row groups the file has; the footer's piece comes after theirs."""
        return len(self.ends) - 1

    @property
    def size_bytes(self) -> int:
        """The size of the whole file."""
        return self.ends[-1]

    def span(self, piece: int) -> tuple[int, int]:
        """Where a piece begins and ends."""
        return (self.ends[piece - 1] if piece else 0), self.ends[piece]

    def check(self, path: str, piece: int, content: Any) -> None:
        """Raise unless these bytes are the piece.

        Args:
            path: The file, for the error.
            piece: Which of its pieces.
            content: The bytes that were read for it; fewer where the file ended.

        Raises:
            Failed: ``checksum_mismatch``, naming file and row group.
        """
        found, expected = piece_hash(content), self.hashes[piece]
        if found == expected:
            return
        begin, end = self.span(piece)
        name = "the footer" if piece == self.row_groups else f"row group {piece} of {self.row_groups}"
        size = len(memoryview(content))
        raise Failed(
            "checksum_mismatch",
            f"{name} of {path} is not what was written",
            found=f"{found} of {size} bytes" if size == end - begin else f"{size} of {end - begin} bytes",
            expected=f"{expected} (bytes {begin} to {end})",
            hint="the file is damaged: anew store repair NAME",
        )


def piece_hash(content: Any) -> str:
    """XXH3-128 of some bytes, hex."""
    return xxhash.xxh3_128_hexdigest(content)


@dataclass(slots=True)
class ProvingSink:
    """A file that is being written, seen as its bytes pass: what was meant to be written, whatever a disk makes of it.

    A file object for ``pyarrow.parquet.ParquetWriter``.
    """

    target: pa.NativeFile
    closed: bool = field(init=False, default=False)
    _position: int = field(init=False, default=0)
    _digest: Any = field(init=False, default_factory=sha256)
    _piece: Any = field(init=False, default_factory=xxhash.xxh3_128)
    _ends: list[int] = field(init=False, default_factory=list)
    _hashes: list[str] = field(init=False, default_factory=list)

    def write(self, content: Any) -> int:
        """Write bytes."""
        self._piece.update(content)
        self._digest.update(content)
        count = len(memoryview(content))
        self.target.write(content)
        self._position += count
        return count

    def tell(self) -> int:
        """How many bytes were written."""
        return self._position

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        """The target is closed by who opened it."""
        self.closed = True

    def writable(self) -> bool:
        """Always."""
        return True

    def end_piece(self) -> None:
        """All that was written since the last piece is one."""
        self._ends.append(self._position)
        self._hashes.append(self._piece.hexdigest())
        self._piece.reset()

    def proof(self) -> FileProof:
        """The pieces that were ended."""
        return FileProof(ends=tuple(self._ends), hashes=tuple(self._hashes))

    @property
    def checksum(self) -> str:
        """SHA-256 of all that was written, hex."""
        digest: str = self._digest.hexdigest()
        return digest


def prove_stream(chunks: Iterator[bytes], ends: tuple[int, ...]) -> tuple[FileProof, str]:
    """The proof of bytes that come in chunks, cut where the pieces end, and the SHA-256 of all.

    Bytes behind the last end count for the SHA-256 alone.
    """
    digest, piece, hashes, position = sha256(), xxhash.xxh3_128(), list[str](), 0
    for chunk in chunks:
        digest.update(chunk)
        left = memoryview(chunk)
        while len(left):
            room = ends[len(hashes)] - position if len(hashes) < len(ends) else len(left)
            piece.update(left[:room])
            position += len(left[:room])
            left = left[room:]
            if len(hashes) < len(ends) and position == ends[len(hashes)]:
                hashes.append(piece.hexdigest())
                piece.reset()
    missing = [piece.hexdigest()] * (len(ends) - len(hashes))
    return FileProof(ends=ends, hashes=(*hashes, *missing)), digest.hexdigest()
