"""Full pushes from each format: the bytes, the order and the files of the version."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.core.partition import XxHash64Partitioner
from anew.core.stamp import Stamp
from tests.spark.world import World

KEY: dict[str, Any] = {
    "type": "record",
    "name": "K",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "flight", "type": "int"}],
}
VALUE: dict[str, Any] = {
    "type": "record",
    "name": "V",
    "fields": [
        {"name": "delay", "type": ["null", "double"], "default": None},
        {"name": "tail", "type": "string"},
        {
            "name": "plane",
            "type": {"type": "record", "name": "P", "fields": [{"name": "seats", "type": "long"}]},
        },
        {"name": "source", "type": "string", "default": "file"},
    ],
}
ROWS: list[dict[str, Any]] = [
    {
        "carrier": ["UA", "Ä-ß", "東"][number % 3],
        "flight": number,
        "delay": None if number % 4 == 0 else number / 8,
        "tail": f"N{number}",
        "plane": {"seats": number * 10},
    }
    for number in range(120)
]


def _flights(make_world: Callable[..., World], **settings: Any) -> World:
    world = make_world(**settings)
    schemas = {"key_schema": json.dumps(KEY), "schemas": {1: json.dumps(VALUE)}}
    world.store = world.store.model_copy(update=schemas)
    return world


def _avro(schema: dict[str, Any], datum: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, schema, datum)
    return sink.getvalue()


def _expected() -> dict[bytes, bytes]:
    names = [field["name"] for field in KEY["fields"]]
    return {_avro(KEY, {name: row[name] for name in names}): _avro(VALUE, {"source": "file", **row}) for row in ROWS}


def _write(folder: Path, ending: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"flights.{ending}"
    match ending:
        case "csv":
            with path.open("w", newline="") as sink:
                writer = csv.writer(sink)
                writer.writerow(ROWS[0])
                writer.writerows([_cell(value) for value in row.values()] for row in ROWS)
        case "jsonl":
            path.write_text("".join(json.dumps({**row, "source": "file"}) + "\n" for row in ROWS))
        case "parquet":
            pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=17)
        case _:
            fields = [*KEY["fields"], *VALUE["fields"][:-1]]
            with path.open("wb") as sink:
                fastavro.writer(sink, {"type": "record", "name": "R", "fields": fields}, ROWS)
    return path


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict) else value


@pytest.mark.case("stores:C2")
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "avro"])
def test_each_format_gives_the_same_bytes(make_world: Callable[..., World], tmp_path: Path, ending: str) -> None:
    """A push from any format stores exactly the Avro bytes that fastavro writes, nested records and defaults too."""
    world = _flights(make_world, compression="zstd")
    manifest = world.push(_write(tmp_path, ending), key=("carrier", "flight"))
    assert world.values(manifest) == _expected()
    assert {(cell.stamp, cell.schema_id) for cell in world.cells(manifest).values()} == {(Stamp(0), 1)}
    assert manifest.ledger.counts() == {
        "read": 120,
        "superseded": 0,
        "deleted": 0,
        "expired": 0,
        "skipped": 0,
        "written": 120,
        "combined": 0,
    }


@pytest.mark.case("stores:C8", "stores:H6")
def test_keys_are_in_unsigned_byte_order_in_their_partition(make_world: Callable[..., World], tmp_path: Path) -> None:
    """Each key lies in the partition that the partitioner names, in unsigned byte order there."""
    world = _flights(make_world, partitions=3)
    manifest = world.push(_write(tmp_path, "csv"), key=("carrier", "flight"))
    for partition, pairs in world.stored(manifest).items():
        keys = [key for key, _ in pairs]
        assert keys == sorted(keys)
        assert {XxHash64Partitioner(3).of(key) for key in keys} == {partition}
    assert any(key[1] >= 0x80 for key in world.values(manifest)), "some keys must tell signed from unsigned order"


@pytest.mark.case("stores:C9")
def test_an_empty_partition_has_an_entry_and_no_file(make_world: Callable[..., World], tmp_path: Path) -> None:
    """A partition without a record is in the manifest, without a file."""
    world = make_world(partitions=8)
    source = tmp_path / "one.csv"
    source.write_text("id,text\nonly,x\n")
    plan, built, directory = world.build_push(source)
    assert [part.partition for part in built.sub_partitions] == list(range(8))
    assert sorted(len(part.files) for part in built.sub_partitions) == [0] * 7 + [1]
    assert world.files(directory) == [file.path for part in built.sub_partitions for file in part.files]
    assert world.values(world.seal(plan, built, directory)) == {b"\x08only": b"\x02x"}


def test_a_key_that_is_no_record_takes_its_column(make_world: Callable[..., World], tmp_path: Path) -> None:
    """A store whose key is a plain string takes it from any one column, whatever the column's name."""
    world = make_world()
    source = tmp_path / "names.parquet"
    pq.write_table(pa.table({"name": ["a", "b"], "text": ["1", "2"]}), source)
    assert world.values(world.push(source, key=("name",))) == {b"\x02a": b"\x021", b"\x02b": b"\x022"}


def test_several_files_are_one_input(make_world: Callable[..., World], tmp_path: Path) -> None:
    """The files of a directory are read as one input; hidden ones are passed over."""
    world = make_world()
    for number in range(3):
        (tmp_path / f"part-{number}.csv").write_text(f"id,text\nkey{number},x\n")
    (tmp_path / "_SUCCESS").write_text("")
    assert len(world.values(world.push(tmp_path))) == 3
