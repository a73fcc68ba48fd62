"""What every deep store promises, as tests; see `anew.deepstore.interface`."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anew.core.errors import Failed, InvalidRequest, Refused
from anew.deepstore.interface import DeepStore

_BAD_PATHS = ["", ".", "..", "/etc/passwd", "../out", "a/../../out", "a//b", "a/", "a/./b", "a\\b", "a\0b", "a.1-2.tmp"]


def paths(store: DeepStore, prefix: str = "") -> list[str]:
    """The paths that a listing shows."""
    return [file.path for file in store.list(prefix)]


def _write_then(store: DeepStore, path: str, act: Callable[[], object], content: bytes = b"half") -> None:
    """Write a file and do something before it is published."""
    with store.write(path) as stream:
        stream.write(content)
        act()


class DeepStoreContract(ABC):
    """The contract; ``store`` is an empty deep store."""

    @abstractmethod
    def open_store(self, directory: Path) -> DeepStore:
        """A handle on the deep store that belongs to a test's directory."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> DeepStore:
        """An empty deep store."""
        return self.open_store(tmp_path)

    def test_what_is_written_is_read(self, store: DeepStore) -> None:
        """A file has the bytes, the size and the checksum of what was written, for every handle."""
        content = bytes(range(256)) * 1_000
        with store.write("v1/part-0.parquet") as stream:
            stream.write(content[:1_000])
            stream.write(content[1_000:])
        assert store.get("v1/part-0.parquet") == content
        assert store.checksum("v1/part-0.parquet") == hashlib.sha256(content).hexdigest()
        found = store.stat("v1/part-0.parquet")
        assert found is not None
        assert (found.path, found.size_bytes) == ("v1/part-0.parquet", len(content))
        assert found.modified_ms > 0

    def test_reading_goes_anywhere_in_a_file(self, store: DeepStore) -> None:
        """An open file can be read from any position."""
        store.put("a", b"0123456789")
        with store.open("a") as file:
            file.seek(7)
            assert file.read(2) == b"78"

    def test_a_large_file_is_like_a_small_one(self, store: DeepStore, tmp_path: Path) -> None:
        """A file of many pieces appears whole, is read here and there and in order, and is copied."""
        content = b"".join(number.to_bytes(8, "big") for number in range(2_500_000))
        with store.write("v1/large") as stream:
            for first in range(0, len(content), 3_000_000):
                stream.write(content[first : first + 3_000_000])
                assert store.stat("v1/large") is None
        assert store.checksum("v1/large") == hashlib.sha256(content).hexdigest()
        with store.open("v1/large") as file:
            assert file.size() == len(content)
            for position, size in ((len(content) - 8, 8), (0, 100), (100, 9_000_000), (9_000_200, 10), (3, 70_000)):
                file.seek(position)
                assert file.read(size) == content[position : position + size]
            file.seek(0)
            assert b"".join(iter(lambda: file.read(1_234_567), b"")) == content
        store.download("v1/large", tmp_path / "copy", store.checksum("v1/large"))
        assert (tmp_path / "copy").read_bytes() == content

    def test_a_large_file_that_is_given_up_leaves_nothing(self, store: DeepStore) -> None:
        """After an error, or when the path was taken meanwhile, nothing of a large file is left."""
        fails: list[Callable[[], object]] = [lambda: 1 // 0, lambda: store.put("v1/large", b"fast")]
        for fail in fails:
            with pytest.raises((ZeroDivisionError, Refused)):
                _write_then(store, "v1/large", fail, bytes(20_000_000))
        assert (paths(store), store.get("v1/large")) == (["v1/large"], b"fast")
        assert store.delete_tree("v1") == 1

    def test_an_empty_file_is_a_file(self, store: DeepStore, tmp_path: Path) -> None:
        """A file without a byte is written, listed, read and copied like any other."""
        with store.write("v1/empty"):
            pass
        assert (paths(store), store.get("v1/empty")) == (["v1/empty"], b"")
        with store.open("v1/empty") as file:
            assert (file.size(), file.read()) == (0, b"")
        store.download("v1/empty", tmp_path / "copy", hashlib.sha256(b"").hexdigest())
        assert (tmp_path / "copy").read_bytes() == b""

    def test_another_handle_sees_the_files(self, store: DeepStore, tmp_path: Path) -> None:
        """A store opened again by the URI of its root has the same files."""
        store.put("v1/a", b"1")
        other = self.open_store(tmp_path)
        assert other.root_uri == store.root_uri
        assert other.get("v1/a") == b"1"
        assert other.absolute("v1/a") == f"{store.root_uri}/v1/a"

    def test_a_file_appears_whole_or_not_at_all(self, store: DeepStore) -> None:
        """While it is written nobody sees it; after an error nothing is left, and the path is free."""
        with store.write("v1/a") as stream:
            stream.write(b"half")
            assert store.stat("v1/a") is None
            assert paths(store) == []
            stream.write(b" and half")
        assert store.get("v1/a") == b"half and half"
        with pytest.raises(ZeroDivisionError):
            _write_then(store, "v1/b", lambda: 1 // 0)
        assert paths(store) == ["v1/a"]
        store.put("v1/b", b"whole")

    def test_nothing_is_overwritten(self, store: DeepStore) -> None:
        """Writing to a taken path is refused and keeps what is there."""
        store.put("a", b"first")
        with pytest.raises(Refused) as caught, store.write("a") as stream:
            stream.write(b"second")
        assert caught.value.code == "path_taken"
        assert (store.get("a"), paths(store)) == (b"first", ["a"])

    def test_of_two_writers_the_first_to_finish_stays(self, store: DeepStore) -> None:
        """A path that is taken while a file is being written is refused at the end, and nothing is left over."""
        with pytest.raises(Refused) as caught:
            _write_then(store, "a", lambda: store.put("a", b"fast"))
        assert caught.value.code == "path_taken"
        assert (store.get("a"), paths(store)) == (b"fast", ["a"])

    def test_of_many_writers_one_wins(self, store: DeepStore) -> None:
        """Of writers of one path at once exactly one succeeds, and its bytes are there."""

        def put(number: int) -> int | None:
            try:
                store.put("a", b"%d" % number)
            except Refused:
                return None
            return number

        with ThreadPoolExecutor(8) as pool:
            winners = [number for number in pool.map(put, range(40)) if number is not None]
        assert len(winners) == 1
        assert store.get("a") == b"%d" % winners[0]

    def test_of_many_large_writers_one_wins(self, store: DeepStore) -> None:
        """Of writers of one large file at once exactly one succeeds, and its bytes are there."""

        def write(number: int) -> int | None:
            try:
                with store.write("a") as stream:
                    stream.write(bytes([number]) * 9_000_000)
            except Refused:
                return None
            return number

        with ThreadPoolExecutor(4) as pool:
            winners = [number for number in pool.map(write, range(8)) if number is not None]
        assert len(winners) == 1
        assert store.get("a") == bytes([winners[0]]) * 9_000_000
        assert paths(store) == ["a"]

    def test_putting_the_same_again_is_nothing(self, store: DeepStore) -> None:
        """The same bytes are no conflict, other bytes are."""
        store.put("m.json", b"{}")
        store.put("m.json", b"{}")
        with pytest.raises(Refused) as caught:
            store.put("m.json", b"[]")
        assert caught.value.code == "path_taken"
        assert store.get("m.json") == b"{}"

    def test_what_is_missing_says_so(self, store: DeepStore, tmp_path: Path) -> None:
        """Reading a path that holds nothing is file_missing; asking for it is None."""
        assert store.stat("nothing") is None
        for read in (store.open, store.get, store.checksum):
            with pytest.raises(Failed) as caught:
                read("nothing")
            assert caught.value.code == "file_missing"
        with pytest.raises(Failed) as caught:
            store.download("nothing", tmp_path / "target", "")
        assert caught.value.code == "file_missing"
        assert not (tmp_path / "target").exists()

    def test_listing_is_recursive_and_in_path_order(self, store: DeepStore) -> None:
        """A prefix is a directory: what lies below it, however deep, and not its namesakes."""
        for path in ("v1/b", "v1/a/z", "v1/a", "v10/a")[::-1]:
            if path != "v1/a":
                store.put(path, b"")
        assert paths(store, "v1") == ["v1/a/z", "v1/b"]
        assert paths(store) == ["v1/a/z", "v1/b", "v10/a"]
        assert paths(store, "v2") == []

    @pytest.mark.parametrize("path", _BAD_PATHS)
    def test_paths_stay_below_the_root(self, store: DeepStore, path: str) -> None:
        """Paths that could lead out of the root, or be taken for temporary files, are refused."""
        store.put("kept", b"1")
        for refuse in (store.stat, store.get, store.delete, store.delete_tree, store.absolute):
            with pytest.raises(InvalidRequest) as caught:
                refuse(path)
            assert caught.value.code == "bad_path"
        with pytest.raises(InvalidRequest):
            store.put(path, b"")
        assert paths(store) == ["kept"]

    def test_a_download_is_checked(self, store: DeepStore, tmp_path: Path) -> None:
        """A copy appears whole with the expected checksum, or not at all and without a trace."""
        store.put("a", b"content")
        target = tmp_path / "copies" / "a"
        with pytest.raises(Failed) as caught:
            store.download("a", target, "0" * 64)
        assert caught.value.code == "checksum_mismatch"
        assert list(target.parent.iterdir()) == []
        store.download("a", target, store.checksum("a"))
        assert target.read_bytes() == b"content"
        assert list(target.parent.iterdir()) == [target]

    def test_deleting_one_file(self, store: DeepStore) -> None:
        """A deleted file is gone, deleting again is nothing, and its path is free."""
        store.put("v1/a", b"1")
        store.put("v1/b", b"1")
        store.delete("v1/a")
        store.delete("v1/a")
        store.delete("v1")
        assert paths(store) == ["v1/b"]
        store.put("v1/a", b"2")

    def test_deleting_a_tree(self, store: DeepStore) -> None:
        """Everything below the prefix goes and is counted, its namesakes stay; again it is nothing."""
        for path in ("v1/a", "v1/b/c", "v10/a"):
            store.put(path, b"1")
        assert store.delete_tree("v1") == 2
        assert store.delete_tree("v1") == 0
        assert paths(store) == ["v10/a"]
