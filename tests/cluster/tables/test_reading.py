"""Tables as DataFrames: the rows that queries see, whatever each segment was written with."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from anew.core.errors import NotFound
from anew.runtime.connect import connect
from tests.cluster.commands import Anew, wait_until
from tests.cluster.tables.making import COLUMNS, Trips, rows


def test_a_data_frame_has_the_rows_that_queries_see(anew: Anew, tmp_path: Path, spark: SparkSession) -> None:
    """Old segments lack a column and hold another type: Spark sees defaults and the wanted types, as queries do."""
    trips = Trips.monthly(anew, "framed", tmp_path, skip_segment_preprocess=True)
    trips.load(rows(), "old")
    columns = [{**column, "type": "varchar"} if column["name"] == "id" else column for column in COLUMNS]
    trips.update(columns=[*columns, {"name": "tier", "type": "varchar", "default": "low"}])
    wait_until(lambda: anew.run_here("table", "query", "SELECT tier FROM framed LIMIT 1").code == 0, "the new column")
    query = "SELECT id, city, fare, tier FROM framed ORDER BY id"
    with connect(home=str(anew.home)) as cluster:
        frame = cluster.read_table(spark, "framed")
        found = [list(row) for row in frame.select("id", "city", "fare", "tier").orderBy("id").collect()]
        assert frame.columns == ["id", "city", "left_at", "fare", "tier"]
        assert found == trips.query(query)
        assert (len(found), found[0][3], type(found[0][0])) == (len(rows()), "low", str)
        before = cluster.read_table(spark, "framed")
        trips.update(row_filter="fare >= 50")
        trips.refresh()
        assert before.count() == len(rows()), "what was named is read, until it is reclaimed"
        assert cluster.read_table(spark, "framed").count() == sum(row["fare"] >= 50 for row in rows())
        with pytest.raises(NotFound, match="there is no table nobody"):
            cluster.read_table(spark, "nobody")


def test_an_empty_table_is_an_empty_data_frame(anew: Anew, tmp_path: Path, spark: SparkSession) -> None:
    """It has columns and no rows."""
    Trips.create(anew, "framed_empty", tmp_path)
    with connect(home=str(anew.home)) as cluster:
        frame = cluster.read_table(spark, "framed_empty")
        assert (frame.count(), frame.columns) == (0, [column["name"] for column in COLUMNS])


def test_no_process_of_a_cluster_loads_pandas(anew: Anew, people: Path, tmp_path: Path) -> None:
    """Neither controller and nodes nor what they start to load and to query, although it is installed here."""
    trips = Trips.monthly(anew, "lean", tmp_path)
    trips.load(rows())
    trips.await_served()
    assert trips.query("SELECT count(*) FROM lean") == [[len(rows())]]
    anew.create("lean")
    anew.push("lean", people)
    pids = json.loads((anew.home / "cluster.json").read_text(encoding="utf-8"))["pids"]
    processes = [process for pid in pids.values() for process in _family(psutil.Process(pid))]
    assert len(processes) > len(pids), "a node has processes of its own"
    loaded = {process.pid: _mapped(process) for process in processes}
    assert any("duckdb" in str(path) for paths in loaded.values() for path in paths)
    assert [pid for pid, paths in loaded.items() if any("pandas" in path.parts for path in paths)] == []


def _mapped(process: psutil.Process) -> set[Path]:
    """The files that a process has in its memory; none when it has just ended."""
    try:
        return {Path(file.path) for file in process.memory_maps()}
    except psutil.NoSuchProcess:
        return set()


def _family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]
