"""A cluster whose catalog is lost comes back whole: at rest on SQLite, and under a running controller on PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.commands import PERSON, Anew, wait_until
from tests.cluster.tables.making import Trips, rows
from tests.postgresql import PostgresServer

_SETTINGS = ("hybrid=true", "partitions=2", "rt_partitions=2", "backup_retention_seconds=7200")
_SQL = "SELECT city, count(*), sum(fare), min(left_at) FROM trips GROUP BY city ORDER BY city"
_Rows = dict[Any, Any]


# Commands run inside this process wherever they can: each process of its own costs seconds.


def _healthy(anew: Anew) -> bool:
    return anew.run_here("status").code == 0


def _scan(anew: Anew) -> _Rows:
    answer = anew.run_here("scan", "people")
    assert answer.code == 0
    rows = [json.loads(line) for line in answer.out.splitlines()]
    return {row["key"]: row["value"] for row in rows}


def _write(anew: Anew, directory: Path, *rows: dict[str, Any]) -> None:
    """Write rows and wait until the current version has them."""
    file = directory / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    written = anew.here("write", "people", str(file))
    anew.here("store", "wait", "people", "--position", json.dumps(written["position"]))


def _made(anew: Anew, people: Path) -> _Rows:
    """A store with a push, nearline writes, a repush, more writes, and a rollback; what it holds. A table beside it."""
    anew.done("up", "--detach", "--nodes", "2")
    _make_table(Trips.monthly(anew, "trips", people.parent))
    schemas = ("--key-schema", "string", "--value-schema", json.dumps(PERSON))
    settings = [part for setting in _SETTINGS for part in ("--set", setting)]
    anew.here("store", "create", "people", *schemas, *settings)
    anew.push("people", people)
    _write(anew, people.parent, {"key": "p1", "value": {"name": "one", "age": 1}}, {"key": "p2", "delete": True})
    anew.here("store", "update", "people", "--set", "compression=zstd", "--set", "owner=ann")
    anew.here("repush", "people")
    _write(anew, people.parent, {"key": "p3", "value": {"name": "three", "age": 3}})
    anew.here("rollback", "people")
    before = _scan(anew)
    assert len(before) == 19
    assert before["p3"] == {"name": "three", "age": 3}
    anew.done("down")
    return before


def _make_table(trips: Trips) -> None:
    """Segments of two loads, one of them refreshed, one dropped, and settings that make the others stale."""
    trips.load(rows(), "first")
    trips.load(rows(200, first=10_000), "second")
    trips.update(sort=["city"])
    trips.refresh("--max-segments", "1")
    trips.anew.here("table", "delete", "trips", "--segment", "second_2013-02_0", "--yes")
    trips.await_served()
    (trips.folder / "answer.json").write_text(json.dumps([trips.query(_SQL), trips.segments()]))


def _table_goes_on(trips: Trips) -> None:
    """Answers, segments and hashes are as before; a refresh, a load and a drop change what they should."""
    answer, segments = json.loads((trips.folder / "answer.json").read_text())
    trips.await_served()
    assert trips.query(_SQL) == answer
    assert [(each["name"], each["build"], each["config_hash"]) for each in trips.segments()] == [
        (each["name"], each["build"], each["config_hash"]) for each in segments
    ]
    assert len(segments) == 5
    assert trips.refresh()["status"] == "succeeded"
    trips.await_hashes(trips.wanted)
    assert trips.query(_SQL) == answer
    trips.load(rows(1, first=50_000), "third")
    assert sum(row[1] for row in trips.query(_SQL)) == sum(row[1] for row in answer) + 1


def _goes_on(anew: Anew, people: Path, before: _Rows) -> None:
    """Every key reads as before; writes, a repush and the version's number go on."""
    wait_until(lambda: _healthy(anew), "a healthy cluster")
    shown = anew.here("store", "show", "people")
    assert shown["fabrics"]["dc-0"]["current"] == 1
    assert (shown["config"]["owner"], shown["config"]["backup_retention_seconds"]) == ("ann", 7200)
    assert [change["setting"] for change in shown["pending"]] == ["compression"]
    assert _scan(anew) == before
    _write(anew, people.parent, {"key": "p4", "value": {"name": "four", "age": 4}}, {"key": "p5", "delete": True})
    anew.here("unpause", "--store", "people")
    anew.here("repush", "people")
    after = {key: value for key, value in before.items() if key != "p5"}
    assert _scan(anew) == {**after, "p4": {"name": "four", "age": 4}}
    assert anew.here("store", "show", "people")["fabrics"]["dc-0"]["current"] == 3
    assert anew.run_here("store", "verify", "people").code == 0
    _table_goes_on(Trips(anew, "trips", people.parent))


@pytest.mark.timeout(400)
def test_a_lost_file_is_made_again_at_rest(lone: Anew, people: Path) -> None:
    """With the SQLite file deleted, `anew catalog restore` makes it again before the cluster is started."""
    before = _made(lone, people)
    files = sorted(lone.home.glob("catalog.sqlite*"))
    assert files
    for file in files:
        file.unlink()
    dry = lone.here("catalog", "restore", "--dry-run")
    made = lone.here("catalog", "restore", "--request-id", "restore-1")
    assert (made["stores"], made["tables"]) == (dry["stores"], dry["tables"])
    assert [(table["name"], table["segments"]) for table in made["tables"]] == [("trips", 5)]
    assert lone.here("catalog", "restore", "--request-id", "restore-1") == made
    refused = lone.run_here("catalog", "restore")
    assert (refused.code, refused.error["code"]) == (3, "catalog_not_empty")
    lone.done("up", "--detach", "--nodes", "2")
    _goes_on(lone, people, before)


@pytest.mark.timeout(400)
def test_a_lost_database_is_made_again_while_the_cluster_runs(
    lone: Anew, people: Path, postgresql: PostgresServer
) -> None:
    """With an empty database in place of the lost one, nodes keep what they hold until the restore; then it goes on."""
    lone.extra["ANEW_CATALOG"] = postgresql.new_database()
    before = _made(lone, people)
    lone.extra["ANEW_CATALOG"] = postgresql.new_database()
    lone.done("up", "--detach", "--nodes", "2")
    assert lone.here("store", "list") == []
    assert lone.here("catalog", "restore")["stores"][0]["from"] == "record"
    _goes_on(lone, people, before)
    for log in (lone.home / "logs").iterdir():
        text = log.read_text(encoding="utf-8", errors="replace")
        assert "s3cret" not in text, log
