"""Folders of drivers on this machine: held by a lock while they are used, and removed by whoever comes next.

A driver that is killed leaves its folder. The lock on it ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX, _HELD = "anew-", ".held"


@contextmanager
def held_folder(what: str) -> Iterator[Path]:
    """A folder that nobody else may look into, while the block runs; those of drivers that were killed are removed.

    Args:
        what: What it is for, in its name.
    """
    remove_left()
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{what}-") as name:
        folder = Path(name)
        with (folder / f"{_HELD}.part").open("wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            # It appears under its name when it is locked: nobody finds it otherwise.
            Path(held.name).rename(folder / _HELD)
            yield folder


def remove_left() -> None:
    """Remove the folders that no process holds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if folder.is_dir() and not folder.is_symlink() and _is_left(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    try:
        with (folder / _HELD).open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:
        # It is held, another user's, or just being made.
        return False
