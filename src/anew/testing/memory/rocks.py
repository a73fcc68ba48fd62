"""What `anew.storage` uses of RocksDB, in memory: the disk outlives the processes that have it open.

What a write put there is there for whoever opens the directory next, as RocksDB's own log makes sure of; a directory
that was removed is gone with its content. An instance is open in one place at a time.
"""

from __future__ import annotations

import marshal
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from anew.core.arrow import bytes_list
from anew.storage.rocks import CELLS, META, DatabaseClosed, RocksError

_NAME = "CURRENT"

Family = dict[bytes, bytes]


@dataclass(slots=True)
class Instance:
    """The content of one directory, by family, and who has it open."""

    families: dict[int, Family] = field(default_factory=lambda: {CELLS: {}, META: {}})
    open_in: MemoryRocks | None = None


@dataclass(slots=True)
class RocksDisk:
    """The instances of a machine, each named by a file in its directory.

    Attributes:
        writing: Directories in which somebody is just writing.
        point: Called with what happens next, before and after each write; it may end the process that writes.
        sick: Directory → what each operation on an instance below it raises.
    """

    instances: dict[str, Instance] = field(default_factory=dict)
    writing: set[str] = field(default_factory=set)
    point: Callable[[str], None] = lambda _what: None
    sick: dict[str, Exception] = field(default_factory=dict)
    _made: int = 0

    def at(self, directory: Path) -> Instance:
        """The instance of a directory; a fresh one where there is none."""
        name = directory / _NAME
        if not name.exists():
            directory.mkdir(parents=True, exist_ok=True)
            self._made += 1
            name.write_text(str(self._made), encoding="utf-8")
            self.instances[str(self._made)] = Instance()
        return self.instances[name.read_text(encoding="utf-8")]

    def check(self, directory: str) -> None:
        """Raise what a disk that is sick raises."""
        for place, error in self.sick.items():
            if directory.startswith(f"{place}/"):
                raise error


class MemoryCursor:
    """A place in a family; see `anew.storage.rocks.Cursor`."""

    def __init__(self, family: Family) -> None:
        """At no key yet."""
        self._items = sorted(family.items())
        self._at = len(self._items)

    def seek(self, key: bytes) -> None:
        """Go to the first key that is not below one."""
        self._at = bisect_left(self._items, (key, b""))

    def take(self, most: int) -> list[tuple[bytes, bytes]]:
        """The next pairs."""
        taken = self._items[self._at : self._at + most]
        self._at += len(taken)
        return taken

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """All that is left."""
        yield from self.take(len(self._items))


class MemoryRocks:
    """An open instance; see `anew.storage.rocks.Database`."""

    def __init__(self, disk: RocksDisk, directory: str) -> None:
        """Open a directory.

        Raises:
            RocksError: It is open elsewhere.
        """
        disk.check(directory)
        self._disk = disk
        self.directory = directory
        self._instance = disk.at(Path(directory))
        if self._instance.open_in is not None:
            raise RocksError(f"lock hold by another: {directory}")
        self._instance.open_in = self
        self._closed = False

    def get(self, key: bytes, family: int = CELLS) -> bytes | None:
        """The value of a key."""
        self._disk.check(self.directory)
        return self._family(family).get(key)

    def get_many(self, keys: list[bytes], *, is_sorted: bool = False) -> list[bytes | None]:
        """The cells of keys."""
        self._disk.check(self.directory)
        if is_sorted and keys != sorted(keys):
            raise RocksError("the keys do not ascend")
        return [self._family(CELLS).get(key) for key in keys]

    def write(
        self,
        keys: list[bytes],
        cells: list[bytes],
        meta: Sequence[tuple[bytes, bytes]] = (),
        *,
        is_durable: bool = False,  # everything is
    ) -> None:
        """Put all at once."""
        self._disk.check(self.directory)
        self._disk.writing.add(self.directory)
        try:
            self._disk.point("write")
            self._family(CELLS).update(zip(keys, cells, strict=True))
            self._family(META).update(meta)
            self._disk.point("written")
        finally:
            self._disk.writing.discard(self.directory)

    def ingest(self, paths: Sequence[str]) -> None:
        """Take sorted files in, and remove them."""
        self._disk.check(self.directory)
        self._disk.point("ingest")
        for path in paths:
            self._family(CELLS).update(marshal.loads(Path(path).read_bytes()))  # noqa: S302 - made by `MemorySst`
            Path(path).unlink()
        self._disk.point("ingested")

    def entries(self) -> int:
        """How many cells there are."""
        self._disk.check(self.directory)
        return len(self._family(CELLS))

    @contextmanager
    def cursor(self, family: int = CELLS, readahead_bytes: int = 0) -> Iterator[MemoryCursor]:
        """Go through a family as it is now."""
        yield MemoryCursor(self._family(family))

    def close(self) -> None:
        """Let others open the directory."""
        self._closed = True
        if self._instance.open_in is self:
            self._instance.open_in = None

    def _family(self, number: int) -> Family:
        if self._closed:
            raise DatabaseClosed(self.directory)
        return self._instance.families[number]


class MemorySst:
    """Writes a sorted file; see `anew.storage.rocks.SortedFile`."""

    def __init__(self, path: str, _options: object) -> None:
        """Begin a file."""
        self._path = Path(path)
        self._pairs: Family = {}
        self._last: bytes | None = None

    def put(self, keys: pa.BinaryArray, cells: pa.BinaryArray) -> None:
        """Add columns.

        Raises:
            RocksError: A key is not above the one before it.
        """
        for key, cell in zip(bytes_list(keys), bytes_list(cells), strict=True):
            if self._last is not None and key <= self._last:
                raise RocksError("keys must be added in strict ascending order")
            self._pairs[key] = cell
            self._last = key

    def finish(self) -> None:
        """Finish the file.

        Raises:
            RocksError: It is empty.
        """
        if not self._pairs:
            raise RocksError("cannot finish an empty file")
        self._path.write_bytes(marshal.dumps(self._pairs))


@contextmanager
def rocks_in_memory(disk: RocksDisk) -> Iterator[None]:
    """Let `anew.storage` keep its replicas on a disk in memory."""

    def opened(directory: str, _cells: object, _meta: object) -> MemoryRocks:
        return MemoryRocks(disk, directory)

    with patch("anew.storage.replica.Database", opened), patch("anew.storage.sst.SortedFile", MemorySst):
        yield
