"""Watching and stopping the Spark jobs of one stage."""

from __future__ import annotations

import contextlib
from types import TracebackType

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from anew.core.rebuild import Progress


class JobWatch:
    """Groups the jobs that the calling thread starts inside the block, counts their tasks, can cancel them."""

    def __init__(self, spark: SparkSession) -> None:
        """Watch jobs of a session's context."""
        self._context = spark.sparkContext
        self._group = f"anew-{id(self)}"

    def __enter__(self) -> JobWatch:
        """Put this thread's jobs into the group; cancelling interrupts their tasks."""
        self._context.setJobGroup(self._group, "anew rebuild", interruptOnCancel=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave the group."""
        with contextlib.suppress(Py4JError):
            self._context.setLocalProperty("spark.jobGroup.id", "")

    def progress(self) -> Progress:
        """Tasks done and to do, over all jobs of the group; zeros when Spark has gone."""
        try:
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
        """Stop all jobs of the group."""
        with contextlib.suppress(Py4JError):
            self._context.cancelJobGroup(self._group)
