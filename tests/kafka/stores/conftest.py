"""A cluster of processes whose nearline writes go through the tier's broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anew.brokers.cluster import Brokers
from tests.cluster.commands import Anew, write_people
from tests.kafka.clusters import running_on


@pytest.fixture(scope="session", autouse=True)
def session_of_this_process(spark: SparkSession) -> SparkSession:
    """Commands that run inside this process find this session and use it."""
    return spark


@pytest.fixture(scope="package")
def anew(tmp_path_factory: pytest.TempPathFactory, brokers: Brokers) -> Iterator[Anew]:
    """A running cluster of two nodes on Kafka, shared by these tests; each makes stores of its own."""
    with running_on(brokers, "kafka", tmp_path_factory.mktemp("kafka") / "home", reclaim_grace_seconds=2) as anew:
        yield anew


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Twenty people as CSV: id, name, age."""
    return write_people(tmp_path / "people.csv")
