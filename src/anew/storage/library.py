"""Where RocksDB's library comes from: the jar of PySpark that Spark's own state stores use."""

from __future__ import annotations

import functools
import os
import platform
import stat
import sys
import tempfile
import zipfile
import zlib
from importlib.util import find_spec
from pathlib import Path

from anew.core.errors import Failed


@functools.cache
def library_path() -> Path:
    """RocksDB's shared object for this machine, taken out of PySpark's jar once and kept in the user's cache.

    Raises:
        Failed: ``no_rocksdb``: PySpark's jars hold none for this machine.
    """
    spark = find_spec("pyspark")
    folders = [] if spark is None or spark.submodule_search_locations is None else spark.submodule_search_locations
    jars = [jar for folder in folders for jar in sorted(Path(folder, "jars").glob("rocksdbjni-*.jar"))]
    member = _member()
    if not jars or member is None:
        raise Failed(
            "no_rocksdb",
            "there is no RocksDB for this machine",
            found=f"{sys.platform} {platform.machine()}, {[jar.name for jar in jars]}",
            expected="pyspark with its jars, on Linux or macOS",
            hint="reinstall pyspark",
        )
    with zipfile.ZipFile(jars[0]) as archive:
        try:
            entry = archive.getinfo(member)
        except KeyError:
            raise Failed(
                "no_rocksdb", "PySpark's RocksDB is not for this machine", found=jars[0], expected=member
            ) from None
        return _unpacked(archive, entry, f"{jars[0].stem}-{entry.CRC:08x}-{member}")


def _member() -> str | None:
    machine = {"x86_64": "64", "amd64": "64", "aarch64": "-aarch64", "arm64": "-aarch64"}.get(
        platform.machine().lower()
    )
    if sys.platform == "darwin":
        return f"librocksdbjni-osx-{platform.machine()}.jnilib"
    if machine is None or not sys.platform.startswith("linux"):
        return None
    return f"librocksdbjni-linux{machine}{'' if platform.libc_ver()[0] == 'glibc' else '-musl'}.so"


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> Path:
    """The entry as a file that nobody else may write; one that is there already is looked through."""
    folder = _private_folder()
    path = folder / name
    if path.exists() and zlib.crc32(path.read_bytes()) == entry.CRC:
        return path
    descriptor, fresh = tempfile.mkstemp(dir=folder, prefix=name)
    with os.fdopen(descriptor, "wb") as file:
        file.write(archive.read(entry))
    Path(fresh).replace(path)
    return path


def _private_folder() -> Path:
    """A folder that lasts and that is this user's alone: what lies there is executed.

    Raises:
        Failed: ``no_private_folder``.
    """
    # Without a home this is a folder that cannot be made.
    home = Path(os.path.expanduser("~"), ".cache", "anew")  # noqa: PTH111  # Path.home raises where there is none
    folders = [home, Path(tempfile.gettempdir(), f"anew-{os.getuid()}")]
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.lstat()
        except OSError:
            continue
        is_private = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISDIR(found.st_mode) and is_private and os.access(folder, os.W_OK):
            return folder
    raise Failed(
        "no_private_folder",
        "there is no place for RocksDB's library",
        found=f"{' and '.join(map(str, folders))}: not there, or others may write into them",
        expected="one that is this user's alone",
        hint="chmod go-w the first",
    )
