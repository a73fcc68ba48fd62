"""Three brokers that the tests of this folder share, and have all running again for the next test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from anew.brokers.cluster import Brokers
from anew.brokers.configuration import BrokerSettings
from tests.brokers import heal, running_brokers


@pytest.fixture(scope="package")
def three() -> Iterator[Brokers]:
    """Three brokers, shared by these tests."""
    with running_brokers(BrokerSettings(3)) as running:
        yield running.cluster


@pytest.fixture
def cluster(three: Brokers) -> Iterator[Brokers]:
    """The same; whatever a test did to them, they all run, and know one another, before the next."""
    yield three
    heal(three)


@pytest.fixture(scope="session", autouse=True)
def session_of_this_process(spark: SparkSession) -> SparkSession:
    """Commands that run inside this process find this session and use it."""
    return spark
