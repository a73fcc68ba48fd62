"""Loading files into tables: formats, dealing, bad rows, idempotence; importing what is there already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.commands import Anew
from tests.cluster.tables.making import Trips, rows, write_csv, write_parquet

_AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": "string"},
        {"name": "left_at", "type": "string"},
        {"name": "fare", "type": "double"},
    ],
}


def _written(folder: Path, kind: str) -> Path:
    found = rows()
    path = folder / f"trips.{kind}"
    match kind:
        case "csv":
            return write_csv(path, found)
        case "json":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in found))
        case "avro":
            with path.open("wb") as sink:
                fastavro.writer(sink, _AVRO, found)
        case _:
            return write_parquet(path, found)
    return path


@pytest.mark.case("tables:F1")
@pytest.mark.parametrize("kind", ["csv", "json", "avro", "parquet"])
def test_each_format_becomes_the_same_segments(anew: Anew, tmp_path: Path, kind: str) -> None:
    """Segments span one bucket and one partition, are no larger than asked, sorted, and stamped."""
    name = f"loaded_{kind}"
    settings = {"time_column": "left_at", "bucket": "month", "partition_column": "id", "partition_count": 2}
    trips = Trips.create(anew, name, tmp_path, sort=["city"], segment_rows=1_000, **settings)
    view = anew.here("table", "load", name, str(_written(tmp_path, kind)), "--prefix", "t")
    ledger = view["ledger"]
    assert (ledger["read"], ledger["written"], ledger["skipped"]) == (len(rows()), len(rows()), 0)
    trips.await_served()
    found = trips.segments()
    assert [segment["name"] for segment in found] == [
        f"t_2013-{month:02d}_p{part}_0" for month in (1, 2, 3) for part in (0, 1)
    ]
    for segment in found:
        month = segment["name"][2:9]
        bounds = segment["columns"]["left_at"]
        assert bounds["least"].startswith(month)
        assert bounds["greatest"].startswith(month)
        assert segment["partitions"] == [int(segment["name"][-3])]
        assert segment["config_hash"] == segment["wanted_hash"]
    totals = trips.query(f"SELECT count(*), sum(id), sum(fare), min(left_at), count(DISTINCT city) FROM {name}")
    assert totals[0][:3] == [len(rows()), sum(row["id"] for row in rows()), sum(row["fare"] for row in rows())]
    assert totals[0][3:] == ["2013-01-01T05:00:00+00:00", 11]


@pytest.mark.case("tables:F2")
def test_rows_that_do_not_fit_are_named_or_put_aside(anew: Anew, tmp_path: Path) -> None:
    """Without the option the load fails and names file, line and column; with it read = loaded + skipped."""
    trips = Trips.create(anew, "picky", tmp_path)
    found = rows()
    found[4]["fare"] = "much"
    path = write_csv(tmp_path / "bad.csv", found)
    answer = anew.run_here("table", "load", "picky", str(path))
    assert (answer.code, answer.error["code"]) == (1, "bad_rows")
    assert f"{path}:6: fare" in str(answer.error["found"])
    assert trips.segments() == [], "nothing of it is visible"
    aside = tmp_path / "aside.jsonl"
    view = anew.here("table", "load", "picky", str(path), "--on-bad-row", "skip", "--bad-rows-to", str(aside))
    ledger = view["ledger"]
    assert (ledger["read"], ledger["skipped"], ledger["written"]) == (len(found), 1, len(found) - 1)
    assert json.loads(aside.read_text())["column"] == "fare"


@pytest.mark.case("tables:F3", "tables:D5", "tables:D6")
def test_loading_twice(anew: Anew, tmp_path: Path) -> None:
    """The same request is the same load; the same rows are no new build; other rows are one, of the same segment."""
    trips = Trips.create(anew, "twice", tmp_path)
    path = write_csv(tmp_path / "in.csv", rows())
    first = anew.here("table", "load", "twice", str(path), "--prefix", "a", "--request-id", "twice-1")
    before = trips.segments()[0]
    same = anew.here("table", "load", "twice", str(path), "--prefix", "a")
    assert (same["refresh"]["stamped"], same["refresh"]["refreshed"]) == ([before["name"]], [])
    noted = trips.segments()[0]
    assert (noted["build"], noted["pushed_at"] > before["pushed_at"]) == (before["build"], True)
    write_csv(path, rows(10))
    anew.here("table", "load", "twice", str(path), "--prefix", "a")
    (after,) = trips.segments()
    assert (after["rows"], after["build"] != before["build"]) == (10, True)
    assert (after["created_at"], after["path"] != before["path"]) == (before["created_at"], True)
    assert first["status"] == "succeeded"


@pytest.mark.case("tables:B1")
def test_importing_what_nobody_could_serve_is_refused(anew: Anew, tmp_path: Path) -> None:
    """A file that is no Parquet, lacks every column, or has no name for a segment changes nothing."""
    trips = Trips.create(anew, "strict", tmp_path)
    text = tmp_path / "text.parquet"
    text.write_text("hello")
    other = write_parquet(tmp_path / "with space.parquet", rows(5))
    for path, code in ((text, "not_parquet"), (other, "bad_name"), (tmp_path / "none.parquet", "no_input")):
        answer = anew.run_here("table", "import", "strict", str(path))
        assert (answer.code, answer.error["code"]) == (2, code)
    assert trips.segments() == []


@pytest.mark.case("tables:F3", "rules:R22")
def test_the_same_command_under_one_request_id_is_answered_as_before(anew: Anew, tmp_path: Path) -> None:
    """Load, import and refresh repeated with their id give the first result, whatever has moved since."""
    trips = Trips.create(anew, "asked_twice", tmp_path)
    path, file = write_csv(tmp_path / "in.csv", rows(20)), write_parquet(tmp_path / "other.parquet", rows(20))
    load = ("table", "load", trips.name, str(path), "--request-id", "asked-load")
    imports = ("table", "import", trips.name, str(file), "--request-id", "asked-import")
    refresh = ("table", "refresh", trips.name, "--request-id", "asked-refresh")
    first = [anew.here(*load), anew.here(*imports)]
    trips.update(sort=["city"])
    first.append(anew.here(*refresh))
    assert len(first[-1]["refreshed"]) == 2
    path.unlink()
    file.unlink()
    again = [anew.here(*command) for command in (load, imports, refresh)]
    assert [view["id"] for view in again] == [view["id"] for view in first]
    assert again[-1]["refreshed"] == first[-1]["refreshed"]
    assert len(trips.segments()) == 2
    for other in ((*load, "--prefix", "p"), (*refresh, "--retry-failed"), ("table", "refresh", trips.name, *load[-2:])):
        refused = anew.run_here(*other)
        assert (refused.code, refused.json["error"]["code"]) == (2, "request_id_reused")


@pytest.mark.case("tables:F3")
def test_a_load_dealt_otherwise_replaces_its_prefix(anew: Anew, tmp_path: Path) -> None:
    """After bucket and segment_rows changed, the same load has each row once; the plan lists what it replaces."""
    trips = Trips.create(anew, "dealt_again", tmp_path, time_column="left_at", segment_rows=1_000)
    trips.load(rows(2_500))
    before = [segment["name"] for segment in trips.segments()]
    trips.update(bucket="month", segment_rows=2_000)
    plan = anew.here("table", "load", trips.name, str(tmp_path / "in.csv"), "--prefix", "trips", "--dry-run")
    assert plan["replaces"] == before
    assert any("replace the 3 segments" in why for why in plan["why"])
    view = trips.load(rows(2_500))
    assert view["refresh"]["removed"] == before
    assert trips.query(f"SELECT count(*), count(DISTINCT id) FROM {trips.name}") == [[2_500, 2_500]]


@pytest.mark.case("tables:F2")
def test_parquet_that_is_damaged_or_not_text_is_refused(anew: Anew, tmp_path: Path) -> None:
    """A damaged page, and a text that is not UTF-8, fail a load with the file and the column; nothing is loaded."""
    trips = Trips.create(anew, "damaged_input", tmp_path)
    damaged, invalid = write_parquet(tmp_path / "damaged.parquet", rows(500)), tmp_path / "invalid.parquet"
    content, chunk = bytearray(damaged.read_bytes()), pq.read_metadata(damaged).row_group(0).column(0)
    first = chunk.dictionary_page_offset or chunk.data_page_offset
    content[first : first + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    damaged.write_bytes(content)
    held = pa.array([b"Bonn", b"K\xf6ln"])
    cities: Any = pa.Array.from_buffers(pa.string(), 2, held.buffers())
    pq.write_table(pa.table({"id": [1, 2], "city": cities}), invalid)
    for path, code, column in ((damaged, "unreadable_input", "id"), (invalid, "bad_rows", "city")):
        answer = anew.run_here("table", "load", trips.name, str(path))
        assert (answer.code, answer.error["code"]) == (1, code)
        assert path.name in answer.out
        assert column in answer.out
    assert trips.segments() == []
