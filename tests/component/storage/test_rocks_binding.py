"""The binding to RocksDB and the library in PySpark's jar agree on version, functions and what passes through them."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pyarrow as pa
import pytest

from anew.core.errors import Failed
from anew.storage import rocks
from anew.storage.library import library_path
from anew.storage.memory import NodeMemory, sst_options
from anew.storage.rocks import META, Database, Options, RocksError, SortedFile

FOLDER = Path(rocks.__file__).parent
SET: dict[str, tuple[type[ctypes._SimpleCData[int]], int]] = {
    "write_buffer_size": (ctypes.c_size_t, 8 * 1024 * 1024),
    "arena_block_size": (ctypes.c_size_t, 16 * 1024),
    "create_if_missing": (ctypes.c_ubyte, 1),
    "atomic_flush": (ctypes.c_ubyte, 1),
    "max_total_wal_size": (ctypes.c_uint64, 32 * 1024 * 1024),
    "keep_log_file_num": (ctypes.c_size_t, 2),
    "max_log_file_size": (ctypes.c_size_t, 1024 * 1024),
    "stats_dump_period_sec": (ctypes.c_uint, 0),
    "compression": (ctypes.c_int, rocks.LZ4),
}
"""What `NodeMemory.options` sets and RocksDB's C interface tells again, with its type there."""


def held(options: Options, name: str) -> int:
    """What RocksDB holds for an option."""
    function = ctypes.CDLL(str(library_path()))[f"rocksdb_options_get_{name}"]
    function.restype = SET[name][0]
    return int(function(options.value))


def test_the_library_is_of_a_version_that_the_binding_knows() -> None:
    """The jar's name, the library's own word and the binding's range agree."""
    version = tuple(map(int, re.findall(r"rocksdbjni-(\d+)\.(\d+)\.(\d+)", library_path().name)[0]))
    number = rocks._rocksdb().Java_org_rocksdb_RocksDB_version(None, None)
    assert (number >> 16, number >> 8 & 0xFF, number & 0xFF) == version
    assert rocks._LEAST <= version < rocks._BELOW


@pytest.mark.parametrize("number", [0, 0x080B04, 0x090700, 0x090900, 0x0A0403], ids=hex)
def test_another_version_is_refused(number: int) -> None:
    """Before any function is called whose arguments may have changed, with what was found and what to install."""
    with pytest.raises(Failed) as caught:
        rocks._check_rocksdb(number)
    assert caught.value.code == "unknown_library_version"
    assert (caught.value.expected, "pyspark" in str(caught.value.hint)) == ("9.8.0 or later, below 9.9.0", True)
    assert caught.value.found == f"{number >> 16}.{number >> 8 & 0xFF}.{number & 0xFF}"


def test_the_library_has_each_function_that_is_declared() -> None:
    """Loading the binding looks each of them up; what is called through ctypes is tried by the next test."""
    declared = re.findall(r"^    X\([^,]*, (\w+), ", (FOLDER / "rocks.c").read_text(), re.MULTILINE)
    assert len(declared) > 40
    library = ctypes.CDLL(str(library_path()))
    assert [name for name in declared if not hasattr(library, f"rocksdb_{name}")] == []


def test_options_arrive_as_they_were_set() -> None:
    """Each setter's argument is of the width and in the place that RocksDB takes it from."""
    options = NodeMemory().options()
    assert {name: held(options, name) for name in SET} == {name: value for name, (_, value) in SET.items()}


def test_what_was_put_in_comes_out(tmp_path: Path) -> None:
    """By a batch or a sorted file; one by one, many at once, in order, and out of a checkpoint."""
    memory = NodeMemory()
    database = Database(str(tmp_path / "d"), memory.options(), memory.small_options())
    in_file = {b"": b"\x00", b"a\x00": b"", b"b": b"of the file" * 100}
    by_batch = {b"b\xff": b"\x00\xff" * 40, b"\xff\xff": bytes(range(256))}
    file = SortedFile(str(tmp_path / "f.sst"), sst_options())
    file.put(pa.array(in_file, pa.binary()), pa.array(in_file.values(), pa.binary()))
    file.finish()
    database.ingest([str(tmp_path / "f.sst")])
    database.write([*by_batch], [*by_batch.values()], [(b"position", b"\x01\x00\x02")])
    database.checkpoint(str(tmp_path / "c"))
    copy = Database(str(tmp_path / "c"), memory.options(), memory.small_options(), may_write=False)
    put = in_file | by_batch
    for each in (database, copy):
        assert [each.get(key) for key in (*put, b"none")] == [*put.values(), None]
        assert each.get_many([*put, b"none"], is_sorted=False) == [*put.values(), None]
        assert each.get_many(sorted(put), is_sorted=True) == [put[key] for key in sorted(put)]
        assert each.get(b"position", META) == b"\x01\x00\x02"
        with each.cursor() as cursor:
            cursor.seek(b"")
            assert list(cursor) == sorted(put.items())
    # The files' own count: a checkpoint puts what was written last into one.
    assert database.entries() == len(put)
    with pytest.raises(RocksError):
        copy.write([b"k"], [b"v"])
    copy.close()
    database.close()
