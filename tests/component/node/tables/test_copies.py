"""The record that lets a copy count."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anew.node.tables.copies import Copy, read_copy, write_copy
from tests.component.node.tables.harness import Rig, rig, rows


@pytest.fixture
def node(tmp_path: Path) -> Rig:
    """A node with an empty disk."""
    return rig(tmp_path)


def _copy(node: Rig) -> Copy:
    build = node.build(rows(0))
    return Copy(
        build=build.id,
        file="0.parquet",
        bytes=3,
        number=0,
        original=True,
        config_hash=None,
        contents=build.contents,
    )


def test_a_file_is_on_disk_before_it_counts(node: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut leaves no record of a file whose bytes it took away, and the record's name is there to stay."""
    copy, synced, fsync = _copy(node), list[str](), os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    (tmp_path / copy.file).write_bytes(b"abc")
    monkeypatch.setattr(os, "fsync", noted)
    write_copy(tmp_path, copy)
    assert synced == [copy.file, "copy.json.new", tmp_path.name]
    assert read_copy(tmp_path) == copy


def test_a_file_that_is_not_there_does_not_count(node: Rig, tmp_path: Path) -> None:
    """Nothing is written down of it."""
    copy = _copy(node)
    with pytest.raises(FileNotFoundError):
        write_copy(tmp_path, copy)
    assert read_copy(tmp_path) is None
