"""Logs of drivers in a home."""

from __future__ import annotations

import os
from pathlib import Path

from anew.runtime.driverlogs import KEPT_LOGS, HomeLogs

_ONE, _TWO = "a" * 32, "b" * 32


def _log(folder: Path, name: str, at_s: int) -> Path:
    path = folder / name
    path.touch()
    os.utime(path, (at_s, at_s))
    return path


def test_old_logs_go_and_young_ones_stay(tmp_path: Path) -> None:
    """Of a generation that is over all that are old enough; of another one the last ones stay; nothing else goes."""
    logs = HomeLogs(tmp_path, lambda: 1_000_000)
    over = [_log(tmp_path, f"{_ONE}-e{epoch}-{epoch}.{kind}", 100) for epoch in (1, 2) for kind in ("log", "out")]
    young = _log(tmp_path, f"{_ONE}-e3-9.log", 900)
    going = [_log(tmp_path, f"{_TWO}-e{epoch}-1.log", epoch) for epoch in range(1, KEPT_LOGS + 4)]
    others = [_log(tmp_path, name, 1) for name in ("controller.log", f"{_ONE}-elsewhere.log")]
    assert logs.rebuilds() == [_ONE, _TWO]
    logs.trim(_ONE, is_over=True, older_ms=200_000)
    logs.trim(_TWO, is_over=False, older_ms=200_000)
    assert [path for path in over if path.exists()] == []
    assert [path for path in going if path.exists()] == going[3:]
    assert all(path.exists() for path in (young, *others))
