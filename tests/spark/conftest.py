"""One Spark session for the whole tier, and an empty world for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anew.spark.session import SparkSession, session_for_queries, spark_session
from tests.spark.world import World


@pytest.fixture(scope="session")
def spark_started() -> Iterator[SparkSession]:
    """Two cores; a failed task is tried once more."""
    with spark_session("local[2,2]", {"spark.sql.shuffle.partitions": "2"}) as session:
        yield session


@pytest.fixture
def spark(spark_started: SparkSession) -> SparkSession:
    """A session for a rebuild's queries over the one context."""
    return session_for_queries(spark_started)


@pytest.fixture
def make_world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., World]]:
    """Makes worlds with the given store settings, in a folder apart from the test's inputs."""
    made: list[World] = []
    folder = tmp_path_factory.mktemp("worlds")

    def make(**settings: Any) -> World:
        made.append(World(spark, folder / f"world-{len(made)}", settings))
        return made[-1]

    yield make
    for world in made:
        world.log.close()
