"""Refreshing on a real cluster: what a rebuild does to rows, types and files, and what readers see of it."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from anew.core.errors import AnewError
from anew.runtime.connect import connect
from tests.cluster.commands import Anew, wait_until
from tests.cluster.tables.making import COLUMNS, Trips, rows

_SUMS = [[len(rows()), sum(row["id"] for row in rows())]]


def _deep_store(anew: Anew) -> Path:
    return anew.home / "deepstore" / "dc-0"


def _typed(name: str, kind: str) -> list[dict[str, Any]]:
    return [{**column, "type": kind} if column["name"] == name else column for column in COLUMNS]


@pytest.mark.case("tables:C4", "tables:C6")
def test_the_sort_column_moves(anew: Anew, tmp_path: Path) -> None:
    """The file is sorted by the new column, says so, and prunes by it; name, creation and time range stay."""
    trips = Trips.create(anew, "moving", tmp_path, sort=["id"], row_group_rows=1_000)
    trips.load(rows(3_000))
    before = trips.segments()[0]
    trips.update(sort=["city", "id"])
    done = trips.refresh()
    assert (done["status"], done["refreshed"]) == ("succeeded", [before["name"]])
    shown = {"done": 1, "total": 1, "unit": "segments", "records": 3_000}
    assert done["progress"] == {**shown, "bytes": before["bytes"], "total_bytes": before["bytes"]}
    after = trips.segments()[0]
    assert after["created_at"] == before["created_at"]
    assert after["columns"]["left_at"] == before["columns"]["left_at"]
    file = pq.ParquetFile(_deep_store(anew) / after["path"])
    found = file.read()
    assert found.sort_by([("city", "ascending"), ("id", "ascending")]).equals(found)
    names = [file.schema_arrow.names[column.column_index] for column in file.metadata.row_group(0).sorting_columns]
    assert names == ["city", "id"]
    spans = [_span(file, group, "city") for group in range(file.metadata.num_row_groups)]
    assert len(spans) == 3
    assert all(one[1] <= two[0] for one, two in pairwise(spans))
    ids = [_span(file, group, "id") for group in range(file.metadata.num_row_groups)]
    assert all(least < 300 for least, _ in ids), "a filter on the column before prunes nothing any more"


def _span(file: Any, group: int, column: str) -> tuple[Any, Any]:
    chunk = file.metadata.row_group(group).column(file.schema_arrow.names.index(column)).statistics
    return chunk.min, chunk.max


@pytest.mark.case("tables:C3")
def test_types_change_and_what_does_not_fit_fails_alone(anew: Anew, tmp_path: Path) -> None:
    """INT → LONG → STRING are read as such; a text that is no number fails its segment, names it, and is left alone."""
    trips = Trips.create(anew, "retyped", tmp_path)
    good, bad = rows(50), rows(50, 1_000)
    bad[7]["city"] = "abc"
    for number, row in enumerate(good):
        row["city"] = str(number)
    for number, row in enumerate(bad):
        row["city"] = row["city"] if row["city"] == "abc" else str(number)
    trips.load(good, "good")
    trips.load(bad, "bad")
    trips.update(columns=_typed("city", "integer"))
    answer = anew.run_here("table", "refresh", "retyped")
    assert answer.code == 6, answer.out
    done = answer.json
    failed = done["failed"][0]
    assert (len(done["refreshed"]), failed["segment"]) == (1, "bad_0")
    assert all(word in failed["error"] for word in ("city", "abc")), failed
    assert trips.refresh()["skipped"][0]["segment"] == failed["segment"], "the same failure is not tried again"
    assert anew.run_here("table", "refresh", "retyped", "--retry-failed").code == 1
    trips.update(columns=_typed("city", "varchar"))
    done = trips.refresh()
    assert done["failed"] == []
    trips.await_served()
    assert trips.query("SELECT count(*), max(city) FROM retyped") == [[100, "abc"]]
    trips.update(columns=_typed("id", "varchar"))
    trips.refresh()
    trips.await_served()
    assert trips.query("SELECT typeof(min(id)) FROM retyped") == [["VARCHAR"]]


@pytest.mark.case("tables:C5", "tables:E7")
def test_a_derived_column_is_added(anew: Anew, tmp_path: Path) -> None:
    """Old segments answer with the default at once; the refresh computes the values; another one changes nothing."""
    trips = Trips.monthly(anew, "derived", tmp_path, skip_segment_preprocess=True)
    trips.load(rows())
    columns = [*COLUMNS, {"name": "half", "type": "double"}, {"name": "tier", "type": "varchar", "default": "low"}]
    trips.update(columns=columns, derived={"half": "fare / 2"})
    wait_until(lambda: _knows(trips, "tier"), "nodes to know the new columns")
    assert trips.query("SELECT count(*) FROM derived WHERE tier = 'low'") == [[len(rows())]]
    assert trips.query("SELECT tier, half FROM derived ORDER BY tier, id LIMIT 1") == [["low", None]]
    done = trips.refresh()
    assert len(done["refreshed"]) == 3
    trips.await_served()
    found = trips.query("SELECT sum(half), count(tier) FROM derived")
    assert found == [[sum(row["fare"] for row in rows()) / 2, len(rows())]]
    assert trips.refresh()["chosen"] == []


def _knows(trips: Trips, column: str) -> bool:
    answer = trips.anew.run_here("table", "query", f"SELECT {column} FROM {trips.name} LIMIT 1")
    return answer.code == 0


@pytest.mark.case("tables:C8")
def test_a_row_filter_takes_rows_out_and_none_comes_back(anew: Anew, tmp_path: Path) -> None:
    """Rows read = written + filtered; loosening or removing the filter is refused."""
    trips = Trips.monthly(anew, "filtered", tmp_path)
    trips.load(rows())
    trips.update(row_filter="fare >= 50")
    done = trips.refresh()
    kept = [row for row in rows() if row["fare"] >= 50]
    ledger = done["ledger"]
    assert (ledger["read"], ledger["written"], ledger["filtered"]) == (len(rows()), len(kept), len(rows()) - len(kept))
    trips.await_served()
    assert trips.query("SELECT count(*), sum(id) FROM filtered") == [[len(kept), sum(row["id"] for row in kept)]]
    for loosened in ("fare >= 40", ""):
        refused = anew.run_here("table", "update", "filtered", "--set", f"row_filter={loosened}")
        assert (refused.code, refused.error["code"]) == (2, "incompatible_change")
    trips.update(row_filter="fare >= 50 AND id > 10")


@pytest.mark.case("tables:E1", "tables:E6")
def test_queries_go_on_while_segments_are_swapped(anew: Anew, tmp_path: Path) -> None:
    """While refresh after refresh changes every segment no query fails, and each sees every row once."""
    trips = Trips.monthly(anew, "asked", tmp_path, sort=["id"])
    trips.load(rows())
    ended, wrong, asked = threading.Event(), [], []

    def ask() -> None:
        with connect(home=str(anew.home)) as cluster:
            while not ended.is_set():
                try:
                    found = cluster.query("SELECT count(*) AS n, sum(id)::BIGINT AS s FROM asked").table
                except AnewError as error:
                    wrong.append(str(error))
                    continue
                asked.append(1)
                if [list(row.values()) for row in found.to_pylist()] != _SUMS:
                    wrong.append(str(found.to_pylist()))
                ended.wait(0.05)

    reader = threading.Thread(target=ask)
    reader.start()
    try:
        for sort in (["city"], ["fare", "city"], ["left_at"]):
            trips.update(sort=sort)
            assert len(trips.refresh()["refreshed"]) == 3
            trips.await_served()
    finally:
        ended.set()
        reader.join()
    assert wrong == []
    assert len(asked) > 5


@pytest.mark.case("tables:E5")
def test_a_reload_changes_copies_and_not_the_deep_store(anew: Anew, tmp_path: Path) -> None:
    """Nodes make their copies again and say so; the deep store keeps its bytes, and the refresh is still to come."""
    trips = Trips.monthly(anew, "reloaded", tmp_path)
    trips.load(rows())
    before = trips.segments()[0]
    trips.update(sort=["city"])
    anew.here("table", "reload", "reloaded")
    trips.await_hashes(trips.wanted)
    after = trips.segments()[0]
    assert (after["path"], after["stale"]) == (before["path"], True)
    assert {copy["rebuilt_rows"] for copy in after["replicas"]} == {before["rows"]}
    assert trips.refresh("--reload-only")["drift"] == [segment["name"] for segment in trips.segments()]
    done = trips.refresh()
    assert len(done["refreshed"]) == 3
    assert len(done["drift"]) == 3
    trips.await_served()
    assert {copy["rebuilt_rows"] for segment in trips.segments() for copy in segment["replicas"]} == {0}


@pytest.mark.case("tables:A9")
def test_a_dry_run_says_why_and_its_plan_can_be_run(anew: Anew, tmp_path: Path) -> None:
    """Each segment has its reasons; the plan runs exactly, and no more once the configuration has moved."""
    trips = Trips.monthly(anew, "explained", tmp_path)
    trips.load(rows())
    trips.update(sort=["city"], bloom={"id": 0.02})
    plan = trips.refresh("--dry-run")
    assert plan["segments"][0]["reasons"] == ["sort: none → city", "bloom of id: none → 0.02"]
    file = tmp_path / "plan.json"
    file.write_text(anew.run_here("table", "refresh", "explained", "--dry-run").out)
    done = trips.refresh("--plan", str(file))
    assert done["plan"]["id"] == anew.here("rebuild", "show", done["id"])["plan"]["id"]
    trips.update(sort=["id"])
    answer = anew.run_here("table", "refresh", "explained", "--plan", str(file))
    assert (answer.code, answer.error["code"]) == (3, "plan_outdated")
