"""Folders of drivers: gone with the driver, or with the next one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from anew.spark.folders import held_folder, remove_left


def test_folders_of_killed_drivers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is in use stays, also one that is just being made; its own goes at the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, making, other = tmp_path / "anew-code-left", tmp_path / "anew-code-making", tmp_path / "other"
    for folder in (left, making, other):
        folder.mkdir()
    (left / ".held").touch()
    (left / "code").mkdir()
    with held_folder("spark") as used:
        assert (left.exists(), making.exists(), other.exists()) == (False, True, True)
        remove_left()
        assert used.exists()
    assert not used.exists()
