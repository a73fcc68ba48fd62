"""A cluster whose processes can be made to stand still and die, and how stores on it are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anew.api.http import ControllerClient
from tests.cluster.commands import Anew, write_people
from tests.crash.crashing import FORGETFUL, Crashing
from tests.crash.halts import Halts
from tests.ports import port_of

_PORT = port_of("crashing")


@pytest.fixture(scope="session", autouse=True)
def session_of_this_process(spark: SparkSession) -> SparkSession:
    """Commands that run inside this process find this session and use it."""
    return spark


@pytest.fixture(autouse=True)
def undisturbed(crashing: Crashing) -> Iterator[None]:
    """Each test begins with a healthy cluster of which nothing is going to stop."""
    crashing.await_healthy()
    yield
    crashing.halts.disarm()


@pytest.fixture(scope="package")
def crashing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashing]:
    """A running cluster of three nodes, shared by the tier; each test makes stores of its own."""
    halts = Halts(tmp_path_factory.mktemp("halts"))
    settings = {
        "ANEW_PORT": str(_PORT),
        "ANEW_LEASE_SECONDS": "10",
        "ANEW_NODE_ALIVE_SECONDS": "3",
        "ANEW_NODE_LOST_SECONDS": "8",
        "ANEW_RECLAIM_GRACE_SECONDS": "1",
        **FORGETFUL,
    }
    anew = Anew(tmp_path_factory.mktemp("crashing") / "home", {**settings, **halts.environment})
    anew.done("up", "--detach", "--nodes", "3")
    try:
        with ControllerClient(f"http://127.0.0.1:{_PORT}", timeout_seconds=10) as controller:
            yield Crashing(anew, halts, controller)
    finally:
        anew.run("down")


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty people as CSV: id, name, age."""
    return write_people(tmp_path_factory.mktemp("input") / "people.csv")
