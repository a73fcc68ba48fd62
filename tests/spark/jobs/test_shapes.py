"""What Spark's plan says a function keeps of each record; whatever cannot be proved is not kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anew.core.jobs.code import Shape
from anew.spark.jobs.shape import shape_of
from anew.spark.jobs.source import read_topic
from tests.spark.jobs.jobs_world import running_world

_KEEPS, _NOTHING = Shape(rows=True, key=True, time=True), Shape(rows=False, key=False, time=False)


def _values(events: DataFrame, *others: str) -> DataFrame:
    return events.select(*others, F.struct(F.lit("x").alias("class")).alias("value"))


_FUNCTIONS: dict[str, tuple[Callable[[DataFrame], DataFrame], Shape]] = {
    "columns": (lambda events: _values(events, "key", "timestamp"), _KEEPS),
    "twice": (lambda events: _values(events.withColumn("more", F.lit(1)).alias("e"), "key", "timestamp"), _KEEPS),
    "renamed": (
        lambda events: _values(events.select(F.col("timestamp").alias("written_at"), "key"), "key", "written_at"),
        _KEEPS,
    ),
    "other_key": (
        lambda events: _values(events.withColumn("key", F.upper("key")), "key", "timestamp"),
        Shape(rows=True, key=False, time=True),
    ),
    "swapped_key": (
        lambda events: _values(
            events.select(F.col("partition").cast("string").alias("key"), "timestamp"), "key", "timestamp"
        ),
        Shape(rows=True, key=False, time=True),
    ),
    "other_time": (
        lambda events: _values(events.withColumn("written_at", F.lit(5)), "key", "written_at"),
        Shape(rows=True, key=True, time=False),
    ),
    "shadowed_time": (
        lambda events: _values(events.withColumn("timestamp", F.timestamp_millis(F.lit(5))), "key", "timestamp"),
        Shape(rows=True, key=True, time=False),
    ),
    "filtered": (lambda events: _values(events.where("value.delay > 5"), "key", "timestamp"), _NOTHING),
    "exploded": (
        lambda events: _values(events.select(F.explode(F.array("key")).alias("key"), "timestamp"), "key", "timestamp"),
        _NOTHING,
    ),
    "united": (lambda events: _values(events.union(events), "key", "timestamp"), _NOTHING),
    "in_python": (
        lambda events: events.mapInArrow(lambda batches: batches, events.schema),
        _NOTHING,
    ),
}


@pytest.mark.case("rules:R26")
@pytest.mark.parametrize("name", sorted(_FUNCTIONS))
def test_what_a_function_keeps_is_what_its_plan_proves(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """Columns may change; rows, keys and times that may change are not kept."""
    function, expected = _FUNCTIONS[name]
    with running_world(spark, tmp_path, []) as world:
        assert shape_of(function(read_topic(spark, world.reading()))) == expected
