"""A push and two repushes, one on each path, in a JVM that notes which classes they load: ``... FOLDER OPTIONS``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark import SparkContext

from anew.spark.session import session_for_queries, spark_session
from tests.cluster.commands import PERSON, write_people
from tests.spark.world import World

_ENDING_SECONDS = 240


def main(folder: Path) -> None:
    """Run them in a folder."""
    people = write_people(folder / "people.csv")
    with spark_session("local[2]", {"spark.sql.shuffle.partitions": "2"}) as session:
        world = World(session_for_queries(session), folder / "world", {})
        schemas = {"key_schema": '"string"', "schemas": {1: json.dumps(PERSON)}}
        world.store = world.store.model_copy(update=schemas)
        world.push(people)
        world.write(b"\x04p1", None)
        for path in ("general", "copartitioned"):
            world.repush(path=path)
        world.log.close()
    _await_end_of_java()


def _await_end_of_java() -> None:
    """The JVM writes its notes when it ends, which it does when nobody talks to it any more."""
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_ENDING_SECONDS)


if __name__ == "__main__":
    os.environ["SPARK_SUBMIT_OPTS"] = sys.argv[2]
    main(Path(sys.argv[1]))
