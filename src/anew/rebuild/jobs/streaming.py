"""The port behind which Spark's batch loop lies, so that all that a driver does around it also runs without Spark.

A loop hands the frame and the number of each batch to a function, in order. ``offsets/B`` is durable before the call
and stays as it is when the batch runs again; ``commits/B`` is written after the function has returned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from anew.spark.jobs.query import JobFrame, StreamingQuery, start_query


class Loop(Protocol):
    """A batch loop that was started."""

    @property
    def is_active(self) -> bool:
        """Whether it has not ended yet."""

    def wait(self, seconds: float | None) -> bool:
        """Whether it has ended, after so many seconds at most; None: however long that takes.

        Raises:
            Exception: It ended with an error.
        """

    def stop(self) -> None:
        """End it, in the middle of a batch too."""


StartLoop = Callable[[Any, Callable[[Any, int], None], Path, int | None], Loop]
"""Starts a loop: see `anew.spark.jobs.query.start_query`, whose parameters these are."""


@dataclass(frozen=True, slots=True)
class _SparkLoop:
    """A streaming query of Spark's."""

    query: StreamingQuery

    @property
    def is_active(self) -> bool:
        """See `Loop.is_active`."""
        return self.query.isActive

    def wait(self, seconds: float | None) -> bool:
        """See `Loop.wait`."""
        if seconds is None:
            self.query.awaitTermination()
            return True
        return bool(self.query.awaitTermination(seconds))  # type: ignore[arg-type]  # Spark takes fractions too

    def stop(self) -> None:
        """See `Loop.stop`."""
        self.query.stop()


def start_on_spark(
    frame: JobFrame, batch: Callable[[Any, int], None], checkpoint: Path, interval_ms: int | None
) -> Loop:
    """Spark's own loop, see `start_query`."""
    return _SparkLoop(start_query(frame, batch, checkpoint, interval_ms))
