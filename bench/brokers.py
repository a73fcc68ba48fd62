"""A Kafka broker of a bench's own, and the jars that benches on Kafka need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from anew.api.location import LogLocation
from anew.brokers.cluster import start, stop
from anew.brokers.java import broker_java
from anew.jars.fetching import SPARK_KAFKA
from anew.runtime.jars import fetched


def check_brokers() -> None:
    """Raise unless this machine can run brokers.

    Raises:
        Unreachable: ``java_missing``, ``maven_missing``, ``jars_unreachable``.
        Refused: ``cache_unusable``.
    """
    broker_java()


def check_connector() -> None:
    """Raise unless this machine can run brokers and has Spark's Kafka connector.

    Raises:
        Unreachable, Refused: As `check_brokers`.
    """
    check_brokers()
    fetched(SPARK_KAFKA)


@contextmanager
def running_broker(folder: Path) -> Iterator[LogLocation]:
    """The log on a broker of its own below a folder; it ends with the block."""
    directory = folder / "kafka"
    try:
        yield LogLocation(kind="kafka", address=start(directory).bootstrap)
    finally:
        stop(directory)


def add_connector(spark: SparkSession) -> None:
    """Give a session that runs Spark's Kafka connector."""
    for jar in fetched(SPARK_KAFKA):
        spark.sql(f"ADD JAR '{jar}'")
