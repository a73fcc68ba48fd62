"""The package itself, as executors get it: its build (the hash of its sources), and a zip for Spark's ``pyFiles``.

``python -m anew.spark.package FILE.zip`` writes that zip for a session that anew does not make itself.
"""

from __future__ import annotations

import functools
import sys
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import xxhash

_PACKAGE = "anew"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The oldest time that a zip can hold: the same sources give the same bytes."""


@functools.cache
def build_of_package() -> str:
    """The hash of the sources that this process imports, hex: two builds of one release are two builds."""
    seen = xxhash.xxh3_64()
    for name, content in _sources():
        seen.update(f"{name}\0{len(content)}\0".encode())
        seen.update(content)
    return seen.hexdigest()


def place_of_package() -> str:
    """Where this process imports the package from, for people."""
    return str(files(_PACKAGE))


def write_package(target: Path) -> Path:
    """Write the package as a zip that Python can import, with what was compiled; returns the path.

    What it imports itself is not in it.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(_below(files(_PACKAGE), _PACKAGE, (".py", ".so"))):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return target


def _sources() -> Iterator[tuple[str, bytes]]:
    yield from sorted(_below(files(_PACKAGE), _PACKAGE, (".py",)))


def _below(folder: Traversable, path: str, endings: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _below(entry, name, endings)
        elif entry.name.endswith(endings):
            yield name, entry.read_bytes()


if __name__ == "__main__":
    sys.stdout.write(f"{write_package(Path(sys.argv[1]))}: build {build_of_package()}\n")
