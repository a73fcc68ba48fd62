"""Three brokers that the tests of this folder share, and have all running again for the next test."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest
from pyspark.sql import SparkSession

from anew.brokers.cluster import Brokers
from anew.brokers.configuration import BrokerSettings
from anew.core.errors import Refused
from tests.brokers import running_brokers
from tests.cluster.commands import wait_until


@pytest.fixture(scope="package")
def three() -> Iterator[Brokers]:
    """Three brokers, shared by these tests."""
    with running_brokers(BrokerSettings(3)) as running:
        yield running.cluster


@pytest.fixture
def cluster(three: Brokers) -> Iterator[Brokers]:
    """The same; whatever a test did to them, they all run, and know one another, before the next."""
    yield three
    for broker in three.record.brokers:
        with suppress(Refused):
            three.kill(broker, signal.SIGCONT)
        if three.pid(broker) is None:
            three.restart(broker)
    wait_until(lambda: three.status().healthy, "all brokers to be there again")


@pytest.fixture(scope="session", autouse=True)
def session_of_this_process(spark: SparkSession) -> SparkSession:
    """Commands that run inside this process find this session and use it."""
    return spark
