"""The embedded log keeps the contract of logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anew.log.embedded import EmbeddedLog
from anew.log.interface import Log
from anew.testing.facts_contract import RetentionContract
from anew.testing.log_contract import SKEW_LIMIT_MS, ClockedLogContract
from anew.testing.partitions_contract import PartitionsContract
from anew.testing.raw_contract import RawRepeatContract
from anew.testing.repeat_contract import RepeatedAppendContract


class TestEmbeddedLog(
    RepeatedAppendContract, RawRepeatContract, RetentionContract, PartitionsContract, ClockedLogContract
):
    """`ClockedLogContract` over SQLite files."""

    def open_log(self, directory: Path, clock: Callable[[], int]) -> Log:
        """A handle on the log in a directory."""
        return EmbeddedLog(directory / "log", clock=clock, skew_limit_ms=SKEW_LIMIT_MS)
