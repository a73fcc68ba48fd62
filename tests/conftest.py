"""Tiers: a test's folder is its marker; the cheap tiers run first, and what takes minutes first of its tier."""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from pyspark.sql import SparkSession

from anew.brokers.cluster import Brokers
from tests.brokers import running_brokers
from tests.java import SPARK
from tests.minio import MinioServer, running_minio
from tests.postgresql import PostgresServer, running_server
from tests.runs import let_go, spark_of_run, start_guard

os.environ.setdefault("SPARK_SUBMIT_OPTS", SPARK.options)

# Drawn with all values of all frames, as is usual at a terminal, a traceback costs a tenth of a second and more.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

_LOGGING = structlog.get_config()

TIERS = ("unit", "property", "tidy", "component", "simulation", "spark", "cluster", "crash", "kafka")
_WITH_PROCESSES, _LONGEST_SECONDS = ("cluster", "crash", "kafka"), 300
"""A command starts an interpreter, and often a JVM: on a slow machine half a dozen of them take minutes."""
_TOGETHER = ("crash", "kafka")
"""Tiers of one turn: what waits for leases and deadlines leaves the processors to what computes beside it."""
_LONG = (
    "spark/test_bench.py",
    "cluster/test_standalone.py",
    "cluster/test_reconfigurations.py",
    "cluster/test_docs.py",
    "cluster/test_lifecycle.py",
    "cluster/test_demo.py",
    "kafka/faults/test_stores.py",
    "kafka/stores/test_again.py",
    "crash/test_drivers.py",
    "crash/jobs/test_histories.py",
    "kafka/faults/test_brokers_under_load.py",
    "kafka/faults/test_shut_out.py",
    "crash/test_tables.py",
    "kafka/test_commands.py",
    "crash/test_controllers.py",
    "kafka/stores/test_demo.py",
    "crash/test_nodes.py",
    "kafka/test_brokers.py",
    "crash/test_machine.py",
    "kafka/test_steps.py",
)
"""Files of minutes, first of their turn: a worker takes whole files, and one that began last would be waited for."""
_HERE = Path(__file__).parent
_GUARD = pytest.StashKey[subprocess.Popen[bytes]]()


def _tier(item: pytest.Item) -> str:
    tier = item.path.relative_to(_HERE).parts[0]
    if tier not in TIERS:
        raise pytest.UsageError(f"{item.nodeid}: found outside of the tiers; expected a folder of {', '.join(TIERS)}")
    return tier


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its folder and put the files in order, keeping the order within each."""
    gone = [file for file in _LONG if not (_HERE / file).exists()]
    if gone:
        raise pytest.UsageError(f"tests/conftest.py: {', '.join(gone)}: expected a file; mend the list of long files")
    for item in items:
        item.add_marker(_tier(item))
        if _tier(item) in _WITH_PROCESSES and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_LONGEST_SECONDS))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[int, int, int]:
    """When a test's file comes: what is cheap tells most of what is wrong within minutes."""
    tier, file = _tier(item), item.path.relative_to(_HERE).as_posix()
    together = TIERS.index(_TOGETHER[0] if tier in _TOGETHER else tier)
    return together, _LONG.index(file) if file in _LONG else len(_LONG), TIERS.index(tier)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is there when the tests begin stays: the collector need not walk through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Whatever this run starts carries its mark, and ends with it should it be killed."""
    if not hasattr(config, "workerinput"):
        config.stash[_GUARD] = start_guard()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let the guard go, and what was set aside: DuckDB's binding complains, for pages, of what outlives its process."""
    gc.unfreeze()
    if (guard := config.stash.get(_GUARD, None)) is not None:
        let_go(guard)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Logging that a command directed to its stderr is directed back: that stream is closed with its test.

    Before a test too: a command may have run in what several tests share.
    """
    structlog.configure(**_LOGGING)
    yield
    structlog.configure(**_LOGGING)
    structlog.contextvars.clear_contextvars()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a test run."""
    with spark_of_run("anew tests") as session:
        yield session


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresServer]:
    """The one PostgreSQL server of a test run; each test makes databases of its own on it."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def minio() -> Iterator[MinioServer]:
    """The one S3 server of a test run; each test makes buckets of its own on it."""
    with running_minio() as server:
        yield server


@pytest.fixture(scope="session")
def brokers() -> Iterator[Brokers]:
    """The one Kafka broker of a test run; each test makes topics of its own on it, and leaves it running."""
    with running_brokers() as running:
        yield running.cluster
