"""The deep store on a local directory keeps the contract, also when its writer is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anew.core.errors import InvalidRequest
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.testing.deepstore_contract import DeepStoreContract, paths

_DIE_WHILE_WRITING = """
import os, sys
from anew.deepstore.open import open_deep_store
store = open_deep_store(sys.argv[1])
with store.write("v1/a") as stream:
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), 9)
"""


class TestLocalDeepStore(DeepStoreContract):
    """`DeepStoreContract` over a directory."""

    def open_store(self, directory: Path) -> DeepStore:
        """The store below a path."""
        return open_deep_store(str(directory / "deep"))


class TestFileUri(DeepStoreContract):
    """`DeepStoreContract` over the same directory named by a URI."""

    def open_store(self, directory: Path) -> DeepStore:
        """The store below a URI."""
        return open_deep_store((directory / "deep").as_uri())


@pytest.mark.processes
def test_a_killed_writer_leaves_nothing_to_see(tmp_path: Path) -> None:
    """The file of a process that was killed while writing is not there, its path is free, and a tree delete cleans."""
    run = subprocess.run([sys.executable, "-c", _DIE_WHILE_WRITING, str(tmp_path)], check=False)
    assert run.returncode == -9
    left = list((tmp_path / "v1").iterdir())
    assert len(left) == 1, "the hole that the temporary name closes: half a file is on the disk"
    store = open_deep_store(str(tmp_path))
    assert (store.stat("v1/a"), paths(store)) == (None, [])
    store.put("v1/a", b"whole")
    assert store.delete_tree("v1") == 1
    assert not (tmp_path / "v1").exists()


def test_another_process_with_the_same_number_is_passed_over(tmp_path: Path) -> None:
    """A temporary file of the same name, of a process elsewhere with our number, is neither used nor removed."""
    store = open_deep_store(str(tmp_path))
    with store.write("a") as stream:
        (mine,) = (path.name for path in tmp_path.iterdir())
        stream.write(b"1")
    stem, _, number = mine.removesuffix(".tmp").rpartition("-")
    theirs = tmp_path / f"{stem.replace('a.', 'b.', 1)}-{int(number) + 1}.tmp"
    theirs.write_bytes(b"theirs")
    store.put("b", b"ours")
    assert theirs.read_bytes() == b"theirs"
    assert store.get("b") == b"ours"


@pytest.mark.parametrize("root", ["/", "nowhere://bucket/prefix", "file:///", "s3://", "s3://b", "s3://bucket/"])
def test_roots_that_cannot_be(root: str) -> None:
    """A file system's or bucket's own root and an unknown scheme are refused."""
    with pytest.raises(InvalidRequest) as caught:
        open_deep_store(root)
    assert caught.value.code == "bad_deep_store"
