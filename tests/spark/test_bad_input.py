"""Input that does not fit is refused with what was found, where, and what to do; or put aside."""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.codec.avro import decode_datum, parse_schema
from anew.core.errors import AnewError, Failed, InvalidRequest
from anew.spark.session import SparkSession
from tests.spark.world import World

_NUMBERS = '{"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}, {"name": "m", "type": "int"}]}'


def _with_numbers(world: World) -> World:
    world.store = world.store.model_copy(update={"schemas": {1: _NUMBERS}})
    return world


def _csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_missing_column_is_refused_with_the_nearest_name(make_world: Callable[..., World], tmp_path: Path) -> None:
    """A column that the schema needs and the input lacks is refused, with the nearest name, and nothing is written."""
    world = make_world()
    source = _csv(tmp_path / "a.csv", "id,texts", "a,1")
    with pytest.raises(InvalidRequest) as caught:
        world.push(source)
    assert (caught.value.code, caught.value.expected) == ("missing_column", "text")
    assert caught.value.hint == "did you mean texts?"
    assert world.files("d0") == []


def test_null_keys_are_refused(make_world: Callable[..., World], tmp_path: Path) -> None:
    """Rows without a key fail the push, all counted, with file and line."""
    source = _csv(tmp_path / "a.csv", "id,text", "a,1", ",2", "b,3", ",4")
    with pytest.raises(Failed, match="2 rows have no key") as caught:
        make_world().push(source)
    assert caught.value.code == "null_keys"
    assert [shown.split(": ")[0] for shown in caught.value.found] == [f"{source}:3", f"{source}:5"]


def test_duplicate_keys_are_refused_with_an_example(make_world: Callable[..., World], tmp_path: Path) -> None:
    """A key that comes twice fails the push, is named, and the message says how to keep one."""
    source = _csv(tmp_path / "a.csv", "id,text", "a,1", "b,2", "a,3")
    with pytest.raises(Failed) as caught:
        make_world().push(source)
    assert (caught.value.code, caught.value.found) == ("duplicate_keys", ["a"])
    assert "--on-duplicate-key last" in str(caught.value)


def test_the_last_of_equal_keys_is_kept_when_asked(make_world: Callable[..., World], tmp_path: Path) -> None:
    """With ``--on-duplicate-key last`` the last row in file and line order is kept, over several files."""
    _csv(tmp_path / "a.csv", "id,text", "a,1", "a,2", "b,9", "a,3")
    _csv(tmp_path / "b.csv", "id,text", "b,4", *(f"x{number},0" for number in range(50)), "b,5")
    world = make_world()
    manifest = world.push(tmp_path, keep_last=True)
    values = world.values(manifest)
    assert (values[b"\x02a"], values[b"\x02b"]) == (b"\x023", b"\x025")
    assert (manifest.ledger.read.count, manifest.ledger.superseded.count) == (56, 4)


def test_the_latest_of_equal_keys_is_kept_by_its_write_time(make_world: Callable[..., World], tmp_path: Path) -> None:
    """With ``--written-at`` the row with the greatest time is kept, wherever it lies, and carries that time."""
    source = _csv(tmp_path / "a.csv", "id,text,at", "a,old,1000", "a,new,2013-01-01T00:00:00Z", "a,older,999")
    world = make_world()
    cells = world.cells(world.push(source, written_at="at"))
    assert cells[b"\x02a"].value == b"\x06new"
    assert cells[b"\x02a"].stamp.time_ms == 1_356_998_400_000


def test_rows_that_do_not_fit_are_named_and_counted(make_world: Callable[..., World], tmp_path: Path) -> None:
    """Rows that do not fit fail the push: the first 20 with file, line and column, and the number of all rows."""
    lines = [f"k{number},{'x' if number % 2 else number},1" for number in range(60)]
    source = _csv(tmp_path / "a.csv", "id,n,m", *lines)
    with pytest.raises(Failed, match="30 rows do not fit") as caught:
        _with_numbers(make_world()).push(source)
    assert caught.value.code == "bad_rows"
    assert len(caught.value.found) == 20
    assert caught.value.found[0].startswith(f"{source}:3: n: ")
    assert "--bad-rows-to" in str(caught.value)


def test_a_row_with_two_misfits_is_one_bad_row(make_world: Callable[..., World], tmp_path: Path) -> None:
    """Rows are counted, not values: a row that does not fit twice counts once."""
    source = _csv(tmp_path / "a.csv", "id,n,m", "a,x,y", "b,1,2")
    with pytest.raises(Failed, match="1 rows do not fit"):
        _with_numbers(make_world()).push(source)


@pytest.mark.parametrize("cells", ["b,1", "b,1,2,3"])
def test_a_row_with_another_number_of_cells_is_bad(
    make_world: Callable[..., World], tmp_path: Path, cells: str
) -> None:
    """A line with too few or too many cells does not parse, and is named by its line."""
    source = _csv(tmp_path / "a.csv", "id,n,m", "a,1,2", cells, "c,1,2")
    with pytest.raises(Failed, match="1 rows do not fit") as caught:
        _with_numbers(make_world()).push(source)
    assert caught.value.found[0].startswith(f"{source}:3: ")


def test_bad_rows_are_put_aside_and_the_rest_is_pushed(make_world: Callable[..., World], tmp_path: Path) -> None:
    """With ``--bad-rows-to`` the bad rows go to a file, the others are pushed, and the ledger says how many."""
    source = tmp_path / "in" / "a.jsonl"
    source.parent.mkdir()
    good = [json.dumps({"id": f"k{number}", "n": number, "m": 1}) for number in range(5)]
    source.write_text("\n".join([*good, '{"id": "bad", "n": "x", "m": 1}', "no json at all", ""]))
    world, aside = _with_numbers(make_world()), tmp_path / "bad.jsonl"
    manifest = world.push(source, bad_rows_to=str(aside))
    put_aside = [json.loads(line) for line in aside.read_text().splitlines()]
    assert [(row["line"], row["column"]) for row in put_aside] == [(6, "n"), (7, "-")]
    assert len(world.values(manifest)) == 5
    assert (manifest.ledger.read.count, manifest.ledger.skipped.count, manifest.ledger.written.count) == (7, 2, 5)


def test_a_parquet_file_without_its_end_is_refused(make_world: Callable[..., World], tmp_path: Path) -> None:
    """A Parquet file whose footer cannot be read is refused before anything is made, and is named."""
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": ["a"], "text": ["b"]}), source)
    source.write_bytes(source.read_bytes()[:-20])
    with pytest.raises(InvalidRequest) as caught:
        make_world().push(source)
    assert caught.value.code == "unreadable_input"
    assert "a.parquet" in str(caught.value)


def test_a_parquet_file_with_broken_pages_fails_clearly(make_world: Callable[..., World], tmp_path: Path) -> None:
    """A Parquet file that is damaged inside fails the push with the file's name; no version is made of the rest."""
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [f"k{n}" for n in range(5_000)], "text": ["b" * 20] * 5_000}), source)
    content = bytearray(source.read_bytes())
    content[4:2_000] = b"\xff" * 1_996
    source.write_bytes(content)
    world = make_world()
    with pytest.raises(AnewError) as caught:
        world.push(source)
    assert "a.parquet" in str(caught.value)
    assert world.manifests == {}


def test_spark_prints_no_stack_of_a_task_that_failed(spark_started: SparkSession) -> None:
    """Its reason is told in our words; the loggers that would tell it with the JVM's stack are silent."""
    gateway: Any = spark_started.sparkContext._gateway
    logs = gateway.jvm.org.apache.logging.log4j.LogManager
    names = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")
    assert {str(logs.getLogger(name).getLevel()) for name in names} == {"OFF"}


def test_a_broken_container_is_refused(make_world: Callable[..., World], tmp_path: Path) -> None:
    """An Avro container that is none is refused."""
    source = tmp_path / "a.avro"
    source.write_bytes(b"Obj\x01 not really")
    with pytest.raises(InvalidRequest) as caught:
        make_world().push(source)
    assert caught.value.code == "unreadable_input"


_MANY: dict[str, Any] = {
    "type": "record",
    "name": "M",
    "fields": [
        {"name": "u", "type": ["null", "int", "string"]},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "m", "type": {"type": "map", "values": ["null", "string"]}, "default": {}},
    ],
}


def _with_schema(world: World, value_schema: object) -> World:
    world.store = world.store.model_copy(update={"schemas": {1: json.dumps(value_schema)}})
    return world


def test_rows_of_a_container_come_with_their_types_or_are_put_aside(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    """Unions, decimals and maps arrive as they were written; the rows that are skipped are those that are put aside."""
    writer: dict[str, Any] = {**_MANY, "fields": [{"name": "id", "type": "string"}, *_MANY["fields"]]}
    writer["fields"][2] = {"name": "d", "type": {**writer["fields"][2]["type"], "scale": 3}}
    rows = [
        {"id": "a", "u": 5, "d": decimal.Decimal("1.230"), "m": {"x": "1"}},
        {"id": "b", "u": "five", "d": decimal.Decimal("-4.500"), "m": {"y": None}},
        {"id": "c", "u": None, "d": decimal.Decimal("0.001"), "m": {}},
    ]
    with (tmp_path / "in.avro").open("wb") as sink:
        fastavro.writer(sink, fastavro.parse_schema(writer), rows, codec="deflate")
    world, aside = _with_schema(make_world(), _MANY), tmp_path / "bad.jsonl"
    manifest = world.push(tmp_path / "in.avro", bad_rows_to=str(aside))
    schema = parse_schema(json.dumps(_MANY))
    found = {key: decode_datum(schema, value) for key, value in world.values(manifest).items() if value is not None}
    assert found == {
        b"\x02a": {"u": 5, "d": decimal.Decimal("1.23"), "m": {"x": "1"}},
        b"\x02b": {"u": "five", "d": decimal.Decimal("-4.50"), "m": {"y": None}},
    }
    assert [(row["line"], row["column"]) for row in map(json.loads, aside.read_text().splitlines())] == [(3, "d")]
    assert (manifest.ledger.read.count, manifest.ledger.skipped.count) == (3, 1)


def test_a_column_that_cannot_fit_is_refused_by_a_task_with_its_file(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    """What a task refuses reaches the caller with its code, the file and the column, and not as a failure of Spark."""
    pq.write_table(pa.table({"id": ["a"], "n": [b"x"], "m": [1]}), tmp_path / "in.parquet")
    with pytest.raises(AnewError, match=r"in\.parquet: no value of the column n") as caught:
        _with_numbers(make_world()).push(tmp_path / "in.parquet")
    assert (caught.value.code, caught.value.found) == ("column_type", "binary")


@pytest.mark.case("rules:R6")
def test_a_write_time_beyond_the_plan_s_limit_is_a_bad_row(make_world: Callable[..., World], tmp_path: Path) -> None:
    """Times in another unit, which no later write could beat, are named with their unit instead of being taken."""
    source = _csv(tmp_path / "a.csv", "id,text,at", "a,x,1356998400000000", "b,y,1356998400000")
    with pytest.raises(Failed) as caught:
        make_world().push(source, written_at="at")
    assert len(caught.value.found) == 1
    assert caught.value.found[0].startswith(f"{source}:2: at: found 1356998400000000, which looks like microseconds")


def test_options_of_spark_s_readers_are_not_passed_on(make_world: Callable[..., World], tmp_path: Path) -> None:
    """A mode that would drop rows before they are counted is refused before anything is made."""
    world = make_world()
    with pytest.raises(InvalidRequest) as caught:
        world.push(_csv(tmp_path / "a.csv", "id,text", "a"), options={"mode": "DROPMALFORMED"})
    assert (caught.value.code, world.manifests) == ("bad_option", {})
