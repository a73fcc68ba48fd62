"""Tiers: a test's folder is its marker, and the cheap tiers run first."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.postgresql import PostgresServer, running_server

TIERS = ("unit", "property", "tidy", "component", "simulation", "spark", "cluster")
_HERE = Path(__file__).parent


def _tier(item: pytest.Item) -> str:
    tier = item.path.relative_to(_HERE).parts[0]
    if tier not in TIERS:
        raise pytest.UsageError(f"{item.nodeid}: found outside of the tiers; expected a folder of {', '.join(TIERS)}")
    return tier


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its folder and put the tiers in order, keeping the order within each."""
    for item in items:
        item.add_marker(_tier(item))
    items.sort(key=lambda item: TIERS.index(_tier(item)))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a test run."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.Builder()
        .master("local[2]")
        .appName("anew tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresServer]:
    """The one PostgreSQL server of a test run; each test makes databases of its own on it."""
    with running_server() as server:
        yield server
