"""Make a small home with the code that is here, and pack it: ``nice python -m tests.old.make tests/old/RELEASE``.

One for each format that a release wrote. What lies in it covers what is kept: versions with both transports, codecs, a
dictionary, floors, feeds with writes and deletes, a deferred version and a retired one; segments that are fresh, stale
and imported. A home is never made again once a release has it.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anew.spark.session import spark_session
from tests.cluster.commands import Anew, write_people
from tests.ports import port_of

HOME, EXPECTED = "home.tar.xz", "expected.json"
TABLES = {
    "trips": "SELECT id, city, fare FROM trips ORDER BY id",
    "days": "SELECT day, count(*), sum(rides) FROM days GROUP BY day ORDER BY day",
}
"""Table → a query over all of its rows."""
_SMALL = ("partitions=2", "replicas=1", "rt_partitions=2")
_PASSED_OVER = ("LOG", "LOG.old", "LOCK", "lock")
_EVOLVED = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": "int"},
        {"name": "city", "type": ["null", "string"], "default": None},
    ],
}


def make(anew: Anew, folder: Path) -> None:
    """Fill a running cluster."""
    people = write_people(folder / "people.csv")
    _make_people(anew, people)
    anew.create("plain", "partitions=1", "replicas=1", "transport=log")
    anew.push("plain", people)
    anew.create("waits", *_SMALL, "hybrid=true", "compression=gzip")
    anew.push("waits", people)
    anew.write("waits", {"key": "p1", "value": {"name": "newer", "age": 1}})
    anew.here("repush", "waits", "--defer-swap")
    anew.create("expires", *_SMALL, "hybrid=true", "amplification_factor=2", "rewind_seconds=0")
    anew.push("expires", people)
    anew.write(
        "expires",
        {"key": "old", "value": {"name": "expired", "age": 1}, "written_at": 1_700_000_000_000},
        {"key": "new", "value": {"name": "stays", "age": 2}},
    )
    anew.here("repush", "expires", "-D", "repush.ttl.enable=true", "-D", "repush.ttl.seconds=86400")
    _make_tables(anew, folder)
    anew.here("pause", "--store", "plain")


def _make_people(anew: Anew, people: Path) -> None:
    """Several versions, codecs, schemas, and a feed that holds more than the base."""
    anew.create("people", *_SMALL, "hybrid=true", "compression=zstd_dict")
    anew.push("people", people)
    anew.write("people", {"key": "p3", "delete": True}, {"key": "p4", "value": {"name": "written", "age": 4}})
    anew.here("store", "update", "people", "--set", "partitions=3", "--set", "compression=zstd")
    anew.here("repush", "people")
    anew.here("store", "update", "people", "--value-schema", json.dumps(_EVOLVED))
    rows = [{"key": f"n{n}", "value": {"name": f"nearline {n}", "age": n, "city": "Köln"}} for n in range(12)]
    anew.write("people", *rows, {"key": "p5", "delete": True}, {"key": "n3", "delete": True})


def _make_tables(anew: Anew, folder: Path) -> None:
    """One with segments of three configurations, one that nobody changed."""
    columns = [
        {"name": "id", "type": "bigint"},
        {"name": "city", "type": "varchar"},
        {"name": "fare", "type": "double"},
    ]
    table = pa.table(
        {"id": range(2_500), "city": [f"city {n % 7}" for n in range(2_500)], "fare": [n / 4 for n in range(2_500)]}
    )
    pq.write_table(table, folder / "trips.parquet")
    pq.write_table(table.slice(0, 40).set_column(0, "id", pa.array(range(9_000, 9_040))), folder / "imported.parquet")
    _create_table(anew, folder, "trips", columns, "segment_rows=1000", "sort=id", 'bloom_filters={"city": 0.01}')
    anew.here("table", "load", "trips", str(folder / "trips.parquet"), "--prefix", "a")
    anew.here("table", "import", "trips", str(folder / "imported.parquet"))
    anew.here("table", "update", "trips", "--set", "codec=gzip")
    days = [{"name": "day", "type": "date"}, {"name": "rides", "type": "integer"}]
    (folder / "days.csv").write_text("day,rides\n" + "".join(f"2026-01-{n % 28 + 1:02},{n}\n" for n in range(90)))
    _create_table(anew, folder, "days", days)
    anew.here("table", "load", "days", str(folder / "days.csv"), "--prefix", "d")


def _create_table(anew: Anew, folder: Path, name: str, columns: list[dict[str, str]], *settings: str) -> None:
    schema = folder / f"{name}.json"
    schema.write_text(json.dumps({"columns": columns}), encoding="utf-8")
    options = [part for setting in (*settings, "replicas=1") for part in ("--set", setting)]
    anew.here("table", "create", name, "--schema", str(schema), *options)


def contents(anew: Anew) -> dict[str, Any]:
    """All keys and rows that a home of these serves, as JSON."""
    stores = {store["name"]: anew.scan(store["name"]) for store in anew.here("store", "list")}
    return {
        "stores": stores,
        "tables": {name: anew.here("table", "query", sql)["rows"] for name, sql in TABLES.items()},
    }


def main() -> None:
    """Make one in a folder of its own, and pack it."""
    into = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name, spark_session("local[2]", {"spark.sql.shuffle.partitions": "2"}):
        folder = Path(name)
        anew = Anew(folder / "home", {"ANEW_PORT": str(port_of("shared"))})
        anew.done("up", "--detach", "--nodes", "1")
        try:
            make(anew, folder)
            expected = contents(anew)
        finally:
            anew.run("down")
        into.mkdir(parents=True)
        (into / EXPECTED).write_text(json.dumps(expected, sort_keys=True, ensure_ascii=False) + "\n")
        with tarfile.open(into / HOME, "w:xz") as packed:
            packed.add(anew.home, "home", filter=_kept)


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Whether a file belongs to the home: what a process notes of its run does not, nor who ran it."""
    path = Path(member.name)
    if path.name.startswith(_PASSED_OVER) or "logs" in path.parts:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
