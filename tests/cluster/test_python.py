"""The Python face on a real cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anew.core.errors import InvalidRequest, NotFound
from anew.runtime.connect import Cluster, connect
from tests.cluster.commands import PERSON, Anew


@pytest.fixture
def cluster(anew: Anew) -> Iterator[Cluster]:
    """A connection to the tier's cluster."""
    with connect(home=str(anew.home)) as connected:
        yield connected


def test_a_program_reads_writes_plans_and_runs_with_its_own_session(
    anew: Anew, cluster: Cluster, people: Path, spark: SparkSession
) -> None:
    """The example of the tour, and the session is left running."""
    anew.create("program", "hybrid=true", "rt_partitions=2")
    anew.push("program", people)
    store = cluster.store("program")
    found = store.get("p1")
    assert found is not None
    assert (found.value, found.written_at, found.version) == ({"name": "name 1", "age": 21}, 0, 1)
    assert store.get("nobody") is None
    with store.writer() as writer:
        writer.put("p1", {"name": "from Python", "age": 1})
        writer.delete("p2")
        position = writer.close()
    anew.here("store", "wait", "program", "--position", json.dumps(position.to_json()))
    cells = store.get_many(["p1", "p2", "p3"])
    assert [None if cell is None else cell.value["name"] for cell in cells] == ["from Python", None, "name 3"]
    assert {cell.version for cell in cells if cell is not None} == {1}
    outcome = cluster.run(cluster.plan_repush("program"), spark=spark)
    assert (outcome.status, outcome.version) == ("succeeded", 2)
    assert outcome.ledger is not None
    assert outcome.ledger["superseded"] == 2
    assert spark.range(3).count() == 3, "the user's session goes on"


def test_a_store_is_a_data_frame_with_all_writes_up_to_now(
    anew: Anew, cluster: Cluster, people: Path, spark: SparkSession
) -> None:
    """``read_store`` gives decoded keys and values, merged, in the newest schema."""
    anew.create("frame", "hybrid=true", "rt_partitions=2", "compression=zstd")
    anew.push("frame", people)
    wider = {**PERSON, "fields": [*PERSON["fields"], {"name": "city", "type": "string", "default": "?"}]}
    anew.here("store", "update", "frame", "--value-schema", json.dumps(wider))
    row = {"key": "p1", "value": {"name": "moved", "age": 1, "city": "Bonn"}}
    anew.write("frame", row, {"key": "p2", "delete": True})
    frame = cluster.read_store(spark, "frame")
    assert frame.columns == ["key", "value", "written_at"]
    rows = {r["key"]: r for r in frame.collect()}
    assert len(rows) == 19
    assert rows["p1"]["value"].asDict() == {"name": "moved", "age": 1, "city": "Bonn"}
    assert rows["p1"]["written_at"] > 0
    assert rows["p3"]["value"].asDict() == {"name": "name 3", "age": 23, "city": "?"}


def test_errors_are_typed_and_carry_their_reason(cluster: Cluster, anew: Anew) -> None:
    """An unknown store and a value that does not fit are told apart by class and code."""
    with pytest.raises(NotFound) as unknown:
        cluster.store("nowhere")
    assert unknown.value.code == "unknown_store"
    anew.create("typed", "hybrid=true", "rt_partitions=2")
    with cluster.store("typed").writer() as writer, pytest.raises(InvalidRequest) as misfit:
        writer.put("a", {"name": 3, "age": 1})
    assert misfit.value.code == "value_misfit"
    assert "name" in misfit.value.message
