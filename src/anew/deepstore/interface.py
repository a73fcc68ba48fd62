"""The deep store that everything else is written against. Paths are relative, with ``/``, below one root."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as the deep store holds it."""

    path: str
    size_bytes: int
    modified_ms: int


class DeepStore(Protocol):
    """One fabric's deep store. Safe to call from several threads and processes.

    Nothing is ever overwritten: writing to a path that holds other bytes raises `Refused` code ``path_taken``.
    Errors common to all: `Unreachable` when the store does not answer (``deep_store_unreachable``) or does not let us
    in (``deep_store_denied``, ``deep_store_no_bucket``); `OutcomeUnknown` code ``deep_store_outcome_unknown`` when it
    went away while a file was being published; `Failed` code ``file_missing`` when a path that should exist does not.
    """

    @property
    def root_uri(self) -> str:
        """Where the store lies, in the form that `open_deep_store` takes (``/dir``, ``s3://bucket/prefix``)."""

    def check(self) -> None:
        """Raise unless the store can be used; a directory is made."""

    def absolute(self, path: str) -> str:
        """The path below the root as other programs (Spark) name it."""

    def write(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        """Open a fresh file for writing. It appears under ``path`` whole, when the block ends without an error."""

    def put(self, path: str, content: bytes) -> None:
        """Write a small file whole; the same bytes again is nothing, other bytes are refused (``path_taken``)."""

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for random access reading."""

    def get(self, path: str) -> bytes:
        """The whole of a small file."""

    def stat(self, path: str) -> StoredFile | None:
        """The file, or None when there is none."""

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """All files below a directory prefix, recursively, in path order; nothing when there is none."""

    def checksum(self, path: str) -> str:
        """The SHA-256 of the file's bytes, hex, read back from the store."""

    def download(self, path: str, target: Path, expected_checksum: str) -> None:
        """Copy to a local file, checked while copying; a partial copy never appears under ``target``.

        The copy need not outlive a power cut: it is for the process that asked for it.

        Raises:
            Failed: Code ``checksum_mismatch``; found and expected say both.
        """

    def delete(self, path: str) -> None:
        """Remove one file; nothing happens when there is none."""

    def delete_tree(self, prefix: str) -> int:
        """Remove everything below a directory prefix; returns the number of files removed."""
