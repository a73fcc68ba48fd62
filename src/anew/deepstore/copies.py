"""Local copies of what a deep store holds, checked while they are made."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from anew.deepstore.failures import check_sum
from anew.deepstore.paths import temporary_names


def copy_checked(path: str, chunks: Iterable[bytes], target: Path, expected_checksum: str) -> None:
    """Write some bytes to a local file; it appears whole, with the expected SHA-256, or not at all.

    A power cut may take it away again: a copy is for the process that asked for it.

    Args:
        path: Where the bytes come from, for errors.
        chunks: The bytes.
        target: The local file; its directory is made.
        expected_checksum: In hex.

    Raises:
        Failed: ``checksum_mismatch``.
        OSError: The local disk's, as they are.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(make_temporary(str(target)))
    digest = hashlib.sha256()
    try:
        with temporary.open("wb") as copy:
            for chunk in chunks:
                digest.update(chunk)
                copy.write(chunk)
        check_sum(path, digest.hexdigest(), expected_checksum)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def make_temporary(final: str) -> str:
    """Make an empty temporary file beside ``final``; a name that another process uses is passed over."""
    for name in temporary_names(final):
        try:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            continue
        return name
    raise AssertionError("unreachable: there are always more names")


def sync(path: Path) -> None:
    """Force a file's or a directory's content to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
