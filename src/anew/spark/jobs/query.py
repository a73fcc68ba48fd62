"""A streaming query that hands its batches to a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anew.core.jobs.state import STATE_SETTINGS

__all__ = ["JobFrame", "StreamingQuery", "start_query"]


@dataclass(frozen=True, slots=True)
class JobFrame:
    """What a function makes of its inputs, and how that is run.

    Attributes:
        frame: Made of streams.
        state: The operators that keep state between batches.
        mode: Which rows a batch gives: ``append``: those that do not change any more; ``update``: those that changed.
    """

    frame: DataFrame
    state: tuple[str, ...]
    mode: str


def start_query(
    of: JobFrame, batch: Callable[[DataFrame, int], None], checkpoint: Path, interval_ms: int | None
) -> StreamingQuery:
    """Start a query over a frame.

    Args:
        of: The frame, and how it is run.
        batch: Is given each batch's frame and number, in order; one that raises ends the query.
        checkpoint: Spark's folder of the query.
        interval_ms: How often new records are looked for; None: come to what is there now, and end.
    """
    writer = of.frame.writeStream.foreachBatch(batch).outputMode(of.mode)
    writer = writer.option("checkpointLocation", str(checkpoint))
    writer = (
        writer.trigger(availableNow=True)
        if interval_ms is None
        else writer.trigger(processingTime=f"{interval_ms} milliseconds")
    )
    # A query has a copy of its session, with the settings of when it was started.
    with _set(of.frame.sparkSession, STATE_SETTINGS):
        return writer.start()


@contextmanager
def _set(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings that a session has while the block runs."""
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)
