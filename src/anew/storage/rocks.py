"""RocksDB: databases of cells, each with a small family beside them, and sorted files.

The library is the one that comes with PySpark (``rocksdbjni``), whose C interface its shared object exports; `rocks.c`
passes many keys at once to it, without the interpreter's lock where that may take long. What keeps the interpreter for
longer makes every reader of a node wait: a binding that does so for each call had a p99 of tens of milliseconds.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from anew.core.compiled import check_version, load_compiled
from anew.core.errors import Failed
from anew.storage.library import library_path

CELLS, META = 0, 1
"""The families of a database: ``default``, and one whose entries are written together with cells."""
_META_NAME = b"meta"
LZ4 = 4
"""RocksDB's number of a compression type."""
_TAKEN_AT_ONCE = 256
_LEAST, _BELOW = (9, 8, 0), (9, 9, 0)
"""The versions of RocksDB whose functions `rocks.c` and this module declare: its C interface changes in minor ones."""


class RocksError(Exception):
    """RocksDB's own words about what went wrong."""


class DatabaseClosed(Exception):
    """The database was closed, perhaps in this moment by another thread."""


@contextmanager
def as_failed(message: str, where: Path | str, hint: str) -> Iterator[None]:
    """Raise what RocksDB raises inside as one of this project's errors.

    Raises:
        Failed: ``storage_broken``.
    """
    try:
        yield
    except RocksError as error:
        raise Failed(
            "storage_broken",
            message,
            found=f"{where}: {error}",
            expected="an instance that no other process has open, and whose files are whole",
            hint=hint,
        ) from None


class Handle:
    """Something of RocksDB's with a name and an end; see `Options`, `TableOptions` and `Cache`."""

    def __init__(self, kind: str, *given: int | float | Handle, made_by: str = "create") -> None:
        """Make one by ``rocksdb_KIND_create``."""
        self._kind = kind
        # Looked up now: at the interpreter's end the library's name may be gone before this object.
        self._destroy: Any = _function(None, f"rocksdb_{kind}_destroy")
        self.value = ctypes.c_void_p(_called(ctypes.c_void_p, f"rocksdb_{kind}_{made_by}", *given))

    def set(self, what: str, *given: int | float | Handle) -> None:
        """Call ``rocksdb_KIND_set_WHAT``."""
        _called(None, f"rocksdb_{self._kind}_set_{what}", self, *given)

    def __del__(self) -> None:
        if getattr(self, "value", None):
            self._destroy(self.value)


class Cache(Handle):
    """A block cache of so many bytes."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__("cache", size_bytes, made_by="create_lru")


class WriteBuffers(Handle):
    """A budget of bytes for write buffers, which count as part of a cache; writers are never stalled for it."""

    def __init__(self, size_bytes: int, cache: Cache) -> None:
        super().__init__("write_buffer_manager", size_bytes, cache, 0, made_by="create_with_cache")


class TableOptions(Handle):
    """How sorted files are laid out."""

    def __init__(self) -> None:
        super().__init__("block_based_options")

    def set_bloom_filter(self, bits_per_key: float) -> None:
        """Let files say of most keys that they are not there."""
        # No `Handle`: the table's options own the filter from now on.
        self.set("filter_policy", _called(ctypes.c_void_p, "rocksdb_filterpolicy_create_bloom_full", bits_per_key))


class Options(Handle):
    """Options of a family, or of a database with the first family's."""

    def __init__(self) -> None:
        super().__init__("options")

    def set_tables(self, tables: TableOptions) -> None:
        """Take a copy of table options."""
        self.set("block_based_table_factory", tables)


class Database:
    """An open database. Any thread may read it, one at a time may change it, also while another closes it."""

    def __init__(self, directory: str, cells: Options, meta: Options, *, may_write: bool = True) -> None:
        """Open a directory, or make it where ``cells`` say so; without ``may_write`` it is left as it is.

        Raises:
            RocksError: It cannot be opened, for instance because another process has it.
        """
        self._native = _native()
        self._handle = self._native.rocks_open(
            os.fsencode(directory), _META_NAME, cells.value, meta.value, int(may_write)
        )

    def get(self, key: bytes, family: int = CELLS) -> bytes | None:
        """The value of a key.

        Raises:
            DatabaseClosed, RocksError.
        """
        found: bytes | None = self._native.rocks_get(self._handle, family, key)
        return found

    def get_many(self, keys: list[bytes], *, is_sorted: bool = False) -> list[bytes | None]:
        """The cells of keys, in their order; ``is_sorted``: the keys ascend.

        Raises:
            DatabaseClosed, RocksError.
        """
        found: list[bytes | None] = self._native.rocks_get_many(self._handle, keys, is_sorted)
        return found

    def write(
        self,
        keys: list[bytes],
        cells: list[bytes],
        meta: Sequence[tuple[bytes, bytes]] = (),
        *,
        is_durable: bool = False,
    ) -> None:
        """Put cells and entries of the other family, all or none; ``is_durable``: on disk before this returns.

        Raises:
            DatabaseClosed, RocksError.
        """
        names, values = [name for name, _ in meta], [value for _, value in meta]
        self._native.rocks_write(self._handle, keys, cells, names, values, is_durable)

    def ingest(self, paths: Sequence[str]) -> None:
        """Move sorted files, which do not overlap, in above all that is there.

        Raises:
            DatabaseClosed, RocksError.
        """
        self._native.rocks_ingest(self._handle, [os.fsencode(path) for path in paths])

    def entries(self) -> int:
        """How many cells the sorted files hold, those that others hide too.

        Raises:
            DatabaseClosed.
        """
        return int(self._native.rocks_entries(self._handle))

    def checkpoint(self, directory: str) -> None:
        """Keep what is there now under a fresh directory, by hard links.

        Raises:
            DatabaseClosed, RocksError.
        """
        self._native.rocks_checkpoint(self._handle, os.fsencode(directory))

    @contextmanager
    def cursor(self, family: int = CELLS, readahead_bytes: int = 0) -> Iterator[Cursor]:
        """Go through a family in key order, as it is now; `close` waits for the end of the block.

        Raises:
            DatabaseClosed.
        """
        handle = self._native.rocks_cursor(self._handle, family, readahead_bytes)
        try:
            yield Cursor(self._native, handle)
        finally:
            self._native.rocks_end(handle)

    def close(self) -> None:
        """Let go of the directory once nobody is inside any more."""
        self._native.rocks_close(self._handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._native.rocks_close(self._handle)
            self._native.rocks_free(self._handle)


class Cursor:
    """A place in a family; see `Database.cursor`."""

    def __init__(self, native: Any, handle: int) -> None:
        self._native, self._handle = native, handle

    def seek(self, key: bytes) -> None:
        """Go to the first key that is not below one."""
        self._native.rocks_seek(self._handle, key)

    def take(self, most: int) -> list[tuple[bytes, bytes]]:
        """The next keys and values; fewer than ``most`` only at the end.

        Raises:
            RocksError: Something cannot be read.
        """
        taken: list[bytes] = self._native.rocks_take(self._handle, most)
        return list(zip(taken[::2], taken[1::2], strict=True))

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """All that is left."""
        while taken := self.take(_TAKEN_AT_ONCE):
            yield from taken


def behind(key: bytes | None) -> bytes:
    """The least key above one; None: the least of all."""
    return b"" if key is None else key + b"\0"


class SortedFile:
    """Writes a sorted file, apart from any database."""

    def __init__(self, path: str, options: Options) -> None:
        """Begin it.

        Raises:
            RocksError.
        """
        self._native, self._options = _native(), options
        self._handle = self._native.rocks_sst_open(os.fsencode(path), options.value)

    def put(self, keys: pa.BinaryArray, cells: pa.BinaryArray) -> None:
        """Add columns without nulls, of one length; keys ascend strictly, also from call to call.

        Raises:
            RocksError: They do not ascend, or the file cannot be written.
        """
        if keys.type != pa.binary() or cells.type != pa.binary() or len(keys) != len(cells):
            raise TypeError(f"two binary columns of one length are written, not {keys.type} and {cells.type}")
        self._native.rocks_sst_put(self._handle, len(keys), *_places(keys), *_places(cells))

    def finish(self) -> None:
        """Write the rest; the file is there then.

        Raises:
            RocksError: There is no pair in it, or it cannot be written.
        """
        self._native.rocks_sst_finish(self._handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._native.rocks_sst_free(self._handle)


def _places(column: pa.BinaryArray) -> tuple[int, int]:
    """Where a column's offsets and bytes are; the column must outlive their use."""
    _, offsets, content = column.buffers()
    assert offsets is not None
    return offsets.address + column.offset * ctypes.sizeof(ctypes.c_int32), 0 if content is None else content.address


# -- calls ---------------------------------------------------------------------------------------------------------


def _called(result: Any, name: str, *given: int | float | Handle) -> Any:
    """Call one of RocksDB's own functions that neither fails nor waits."""
    return _function(result, name)(*map(_argument, given))


def _function(result: Any, name: str) -> Any:
    # Each look-up by index makes an object of its own, whose type of result is nobody else's.
    function = _rocksdb()[name]
    function.restype = result
    return function


def _argument(given: int | float | Handle) -> Any:
    if isinstance(given, Handle):
        return given.value
    # An integer of any width is passed in a register of this one.
    return ctypes.c_double(given) if isinstance(given, float) else ctypes.c_int64(given)


@functools.cache
def _rocksdb() -> ctypes.CDLL:
    """RocksDB's library.

    Raises:
        Failed: ``no_rocksdb``, ``unknown_library_version``.
    """
    library = ctypes.CDLL(str(library_path()))
    # The function behind `RocksDB.rocksdbVersion()` of the jar: it uses neither of its arguments. Old jars lack it.
    version: Callable[..., int] = getattr(library, "Java_org_rocksdb_RocksDB_version", lambda *_: 0)
    _check_rocksdb(version(None, None))
    return library


def _check_rocksdb(number: int) -> None:
    """Refuse a version that `rocks.c` does not know, given as RocksDB's Java binding tells it: a byte each.

    Raises:
        Failed: ``unknown_library_version``.
    """
    found = number >> 16 & 0xFF, number >> 8 & 0xFF, number & 0xFF
    hint = "install the version of pyspark that anew asks for"
    check_version("RocksDB", found, least=_LEAST, below=_BELOW, hint=hint)


@functools.cache
def _native() -> ctypes.PyDLL:
    """What `rocks.c` was compiled to, bound to RocksDB's library.

    Raises:
        Failed: ``not_compiled``, ``no_rocksdb``, ``unknown_library_version``.
    """
    _rocksdb()
    native = load_compiled("anew.storage", "_rocks.so", ctypes.PyDLL)
    pointer, number, text, thing = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.py_object
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "bind": (number, [text, thing, thing]),
        "open": (pointer, [text, text, pointer, pointer, number]),
        "close": (None, [pointer]),
        "free": (None, [pointer]),
        "get": (thing, [pointer, number, thing]),
        "get_many": (thing, [pointer, thing, number]),
        "write": (number, [pointer, thing, thing, thing, thing, number]),
        "ingest": (number, [pointer, thing]),
        "entries": (ctypes.c_int64, [pointer]),
        "checkpoint": (number, [pointer, text]),
        "cursor": (pointer, [pointer, number, ctypes.c_size_t]),
        "seek": (number, [pointer, thing]),
        "take": (thing, [pointer, ctypes.c_int64]),
        "end": (None, [pointer]),
        "sst_open": (pointer, [text, pointer]),
        "sst_put": (number, [pointer, ctypes.c_int64, pointer, pointer, pointer, pointer]),
        "sst_finish": (number, [pointer]),
        "sst_free": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function: Callable[..., Any] = getattr(native, f"rocks_{name}")
        function.restype, function.argtypes = result, arguments  # type: ignore[attr-defined]  # a foreign function
    native.rocks_bind(os.fsencode(library_path()), RocksError, DatabaseClosed)
    return native
