"""What ``catalog restore`` prints for people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anew.api.models import RestoreCatalog
from anew.api.upkeep import RestoredCatalog
from anew.cli import catalog
from anew.cli.main import run_command

_FOUND = {"uid": "uid-1", "config_hash": "t1-a"}
_ANSWER: dict[str, Any] = {
    "dry_run": True,
    "empty": False,
    "stores": [],
    "tables": [
        {
            **_FOUND,
            "name": "trips",
            "deleted": False,
            "segments": 1_200,
            "rows": 7,
            "bytes": 9,
            "notes": ["a file [x] is gone"],
        },
        {**_FOUND, "name": "cabs", "deleted": True, "segments": 0, "rows": 0, "bytes": 0, "notes": []},
    ],
    "notes": ["one more"],
}


def test_tables_are_printed_with_what_to_know(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each table in a line, notes under its name, and that nothing was changed."""

    def restore(request: RestoreCatalog) -> RestoredCatalog:
        assert request.dry_run
        return RestoredCatalog.model_validate(_ANSWER)

    @contextmanager
    def cluster() -> Iterator[Any]:
        yield SimpleNamespace(controller=SimpleNamespace(restore_catalog=restore))

    monkeypatch.setattr(catalog, "cluster", cluster)
    monkeypatch.setenv("ANEW_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("ANEW_HOME", str(tmp_path))
    assert run_command(["catalog", "restore", "--dry-run"]) == 0
    printed = capsys.readouterr()
    lines = [line.split() for line in printed.out.splitlines()]
    assert ["trips", "live", "1,200", "7", "9"] in lines
    assert ["cabs", "deleted", "0", "0", "0"] in lines
    assert "trips: a file [x] is gone\none more" in printed.out
    assert "a restore would be refused" in printed.err
