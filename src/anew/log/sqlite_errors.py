"""SQLite's and the file system's errors in this project's words."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anew.core.errors import AnewError, Failed, Unreachable

_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED")
_CORRUPT = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_NOT_OURS = frozenset({"SQLITE_ERROR", "SQLITE_SCHEMA", "SQLITE_FORMAT", "SQLITE_MISMATCH", "SQLITE_TOOBIG"})
"""What a statement of ours comes to only where the tables are not those that were made."""
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise what SQLite or the operating system says about ``path`` as this project's errors.

    Raises:
        Unreachable: ``log_unreachable``: locked for too long, or the disk does not answer; ``log_full``.
        Failed: ``log_corrupt``.
    """
    try:
        yield
    except sqlite3.Error as error:
        # Of its shared memory SQLite says only that it could not be written, not why.
        is_full = str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_IOERR") and _no_room_beside(path)
        raise (_full(path, str(error)) if is_full else from_sqlite(error, path)) from error
    except OSError as error:
        raise _from_system(error, path) from error
    except UnicodeDecodeError as error:
        # SQLite quotes the statements that made the tables, which are damaged.
        raise _corrupt(path, str(error)) from error


def from_sqlite(error: sqlite3.Error, path: Path) -> AnewError:
    """What an SQLite error about a partition's file means, also one of a commit, whose outcome hangs on it."""
    name = str(getattr(error, "sqlite_errorname", ""))
    if name.startswith(_CORRUPT) or name in _NOT_OURS:
        return _corrupt(path, str(error))
    if name.startswith("SQLITE_FULL"):
        return _full(path, str(error))
    hint = "another program holds the file's lock for too long" if name.startswith(_LOCKED) else None
    return Unreachable("log_unreachable", "the embedded log does not answer", found=f"{path}: {error}", hint=hint)


def _no_room_beside(path: Path) -> bool:
    try:
        return os.statvfs(path.parent).f_bavail == 0
    except OSError:
        return False


def _corrupt(path: Path, found: str) -> Failed:
    return Failed(
        "log_corrupt",
        "a partition of the embedded log is damaged",
        found=f"{path}: {found}",
        expected="an intact SQLite file",
        hint="restore the file, or delete the topic and let its feed begin again",
    )


def _from_system(error: OSError, path: Path) -> AnewError:
    if error.errno in _NO_SPACE:
        return _full(path, str(error))
    return Unreachable("log_unreachable", "the embedded log does not answer", found=f"{path}: {error}")


def _full(path: Path, found: str) -> Unreachable:
    return Unreachable(
        "log_full", "the disk of the embedded log is full", found=f"{path}: {found}", hint="free some space, try again"
    )
