"""The functions that histories submit. `tests.crash.jobs.oracle` has the same ones in pandas, written for itself.

An event has a number ``n``, a ``text``, and ``at``, when it happened (ms; 0: when it was appended).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_LATE_MS = 7_200_000
_COARSE_MS = 60_000


def plain(events: DataFrame, *, tag: str) -> DataFrame:
    """Each event as it is."""
    return _rows(events, tag)


def filtered(events: DataFrame, *, tag: str) -> DataFrame:
    """A third of the events is left out; deletes stay."""
    return _rows(events.where(F.col("deleted") | (F.col("value.n") % 3 != 0)), tag)


def rekeyed(events: DataFrame, *, tag: str) -> DataFrame:
    """Keys of all partitions come together in a few."""
    return _rows(events, tag, key=F.concat(F.lit("r"), F.substring(F.col("key"), -1, 1)))


def deleting(events: DataFrame, *, tag: str) -> DataFrame:
    """A third of the events deletes its key."""
    return _rows(events, tag, deleted=F.col("deleted") | (F.col("value.n") % 3 == 0))


def late(events: DataFrame, *, tag: str) -> DataFrame:
    """Everything was written long ago, before any grace."""
    return _rows(events, tag, at_ms=_at_ms() - _LATE_MS)


def coarse(events: DataFrame, *, tag: str) -> DataFrame:
    """Whatever happened in one minute happened at once."""
    return _rows(events, tag, at_ms=_at_ms() - _at_ms() % _COARSE_MS)


def doubled(events: DataFrame, *, tag: str) -> DataFrame:
    """Each event is there under a second key too."""
    both = F.explode(F.array(F.col("key"), F.concat(F.col("key"), F.lit("x"))))
    return _rows(events.withColumn("both", both), tag, key=F.col("both"))


def _at_ms() -> Column:
    given = F.col("value.at")
    return F.when(given > 0, given).otherwise(F.unix_millis(F.col("timestamp")))


def _rows(
    events: DataFrame,
    tag: str,
    key: Column | None = None,
    deleted: Column | None = None,
    at_ms: Column | None = None,
) -> DataFrame:
    text = F.concat(F.col("value.text"), F.lit(f".{tag}"))
    return events.select(
        (F.col("key") if key is None else key).alias("key"),
        F.struct(text.alias("text")).alias("value"),
        (F.col("deleted") if deleted is None else deleted).alias("deleted"),
        F.timestamp_millis(_at_ms() if at_ms is None else at_ms).alias("written_at"),
    )
