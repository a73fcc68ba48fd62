"""RocksDB as this project uses it: what a call gives, what it says when it cannot, and what a close waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from anew.core import compiled
from anew.core.errors import Failed
from anew.storage import rocks
from anew.storage.memory import NodeMemory, sst_options
from anew.storage.rocks import META, Database, DatabaseClosed, Options, RocksError, SortedFile, behind

MEMORY = NodeMemory()


def opened(directory: Path) -> Database:
    """A database that may be written."""
    return Database(str(directory), MEMORY.options(), MEMORY.small_options())


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A fresh database."""
    made = opened(tmp_path / "d")
    yield made
    made.close()


def keys_of(count: int) -> list[bytes]:
    """So many keys in order."""
    return [f"{number:06}".encode() for number in range(count)]


def sorted_file(path: Path, keys: list[bytes], cells: list[bytes]) -> None:
    """Write a sorted file, in two parts that are slices of longer columns."""
    columns = [pa.array([b"before", *values, b"after"], pa.binary()) for values in (keys, cells)]
    half = len(keys) // 2
    file = SortedFile(str(path), sst_options())
    for first, count in ((1, half), (1 + half, len(keys) - half)):
        file.put(*(column.slice(first, count) for column in columns))
    file.finish()


@pytest.mark.parametrize("count", [1, 100, 1_000], ids=str)
def test_many_are_found_as_one_by_one(database: Database, count: int) -> None:
    """In the order that was asked, whether the interpreter is given away or not; also empty keys and cells."""
    keys = [b"", *keys_of(count)]
    cells = [b"\x00" * (len(key) * number % 300) for number, key in enumerate(keys)]
    database.write(keys, cells)
    held = dict(zip(keys, cells, strict=True))
    assert database.get_many(keys, is_sorted=True) == cells
    asked = [b"none", *reversed(keys), keys[-1], b"\xff\xff"]
    assert database.get_many(asked) == [held.get(key) for key in asked] == [database.get(key) for key in asked]
    assert database.get_many([]) == []


def test_a_write_covers_both_families(tmp_path: Path) -> None:
    """What was put is there in both, and after the directory was opened again; families do not see one another."""
    database = opened(tmp_path / "d")
    database.write([b"k"], [b"cell"], [(b"k", b"entry"), (b"only", b"meta")], is_durable=True)
    database.close()
    database = opened(tmp_path / "d")
    assert (database.get(b"k"), database.get(b"k", META), database.get(b"only")) == (b"cell", b"entry", None)
    database.close()


def test_a_directory_is_open_once(database: Database, tmp_path: Path) -> None:
    """A second opening says why not, and leaves the first alone; one to read only does not make a directory."""
    with pytest.raises(RocksError, match="lock"):
        opened(tmp_path / "d")
    with pytest.raises(RocksError, match=r"does not exist|No such file"):
        Database(str(tmp_path / "none"), Options(), Options(), may_write=False)
    database.write([b"k"], [b"cell"])


def test_a_cursor_goes_through_what_was_there(database: Database) -> None:
    """From a key on, so many at a time, as it was when it began."""
    keys = keys_of(10)
    database.write(keys, keys)
    with database.cursor() as cursor:
        database.write([b"zzz"], [b"late"])
        cursor.seek(behind(None))
        assert cursor.take(4) == [(key, key) for key in keys[:4]]
        cursor.seek(behind(keys[3]))
        assert list(cursor) == [(key, key) for key in keys[4:]]
        cursor.seek(keys[7])
        assert cursor.take(100) == [(key, key) for key in keys[7:]]
        assert cursor.take(100) == []


def test_sorted_files_are_taken_in(database: Database, tmp_path: Path) -> None:
    """What their columns hold, also where these are slices; the files are moved, and newer ones hide older."""
    keys = keys_of(1_000)
    sorted_file(tmp_path / "old.sst", keys, [b"old" + key for key in keys])
    sorted_file(tmp_path / "new.sst", keys[:10], [b"" for _ in keys[:10]])
    database.ingest([str(tmp_path / "old.sst")])
    assert database.entries() == 1_000
    database.ingest([str(tmp_path / "new.sst")])
    assert database.get_many(keys) == [b""] * 10 + [b"old" + key for key in keys[10:]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d"]


@pytest.mark.parametrize("keys", [[b"a", b"a"], [b"b", b"a"]], ids=["twice", "backwards"])
def test_keys_of_a_sorted_file_ascend(tmp_path: Path, keys: list[bytes]) -> None:
    """RocksDB itself refuses anything else."""
    with pytest.raises(RocksError, match="order"):
        sorted_file(tmp_path / "f.sst", keys, keys)


def test_a_sorted_file_without_anything_cannot_be_finished(tmp_path: Path) -> None:
    """Nor can one be begun where there is no folder; columns are of one length."""
    with pytest.raises(RocksError, match="no entries"):
        SortedFile(str(tmp_path / "f.sst"), sst_options()).finish()
    with pytest.raises(RocksError, match="No such file"):
        SortedFile(str(tmp_path / "none" / "f.sst"), sst_options())
    with pytest.raises(TypeError, match="one length"):
        SortedFile(str(tmp_path / "f.sst"), sst_options()).put(pa.array([b"a", b"b"]), pa.array([b"a"]))


def test_what_is_no_bytes_is_refused(database: Database) -> None:
    """Nothing is read of an object that is no byte string, and nothing is written."""
    wrong: list[bytes] = ["text"]  # type: ignore[list-item]  # that is the point
    for act in (
        lambda: database.get(wrong[0]),
        lambda: database.get_many(wrong),
        lambda: database.write([b"k"], wrong),
        lambda: database.write(wrong, [b"k"]),
    ):
        with pytest.raises(TypeError):
            act()
    with pytest.raises(RocksError, match="as many"):
        database.write([b"k", b"l"], [b"cell"])
    assert database.get(b"k") is None


def test_a_package_that_was_not_built_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever installed it without a compiler learns what to do."""
    monkeypatch.setattr(compiled, "files", lambda _package: tmp_path)
    with pytest.raises(Failed) as caught:
        rocks._native.__wrapped__()
    assert (caught.value.code, "make setup" in str(caught.value.hint)) == ("not_compiled", True)


def test_a_closed_database_says_so(database: Database, tmp_path: Path) -> None:
    """Whatever is asked; closing again changes nothing."""
    database.close()
    database.close()
    for act in (
        lambda: database.get(b"k"),
        lambda: database.get_many([b"k"]),
        lambda: database.write([b"k"], [b"cell"]),
        lambda: database.ingest([]),
        database.entries,
        lambda: database.checkpoint(str(tmp_path / "c")),
        lambda: database.cursor().__enter__(),
    ):
        with pytest.raises(DatabaseClosed):
            act()


def test_a_close_waits_for_those_inside(database: Database) -> None:
    """Whoever reads when another thread closes has its answer; whoever comes later is told."""
    keys = keys_of(500)
    database.write(keys, keys)
    inside, ended = threading.Barrier(5), list[str]()

    def read() -> None:
        inside.wait()
        try:
            while True:
                assert database.get_many(keys, is_sorted=True) == keys
                assert database.get(keys[7]) == keys[7]
        except DatabaseClosed:
            ended.append("told")

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    inside.wait()
    with database.cursor() as cursor:
        closing = threading.Thread(target=database.close)
        closing.start()
        cursor.seek(behind(None))
        assert len(cursor.take(1_000)) == 500
        for reader in readers:
            reader.join()
        assert closing.is_alive()
    closing.join()
    assert ended == ["told"] * 4
