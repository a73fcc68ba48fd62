"""What keeps its content in memory keeps the promises of what keeps it on disks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anew.catalog.interface import Catalog
from anew.log.interface import Log, TopicPartition
from anew.testing.catalog_contract import CatalogContract
from anew.testing.clock import ManualClock
from anew.testing.facts_contract import RetentionContract
from anew.testing.forget_contract import ForgetContract
from anew.testing.jobs_catalog_contract import JobsCatalogContract
from anew.testing.log_contract import SKEW_LIMIT_MS, ClockedLogContract
from anew.testing.memory.catalog import Database, MemoryCatalog
from anew.testing.memory.log import MemoryLog, Topics
from anew.testing.opened_catalog import OpenedCatalog
from anew.testing.pages_contract import PagesContract
from anew.testing.partitions_contract import PartitionsContract
from anew.testing.range_contract import RangeContract
from anew.testing.raw_contract import RawRepeatContract
from anew.testing.repeat_contract import RepeatedAppendContract
from anew.testing.tables_catalog_contract import TablesCatalogContract
from anew.testing.telling_contract import check_appends_are_told_of
from anew.testing.topics_catalog_contract import TopicsCatalogContract


class TestMemoryLog(
    RepeatedAppendContract, RawRepeatContract, RetentionContract, PartitionsContract, ClockedLogContract
):
    """The log in memory."""

    @pytest.fixture(autouse=True)
    def topics(self) -> None:
        """One log for all handles of a test."""
        self._topics = Topics()

    def open_log(self, directory: Path, clock: Callable[[], int]) -> Log:
        """See `ClockedLogContract.open_log`."""
        return MemoryLog(self._topics, clock=clock, skew_limit_ms=SKEW_LIMIT_MS)

    def test_appends_are_told_of(self, log: Log, at: TopicPartition, tmp_path: Path) -> None:
        """Whoever follows the log hears of each append, and of nothing while there is none."""
        check_appends_are_told_of(log, self.open_log(tmp_path, ManualClock()), at)


class TestMemoryRanges(RangeContract):
    """Bases in the log in memory."""

    def open_log(self, directory: Path, clock: Callable[[], int]) -> Log:
        """See `RangeContract.open_log`."""
        return MemoryLog(Topics(), clock=clock)


class _InMemory(OpenedCatalog):
    """A catalog in memory."""

    @pytest.fixture(autouse=True)
    def database(self) -> None:
        """One database for all handles of a test."""
        self._database = Database()

    def open_catalog(self, directory: Path) -> Catalog:
        """See `OpenedCatalog.open_catalog`."""
        return MemoryCatalog(self._database)


class TestMemoryCatalog(_InMemory, CatalogContract):
    """The catalog in memory."""


class TestForgettingOfMemoryCatalog(_InMemory, ForgetContract):
    """What the catalog in memory forgets."""


class TestPagesOfMemoryCatalog(_InMemory, PagesContract):
    """Lists of the catalog in memory, in pages."""


class TestJobsOfMemoryCatalog(_InMemory, JobsCatalogContract):
    """`JobsCatalogContract` in memory."""


class TestTablesOfMemoryCatalog(_InMemory, TablesCatalogContract):
    """Tables in the catalog in memory."""


class TestTopicsOfMemoryCatalog(_InMemory, TopicsCatalogContract):
    """Topics in the catalog in memory."""
