"""Bases in the embedded log keep the contract of ranges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anew.log.embedded import EmbeddedLog
from anew.log.interface import Log
from anew.testing.range_contract import RangeContract


class TestEmbeddedRanges(RangeContract):
    """`RangeContract` over SQLite files."""

    def open_log(self, directory: Path, clock: Callable[[], int]) -> Log:
        """A log in a directory."""
        return EmbeddedLog(directory / "log", clock=clock, durable=False)
