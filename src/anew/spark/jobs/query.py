"""A streaming query that hands its batches to a function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["StreamingQuery", "start_query"]


def start_query(
    frame: DataFrame, batch: Callable[[DataFrame, int], None], checkpoint: Path, interval_ms: int | None
) -> StreamingQuery:
    """Start a query over a frame.

    Args:
        frame: Made of streams.
        batch: Is given each batch's frame and number, in order; one that raises ends the query.
        checkpoint: Spark's folder of the query.
        interval_ms: How often new records are looked for; None: come to what is there now, and end.
    """
    writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint))
    if interval_ms is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_ms} milliseconds").start()
