"""The package as executors get it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from anew.spark.package import build_of_package, write_package

_SHOW = "import sys; sys.path.insert(1, sys.argv[1]); from anew.spark import package as p; "


def _said(archive: Path, code: str) -> str:
    command = [sys.executable, "-c", _SHOW + code, str(archive)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_zip_is_imported_before_what_is_installed_and_is_the_same_build(tmp_path: Path) -> None:
    """The package comes from the zip, whose build is that of the sources; written again it has the same bytes."""
    archive = write_package(tmp_path / "anew.zip")
    assert _said(archive, "print(p.place_of_package())").rstrip("/") == str(archive / "anew")
    assert _said(archive, "print(p.build_of_package())") == build_of_package()
    assert write_package(tmp_path / "again.zip").read_bytes() == archive.read_bytes()
