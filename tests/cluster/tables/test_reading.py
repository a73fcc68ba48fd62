"""Tables as DataFrames: the rows that queries see, whatever each segment was written with."""

from __future__ import annotations

from pathlib import Path

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
