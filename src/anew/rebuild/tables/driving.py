"""Running a table's plan: segments are built under the rebuild's own directory, and committed.

A refresh commits segment by segment, by compare-and-swap against the build that was read; a load all of them at once. A
crash between building and committing: no segment names the file, which goes after the grace. A crash before the last
word: the lease ends the record; what was committed stays, and the next refresh finds the rest stale.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from anew.api.rebuilds import DriverStart, RebuildView, TableStart
from anew.core.rebuild import Stage
from anew.core.tables.rebuild import TableRebuild
from anew.core.tables.table import Table
from anew.rebuild.driving import Job, Run
from anew.rebuild.lease import Lease
from anew.spark.session import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRun(Run):
    """What running a table's plan needs besides.

    Attributes:
        session: A Spark session that is made, or lent, for the run.
    """

    session: Callable[[], AbstractContextManager[SparkSession]]
    executor_wait_seconds: float


Build = Callable[[SparkSession, TableRebuild, TableRun, Lease], RebuildView]
"""Builds and commits everything of a rebuild; returns its ``rebuild`` shape."""

TableWork = Callable[[TableRebuild, Lease], RebuildView]
"""The same for what needs no Spark, or brings it along."""


def working(run: TableRun, work: TableWork) -> Job[TableRebuild, Table]:
    """The job of work that brings what it needs."""

    def begun(start: DriverStart[TableRebuild, Table], lease: Lease) -> RebuildView:
        run.observer.stage(Stage.BUILD)
        return work(start.rebuild, lease)

    return Job(TableStart, begun, expected="every segment done", hint="what was there before goes on serving")


def on_spark(run: TableRun, build: Callable[[TableRebuild], Build]) -> Job[TableRebuild, Table]:
    """The job of what is built on Spark.

    Args:
        run: What it needs.
        build: What builds a rebuild, by its kind.
    """

    def work(rebuild: TableRebuild, lease: Lease) -> RebuildView:
        with run.session() as spark:
            return build(rebuild)(spark, rebuild, run, lease)

    return working(run, work)
