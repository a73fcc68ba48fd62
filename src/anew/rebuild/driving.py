"""A driver's part of a rebuild of any kind: begin → build under a lease → follow to the end.

1. ``begin`` makes the record (idempotent by request id). A crash after it: the lease ends, and the record with it.
2. The work of the kind builds, and commits what it built. A crash in it leaves files that nothing names, and what was
   committed.
3. Where the controller has something left to do, the rebuild is followed until it has done it; nobody is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from anew.api.http import ControllerClient
from anew.api.models import BeginRebuild, ResumeRebuild
from anew.api.rebuilds import DriverStart, RebuildView
from anew.api.waiting import wait_seconds
from anew.core.errors import OutcomeUnknown
from anew.core.plan import PlanValue
from anew.core.rebuild import Rebuild, Stage
from anew.rebuild.ending import check_ended_well, followed, give_up, is_turned_away, raise_as_failed
from anew.rebuild.lease import Lease
from anew.rebuild.observer import Observer
from anew.rebuild.patience import patiently

R = TypeVar("R", bound=Rebuild)
D = TypeVar("D")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What running any plan needs besides the plan.

    Attributes:
        controller: The controller.
        observer: Who is told.
        request_id: The same id twice is the same rebuild.
        driver: Who runs it, for people.
        clock: The time in ms.
        patience_seconds: How long the controller, or the deep store, may be away before the driver gives up waiting.
        clock_seconds: A monotonic clock.
        pause: Waits for so many seconds.
        lease: What gives signs of life beside the build.
    """

    controller: ControllerClient
    observer: Observer
    request_id: str
    driver: str
    clock: Callable[[], int]
    patience_seconds: float
    clock_seconds: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = wait_seconds
    lease: Callable[[ControllerClient, str, int], Lease] = Lease

    def patiently(self, ask: Callable[[], _Answer]) -> _Answer:
        """What the controller, or the deep store, answers to something that may be asked again.

        Raises:
            Unreachable, OutcomeUnknown: There was no answer for `patience_seconds`.
        """
        return patiently(ask, self.patience_seconds, self.clock_seconds, self.pause)


class CommitUnknown(OutcomeUnknown):
    """Nobody said whether the last commit arrived. Nothing is given up: if it did, the controller goes on alone."""


Work = Callable[[DriverStart[R, D], Lease], RebuildView | None]
"""Builds and commits everything of a rebuild.

Returns its ``rebuild`` shape where it has ended with that, None where the controller goes on from there.
"""


@dataclass(frozen=True, slots=True)
class Job(Generic[R, D]):
    """How the rebuilds of one subject are driven.

    Attributes:
        of: The class of what their drivers begin with.
        work: What is done.
        expected: What one is to come to, for whoever hears that it did not.
        hint: What is so in spite of it.
        what: What one is called; None: as its kind.
    """

    of: type[DriverStart[R, D]]
    work: Work[R, D]
    expected: str
    hint: str
    what: str | None = None


def run_plan(plan: PlanValue, run: Run, job: Job[R, D]) -> RebuildView:
    """Run a plan to its end; returns the ``rebuild`` shape.

    Raises:
        Refused: The plan's fence does not hold any more; nothing was changed.
        Failed: It ran and failed: ``rebuild_failed``, ``rebuild_killed``, and what the work raises.
        Unreachable: The controller did not answer for `Run.patience_seconds`: nothing was begun, or what was not
            committed fails when the lease ends.
        OutcomeUnknown: The controller stopped answering in the beginning or at the last commit.
    """
    run.observer.planned(plan)
    begin = BeginRebuild(plan=plan, request_id=run.request_id, driver=run.driver)
    start = run.patiently(lambda: run.controller.begin_rebuild(begin, job.of))
    rebuild = start.rebuild
    run.observer.began(rebuild)
    # Where the request was made before, its own driver is at work on it.
    is_own = rebuild.driven and rebuild.driver == run.driver
    return _drive(start, run, job) if is_own else _followed(rebuild, run, job)


def resume_rebuild(rebuild_id: str, run: Run, job: Job[R, D]) -> RebuildView:
    """Take a rebuild over from a driver that is gone; returns the ``rebuild`` shape.

    Once nobody is needed there is nothing to take over but to wait.

    Raises:
        Refused: ``driver_alive``, ``rebuild_ended``.
        Failed, OutcomeUnknown: As `run_plan`.
    """
    start = run.controller.resume_rebuild(rebuild_id, ResumeRebuild(driver=run.driver), job.of)
    rebuild = start.rebuild
    run.observer.planned(rebuild.plan)
    run.observer.began(rebuild)
    return _drive(start, run, job) if rebuild.driven else _followed(rebuild, run, job)


def _drive(start: DriverStart[R, D], run: Run, job: Job[R, D]) -> RebuildView:
    """Work under a lease; whatever goes wrong before the last commit fails the rebuild at once."""
    view, rebuild = None, start.rebuild
    with run.lease(run.controller, rebuild.id, rebuild.epoch) as lease:
        try:
            view = job.work(start, lease)
        except (Exception, KeyboardInterrupt) as error:
            if not is_turned_away(error, lease):
                if not isinstance(error, CommitUnknown):
                    give_up(run.controller, rebuild, lease, error)
                raise_as_failed(error, rebuild)
                raise
    if view is None:
        return _followed(rebuild, run, job)
    run.observer.ended(view)
    return _checked(view, job)


def _followed(rebuild: Rebuild, run: Run, job: Job[Any, Any]) -> RebuildView:
    def look(after: Stage | None, seconds: float) -> RebuildView:
        return run.patiently(lambda: run.controller.rebuild(rebuild.id, after=after, wait_seconds=seconds))

    return _checked(followed(look, run.observer, run.pause, run.clock_seconds), job)


def _checked(view: RebuildView, job: Job[Any, Any]) -> RebuildView:
    """The view, unless the rebuild ended badly as a whole."""
    check_ended_well(view, job.what or f"the {view.kind}", expected=job.expected, hint=job.hint)
    return view
