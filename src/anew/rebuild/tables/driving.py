"""Running a table's plan: begin → build segment by segment → finish; or, for a load, begin → build → commit all.

1. ``begin`` notes the rebuild (idempotent by request id). A crash after it: the lease ends, and the record with it.
2. Each segment is built under the rebuild's own directory, and committed by compare-and-swap against the build that was
   read. A crash between the two: no segment names the file, which goes after the grace.
3. ``finish`` ends the record. A crash before it: the lease ends it; what was committed stays, and the next refresh
   finds the rest stale.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from anew.api.http import ControllerClient
from anew.api.models import ResumeRebuild
from anew.api.tables import BeginTableRebuild
from anew.api.waiting import wait_seconds
from anew.core.rebuild import Stage
from anew.core.tables.plan import TablePlan, TableRebuildKind
from anew.core.tables.rebuild import TableRebuild
from anew.rebuild.ending import check_ended_well, followed, give_up, is_turned_away, raise_as_failed
from anew.rebuild.lease import Lease
from anew.rebuild.observer import Observer
from anew.rebuild.patience import patiently
from anew.spark.session import SparkSession

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class TableRun:
    """What running a table's plan needs besides the plan; see `anew.rebuild.executor.Run`.

    Attributes:
        session: A Spark session that is made, or lent, for the run.
    """

    controller: ControllerClient
    session: Callable[[], AbstractContextManager[SparkSession]]
    observer: Observer
    request_id: str
    driver: str
    clock: Callable[[], int]
    patience_seconds: float
    executor_wait_seconds: float

    def patiently(self, ask: Callable[[], _Answer]) -> _Answer:
        """What the controller answers to something that may be asked again.

        Raises:
            Unreachable, OutcomeUnknown: There was no answer for `patience_seconds`.
        """
        return patiently(ask, self.patience_seconds)


Build = Callable[[SparkSession, TableRebuild, TableRun, Lease], dict[str, Any]]
"""Builds and commits everything of a rebuild; returns its ``rebuild`` shape."""

Work = Callable[[TableRebuild, Lease], dict[str, Any]]
"""The same for what needs no Spark, or brings it along."""


def run_table_plan(plan: TablePlan, run: TableRun, build: Build) -> dict[str, Any]:
    """Run a plan to its end; returns the ``rebuild`` shape.

    Raises:
        Refused: The plan's fence does not hold any more; nothing was changed.
        Failed: It ran and failed: ``rebuild_failed``, ``rebuild_killed``, and what a load finds in its input.
        Unreachable, OutcomeUnknown: The controller did not answer for `TableRun.patience_seconds`: what was committed
            stays, the rest is not made.
    """
    return run_work(plan, run, _on_spark(run, build))


def run_work(plan: TablePlan, run: TableRun, work: Work) -> dict[str, Any]:
    """As `run_table_plan`, by work that brings what it needs."""
    run.observer.planned(plan)
    request = BeginTableRebuild(plan=plan, request_id=run.request_id, driver=run.driver)
    rebuild = run.patiently(lambda: run.controller.begin_table_rebuild(request))
    run.observer.began(rebuild.id, None)
    # Where the request was made before, its own driver is at work on it.
    others = rebuild.ended or rebuild.driver != run.driver
    return _followed(rebuild, run) if others else _drive(rebuild, run, work)


def resume_table_rebuild(rebuild_id: str, run: TableRun, builds: dict[TableRebuildKind, Build]) -> dict[str, Any]:
    """Take a rebuild over from a driver that is gone; what it committed stays (case C10).

    Raises:
        Refused: ``driver_alive``, ``rebuild_ended``.
        Failed: As `run_table_plan`.
    """
    rebuild = run.controller.resume_table_rebuild(rebuild_id, ResumeRebuild(driver=run.driver))
    run.observer.planned(rebuild.plan)
    run.observer.began(rebuild.id, None)
    return _drive(rebuild, run, _on_spark(run, builds[rebuild.kind]))


def _on_spark(run: TableRun, build: Build) -> Work:
    def work(rebuild: TableRebuild, lease: Lease) -> dict[str, Any]:
        with run.session() as spark:
            return build(spark, rebuild, run, lease)

    return work


def _drive(rebuild: TableRebuild, run: TableRun, work: Work) -> dict[str, Any]:
    view = None
    with Lease(run.controller, rebuild.id, rebuild.epoch) as lease:
        try:
            run.observer.stage(Stage.BUILD)
            view = work(rebuild, lease)
        except (Exception, KeyboardInterrupt) as error:
            if not is_turned_away(error, lease):
                give_up(run.controller, rebuild, lease, error)
                raise_as_failed(error, rebuild)
                raise
    if view is None:
        return _followed(rebuild, run)
    run.observer.ended(view)
    return _checked(view)


def _followed(rebuild: TableRebuild, run: TableRun) -> dict[str, Any]:
    def look(after: Stage | None, seconds: float) -> dict[str, Any]:
        return run.patiently(lambda: run.controller.rebuild(rebuild.id, after=after, wait_seconds=seconds))

    return _checked(followed(look, run.observer, wait_seconds))


def _checked(view: dict[str, Any]) -> dict[str, Any]:
    """The view, unless the rebuild ended badly as a whole."""
    what, hint = f"the {view['kind']}", "what was there before goes on serving"
    check_ended_well(view, what, expected="every segment done", hint=hint)
    return view
