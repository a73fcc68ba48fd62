"""What `anew.storage` uses of RocksDB, in memory: the disk outlives the processes that have it open.

What a write put there is there for whoever opens the directory next, as RocksDB's own log makes sure of; a directory
that was removed is gone with its content. An instance is open in one place at a time.
"""

from __future__ import annotations

import marshal
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from anew.storage import replica as replica_module

_NAME = "CURRENT"
_CLOSED: type[Exception] = vars(replica_module)["DbClosedError"]
DEFAULT = "default"

Family = dict[bytes, bytes]


@dataclass(slots=True)
class Instance:
    """The content of one directory, by column family, and who has it open."""

    families: dict[str, Family] = field(default_factory=dict)
    open_in: MemoryRocks | None = None


@dataclass(slots=True)
class RocksDisk:
    """The instances of a machine, each named by a file in its directory.

    Attributes:
        writing: Directories in which somebody is just writing.
        point: Called with what happens next, before and after each write; it may end the process that writes.
    """

    instances: dict[str, Instance] = field(default_factory=dict)
    writing: set[str] = field(default_factory=set)
    point: Callable[[str], None] = lambda _what: None
    _made: int = 0

    def at(self, directory: Path, families: Sequence[str]) -> Instance:
        """The instance of a directory; a fresh one where there is none."""
        name = directory / _NAME
        if not name.exists():
            directory.mkdir(parents=True, exist_ok=True)
            self._made += 1
            name.write_text(str(self._made), encoding="utf-8")
            self.instances[str(self._made)] = Instance({family: {} for family in families})
        return self.instances[name.read_text(encoding="utf-8")]


class MemoryBatch:
    """Puts that happen together; see rocksdict's ``WriteBatch``."""

    def __init__(self, *, raw_mode: bool = True) -> None:
        """An empty batch."""
        self.puts: list[tuple[str, bytes, bytes]] = []
        self.used = False

    def __setitem__(self, key: bytes, value: bytes) -> None:
        """A put into the default family."""
        self.puts.append((DEFAULT, bytes(key), bytes(value)))

    def put(self, key: bytes, value: bytes, handle: str = DEFAULT) -> None:
        """A put into a family."""
        self.puts.append((handle, bytes(key), bytes(value)))


class MemoryIterator:
    """Goes through a family in key order; see rocksdict's ``RdictIter``."""

    def __init__(self, family: Family) -> None:
        """At no key yet."""
        self._items = sorted(family.items())
        self._keys = [key for key, _ in self._items]
        self._at = len(self._items)

    def seek_to_first(self) -> None:
        """Go to the least key."""
        self._at = 0

    def seek(self, key: bytes) -> None:
        """Go to the least key that is not below ``key``."""
        self._at = bisect_left(self._keys, key)

    def valid(self) -> bool:
        """Whether there is a key here."""
        return self._at < len(self._items)

    def key(self) -> bytes:
        """The key here."""
        return self._items[self._at][0]

    def value(self) -> bytes:
        """The value here."""
        return self._items[self._at][1]

    def next(self) -> None:
        """Go one key on."""
        self._at += 1


@dataclass(frozen=True, slots=True)
class MemoryFamily:
    """A column family as ``get_column_family`` gives it."""

    content: Family

    def iter(self) -> MemoryIterator:
        """An iterator over it."""
        return MemoryIterator(self.content)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        return self.content.get(key)


class MemoryRocks:
    """An open instance; see rocksdict's ``Rdict``."""

    def __init__(self, disk: RocksDisk, directory: str, families: dict[str, Any]) -> None:
        """Open a directory.

        Raises:
            OSError: It is open elsewhere.
        """
        self._disk = disk
        self.directory = directory
        self._instance = disk.at(Path(directory), list(families))
        if self._instance.open_in is not None:
            raise OSError(f"lock hold by another: {directory}")
        self._instance.open_in = self
        self._closed = False

    def get(self, key: bytes | list[bytes]) -> Any:
        """The value of a key, or those of several."""
        family = self._family(DEFAULT)
        return [family.get(one) for one in key] if isinstance(key, list) else family.get(key)

    def __setitem__(self, key: bytes, value: bytes) -> None:
        """Put one pair."""
        batch = MemoryBatch()
        batch[key] = value
        self.write(batch)

    def write(self, batch: MemoryBatch, _options: object = None) -> None:
        """Put all of a batch at once."""
        if batch.used:
            raise ValueError("a write batch is used once")
        self._disk.writing.add(self.directory)
        try:
            self._disk.point("write")
            batch.used = True
            for family, key, value in batch.puts:
                self._family(family)[key] = value
            self._disk.point("written")
        finally:
            self._disk.writing.discard(self.directory)

    def ingest_external_file(self, paths: list[str], _options: object = None) -> None:
        """Take sorted files in, and remove them."""
        self._disk.point("ingest")
        for path in paths:
            self._family(DEFAULT).update(marshal.loads(Path(path).read_bytes()))  # noqa: S302 - made by `MemorySst`
            Path(path).unlink()
        self._disk.point("ingested")

    def live_files(self) -> list[dict[str, int]]:
        """One sorted file, with the number of its entries."""
        return [{"num_entries": len(self._family(DEFAULT))}]

    def iter(self) -> MemoryIterator:
        """An iterator over the default family."""
        return MemoryIterator(self._family(DEFAULT))

    def items(self, from_key: bytes | None = None, read_opt: object = None) -> Iterator[tuple[bytes, bytes]]:
        """The default family's pairs from a key on."""
        family = self._family(DEFAULT)
        return iter([(k, v) for k, v in sorted(family.items()) if from_key is None or k >= from_key])

    def get_column_family(self, name: str) -> MemoryFamily:
        """A family to read."""
        return MemoryFamily(self._family(name))

    def get_column_family_handle(self, name: str) -> str:
        """What a batch names a family by."""
        return name

    def close(self) -> None:
        """Let others open the directory."""
        self._closed = True
        if self._instance.open_in is self:
            self._instance.open_in = None

    def _family(self, name: str) -> Family:
        if self._closed:
            raise _CLOSED("DB already closed")
        return self._instance.families[name]


class MemorySst:
    """Writes a sorted file; see rocksdict's ``SstFileWriter``."""

    def __init__(self, _options: object = None) -> None:
        """Nothing is open yet."""
        self._path: Path | None = None
        self._pairs: Family = {}
        self._last: bytes | None = None

    def open(self, path: str) -> None:
        """Begin a file."""
        self._path, self._pairs, self._last = Path(path), {}, None

    def __setitem__(self, key: bytes, value: bytes) -> None:
        """Add a pair.

        Raises:
            ValueError: The key is not above the one before it.
        """
        if self._last is not None and key <= self._last:
            raise ValueError("keys must be added in strict ascending order")
        self._pairs[bytes(key)] = bytes(value)
        self._last = key

    def finish(self) -> None:
        """Finish the file.

        Raises:
            ValueError: It is empty.
        """
        if self._path is None or not self._pairs:
            raise ValueError("cannot finish an empty file")
        self._path.write_bytes(marshal.dumps(self._pairs))


@contextmanager
def rocks_in_memory(disk: RocksDisk) -> Iterator[None]:
    """Let `anew.storage` keep its replicas on a disk in memory."""

    def opened(directory: str, _options: object, column_families: dict[str, Any]) -> MemoryRocks:
        return MemoryRocks(disk, directory, column_families)

    names = {"Rdict": opened, "WriteBatch": MemoryBatch}
    with ExitStack() as stack:
        for name, value in names.items():
            stack.enter_context(patch.object(replica_module, name, value))
        stack.enter_context(patch("anew.storage.sst.SstFileWriter", MemorySst))
        yield
