"""A real embedded cluster for the tier: controller and two nodes as processes, driven through the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cluster.commands import Anew, write_people
from tests.ports import port_of


@pytest.fixture(scope="session", autouse=True)
def session_of_this_process(spark: SparkSession) -> SparkSession:
    """Commands that run inside this process find this session and use it."""
    return spark


@pytest.fixture(scope="package")
def anew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Anew]:
    """A running cluster of two nodes, shared by the tier; each test makes stores of its own."""
    home = tmp_path_factory.mktemp("cluster") / "home"
    anew = Anew(
        home, {"ANEW_PORT": str(port_of("shared")), "ANEW_LEASE_SECONDS": "15", "ANEW_RECLAIM_GRACE_SECONDS": "2"}
    )
    anew.done("up", "--detach", "--nodes", "2")
    try:
        yield anew
    finally:
        anew.run("down")


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Anew]:
    """A home without a cluster, for tests that start and stop their own on other ports."""
    anew = Anew(tmp_path / "home", {"ANEW_PORT": str(port_of("lone"))})
    try:
        yield anew
    finally:
        anew.run("down")


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Twenty people as CSV: id, name, age."""
    return write_people(tmp_path / "people.csv")
