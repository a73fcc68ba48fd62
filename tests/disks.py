"""Small disks that can be filled, for tests of what happens when there is no room left."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.needs import missing

_MIB = 1 << 20


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[None]:
    """A folder, made here, is a disk of its own; skips where this user may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "none", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        missing("the right to mount a small disk", f"run as root ({mounted.stderr.strip()})")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Not a byte is free on the disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * _MIB):
                pass
        except OSError:
            pass
    try:
        yield
    finally:
        filler.unlink()
