"""Watching and stopping the Spark jobs of one stage."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import TracebackType

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from anew.core.errors import Failed
from anew.core.rebuild import Progress
from anew.spark.worker import is_local

EXECUTOR_WAIT_SECONDS = 600.0
"""How long a job waits for its first executor, or for another one after the last."""


class JobWatch:
    """Groups the jobs that the calling thread starts inside the block, counts their tasks, can cancel them."""

    def __init__(
        self,
        spark: SparkSession,
        executor_wait_seconds: float = EXECUTOR_WAIT_SECONDS,
        clock_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch jobs of a session's context; one that has no executor for so long is cancelled."""
        self._context = spark.sparkContext
        self._group = f"anew-{id(self)}"
        self._wait_seconds = executor_wait_seconds
        self._clock_seconds = clock_seconds
        self._seen_seconds = clock_seconds()
        self._deserted = False

    def __enter__(self) -> JobWatch:
        """Put this thread's jobs into the group."""
        self.join()
        return self

    def join(self) -> None:
        """Put the jobs of one more thread into the group; cancelling interrupts their tasks."""
        self._context.setJobGroup(self._group, "anew rebuild", interruptOnCancel=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave the group."""
        with contextlib.suppress(Py4JError):
            self._context.setLocalProperty("spark.jobGroup.id", "")

    def desertion(self) -> Failed | None:
        """Why the jobs were cancelled here, if they were: Spark itself waits for executors for ever."""
        if not self._deserted:
            return None
        return Failed(
            "no_executors",
            "the Spark job had no executor",
            found=f"none for {self._wait_seconds:g} s on {self._context.master}",
            expected="one executor at least",
            hint="look at Spark's workers and at what they have free; executor_wait_seconds says how long to wait",
        )

    def _look_for_executors(self) -> None:
        now = self._clock_seconds()
        # The driver is listed as well.
        if is_local(self._context.master) or len(self._context._jsc.sc().statusTracker().getExecutorInfos()) > 1:
            self._seen_seconds = now
        elif now - self._seen_seconds > self._wait_seconds:
            self._deserted = True
            self.cancel()

    def progress(self) -> Progress:
        """Tasks done and to do, over all jobs of the group; zeros when Spark has gone.

        To be called every few seconds: it is also how executors are watched.
        """
        try:
            self._look_for_executors()
            tracker = self._context.statusTracker()
            done = total = 0
            for job in tracker.getJobIdsForGroup(self._group):
                info = tracker.getJobInfo(job)
                for stage_id in [] if info is None else info.stageIds:
                    stage = tracker.getStageInfo(stage_id)
                    if stage is not None:
                        done, total = done + stage.numCompletedTasks, total + stage.numTasks
            return Progress(done=done, total=total, unit="tasks")
        except (Py4JError, AttributeError):
            return Progress()

    def cancel(self) -> None:
        """Stop all jobs of the group; nothing when Spark has gone."""
        with contextlib.suppress(Py4JError, AttributeError):
            self._context.cancelJobGroup(self._group)
