"""RocksDB's library is taken out of a jar once, into a folder of the user's own."""

from __future__ import annotations

import platform
import sys
import tempfile
from pathlib import Path

import pytest

from anew.core.errors import Failed
from anew.storage import library


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, whose cache is empty."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    return tmp_path / "home"


def found() -> Path:
    """Look for it as a fresh process does."""
    return library.library_path.__wrapped__()


def test_it_is_taken_out_once(home: Path) -> None:
    """The same file is used again, in a folder that is the user's alone; what was damaged is replaced."""
    path = found()
    folder, before = home / ".cache" / "anew", path.stat()
    assert (path.parent, folder.stat().st_mode & 0o777) == (folder, 0o700)
    assert found() == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\x00\x01")
    assert found().read_bytes() == content
    assert list(folder.iterdir()) == [path]


def test_a_folder_that_others_may_write_is_not_used(home: Path, tmp_path: Path) -> None:
    """What lies there is executed: another folder is taken, and where there is none, none."""
    folder, other = home / ".cache" / "anew", tmp_path / "temporary"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert found().parent.parent == other
    found().parent.chmod(0o770)
    with pytest.raises(Failed) as caught:
        found()
    assert caught.value.code == "no_private_folder"


def test_a_home_that_cannot_be_written_is_passed_over(home: Path, tmp_path: Path) -> None:
    """A service's user may have no home at all."""
    home.write_text("a file")
    assert found().parent.parent == tmp_path / "temporary"


@pytest.mark.parametrize("machine", ["sparc", "riscv128"])
def test_an_unknown_machine_is_told(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what was found, and what there is a library for."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(Failed) as caught:
        found()
    assert (caught.value.code, machine in str(caught.value.found)) == ("no_rocksdb", True)


def test_a_machine_that_the_jar_does_not_know_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of what was looked for is in the message."""
    monkeypatch.setattr(library, "_member", lambda: "librocksdbjni-other.so")
    with pytest.raises(Failed) as caught:
        found()
    assert (caught.value.code, caught.value.expected) == ("no_rocksdb", "librocksdbjni-other.so")


@pytest.mark.parametrize(
    ("system", "machine", "libc", "expected"),
    [
        ("linux", "x86_64", "glibc", "librocksdbjni-linux64.so"),
        ("linux", "aarch64", "glibc", "librocksdbjni-linux-aarch64.so"),
        ("linux", "x86_64", "", "librocksdbjni-linux64-musl.so"),
        ("darwin", "arm64", "", "librocksdbjni-osx-arm64.jnilib"),
        ("darwin", "x86_64", "", "librocksdbjni-osx-x86_64.jnilib"),
        ("win32", "AMD64", "", None),
    ],
)
def test_each_machine_has_its_library(
    system: str, machine: str, libc: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names in the jar."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "libc_ver", lambda: (libc, ""))
    assert library._member() == expected
