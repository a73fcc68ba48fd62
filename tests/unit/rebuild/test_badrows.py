"""Naming the rows that do not fit: file, line, column."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.core.stores.plan import PushInput
from anew.core.tables.columns import parse_columns
from anew.core.tables.config import segment_config
from anew.core.tables.settings import TableSettings
from anew.rebuild.badrows import BadRow, locate, write_bad_rows
from anew.rebuild.columns import encode_task
from anew.spark.inputcolumns import EncodeTask
from anew.spark.tables.scan import NO_KEY, avro_schema, too_large
from anew.testing.builders import a_store

_VALUE = '{"type": "record", "name": "V", "fields": [{"name": "n", "type": "long"}, {"name": "t", "type": "string"}]}'


def _located(path: Path, file_format: str = "csv", **changes: Any) -> list[BadRow]:
    files = PushInput(paths=(str(path),), format=file_format, key=("k",), **changes)
    task = encode_task(a_store(schemas={1: _VALUE}), files, {path.as_uri(): 0}, None)
    return list(locate([path.as_uri()], files, task))


def _where(rows: list[BadRow]) -> list[tuple[int, str]]:
    return [(row.line, row.column) for row in rows]


def _csv(path: Path, *lines: str, newline: str = "\n") -> Path:
    path.write_bytes((newline.join(lines) + newline).encode())
    return path


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_bad_cells_of_a_csv_file_are_named(tmp_path: Path, newline: str) -> None:
    """Lines count from 1 with the header and blank lines among them, whatever ends a line."""
    path = _csv(tmp_path / "in.csv", "k,n,t", "a,1,x", "", "b,two,x", ",3,x", "c,4,", "d,5,y", newline=newline)
    rows = _located(path)
    assert _where(rows) == [(4, "n"), (5, "k"), (6, "t")]
    assert (rows[0].file, rows[0].row) == (str(path), {"k": "b", "n": "two", "t": "x"})
    assert rows[0].shown.startswith(f"{path}:4: n: found {rows[0].found}, expected ")
    assert "two" in rows[0].found


def test_rows_of_another_length_are_named(tmp_path: Path) -> None:
    """Too few or too many cells make a row that does not parse; separators within quotes do not."""
    path = _csv(tmp_path / "in.csv", "k,n,t", "a,1", "b,2,x,y", 'c,3,"x, y"', "d,4,x")
    rows = _located(path)
    assert _where(rows) == [(2, "-"), (3, "-")]
    assert [(row.found, row.expected) for row in rows] == [
        ("a,1", "a row that parses"),
        ("b,2,x,y", "a row that parses"),
    ]


def test_options_decide_what_a_row_is(tmp_path: Path) -> None:
    """Separator and null text are those that the input was read with."""
    path = _csv(tmp_path / "in.csv", "k;n;t", "a;1;x,y", "b;NA;x")
    assert _where(_located(path, options={"sep": ";", "nullValue": "NA"})) == [(3, "n")]
    assert _where(_located(path, options={"delimiter": ";"})) == [(3, "n")]


def test_several_misfits_of_a_row_are_all_named(tmp_path: Path) -> None:
    """Each column that does not fit is named, in order of lines."""
    path = _csv(tmp_path / "in.csv", "k,n,t,w", "a,x,y,noon", "b,1,z,2020-01-01T00:00:00Z", "c,1,z,0")
    rows = _located(path, written_at="w")
    assert _where(rows) == [(2, "n"), (2, "w"), (4, "w")]
    assert rows[1].found == "noon"


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed_files_are_read_too(tmp_path: Path, suffix: str, pack: Any) -> None:
    """A compressed file's lines are those of its text."""
    path = tmp_path / f"in.csv{suffix}"
    path.write_bytes(pack(b"k,n,t\na,1,x\nb,two,x\n"))
    assert _where(_located(path)) == [(3, "n")]


def test_bytes_that_are_not_text_are_named(tmp_path: Path) -> None:
    """A row with bytes that are not UTF-8 is named by its line, and so are bad rows after it."""
    path = tmp_path / "in.csv"
    path.write_bytes(b"k,n,t\na,1,\xff\xfe\nb,two,x\n")
    rows = _located(path)
    assert _where(rows) == [(2, "-"), (3, "n")]
    assert (rows[0].found, "encoding=" in rows[0].expected) == ("a,1,\\xff\\xfe", True)


def test_bad_rows_of_json_lines_are_named(tmp_path: Path) -> None:
    """Lines that are no JSON object, wrong types, nulls and absent fields are named by line."""
    lines = [
        {"k": "a", "n": 1, "t": "x"},
        {"k": "b", "n": "two", "t": "x"},
        {"k": None, "n": 1, "t": "x"},
        {"k": "c", "n": 1},
        {"k": "d", "n": 2.5, "t": "x"},
    ]
    texts = [json.dumps(line) for line in lines]
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join([*texts[:2], "", "{broken", "[1]", *texts[2:]]) + "\n")
    assert _where(_located(path, "json")) == [(2, "n"), (4, "-"), (5, "-"), (6, "k"), (7, "t"), (8, "n")]


def test_bad_rows_of_parquet_are_named_by_row(tmp_path: Path) -> None:
    """In a file without lines the row's number counts, from 1."""
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"k": ["a", None, "c"], "n": ["1", "2", "x"], "t": ["x", "y", "z"]}), path)
    assert _where(_located(path, "parquet")) == [(2, "k"), (3, "n")]


def test_many_rows_are_read_in_pieces(tmp_path: Path) -> None:
    """Lines are counted on over the pieces in which a large file is read."""
    path = _csv(tmp_path / "in.csv", "k,n,t", *(f"k{n},{'x' if n % 9_000 == 8_999 else n},t" for n in range(25_000)))
    assert _where(_located(path)) == [(9_001, "n"), (18_001, "n")]


def test_bad_rows_are_put_aside_whole(tmp_path: Path) -> None:
    """Each bad row is kept as a line of JSON with where it was, what it was and what was expected."""
    path = _csv(tmp_path / "in.csv", "k,n,t", "a,1", "b,two,x")
    rows = _located(path)
    target = tmp_path / "bad.jsonl"
    assert write_bad_rows(target, iter(rows)) == 2
    kept = [json.loads(line) for line in target.read_text().splitlines()]
    assert [(row["line"], row["column"], row["row"]) for row in kept] == [
        (2, "-", "a,1"),
        (3, "n", {"k": "b", "n": "two", "t": "x"}),
    ]
    assert set(kept[0]) == {"file", "line", "column", "found", "expected", "row"}


_TABLE = {
    "a": ("smallint", "x"),
    "b": ("integer", "x"),
    "c": ("bigint", "x"),
    "d": ("real", "x"),
    "e": ("double", "x"),
    "f": ("boolean", "x"),
    "g": ("date", "x"),
    "h": ("timestamp", "x"),
    "i": ("decimal(5,2)", "1.234"),
    "j": ("blob", "?"),
    "k": ("varchar", ""),
}
"""Column → its type in a table, and a text that is none of it."""


@pytest.mark.parametrize("nullable", [False, True], ids=["not null", "nullable"])
def test_a_table_s_types_have_their_own_names(tmp_path: Path, *, nullable: bool) -> None:
    """What was expected of a value is said as the table's schema says it, not as Avro does; what fits is not named."""
    given = [{"name": name, "type": kind, "nullable": nullable} for name, (kind, _) in _TABLE.items()]
    good = "1,1,1,1.5,1.5,true,2020-01-01,2020-01-01T00:00:00Z,1.25,YQ==,x"
    path = _csv(tmp_path / "in.csv", ",".join(_TABLE), ",".join(text for _, text in _TABLE.values()), good)
    task = EncodeTask(
        key_schema=NO_KEY,
        value_schema=avro_schema(parse_columns({"columns": given})),
        schema_id=0,
        key=(),
        value=tuple(_TABLE),
        written_at=None,
        files={path.as_uri(): 0},
    )
    rows = list(locate([path.as_uri()], PushInput(paths=(str(path),), format="csv", key=()), task))
    # An empty cell is null, which fits a nullable text.
    misfits = [name for name in _TABLE if not (nullable and name == "k")]
    assert _where(rows) == [(2, name) for name in misfits]
    prefix = "null or " if nullable else ""
    assert [row.expected for row in rows] == [f"{prefix}{_TABLE[name][0]}" for name in misfits]


def test_a_number_that_is_too_large_for_a_table_s_type_is_named(tmp_path: Path) -> None:
    """Every row that a load counts as bad is found again, also where Avro has no type as narrow as the table's."""
    columns = parse_columns({"columns": [{"name": "n", "type": "smallint"}, {"name": "m", "type": "integer"}]})
    config = segment_config(columns, TableSettings())
    path = _csv(tmp_path / "in.csv", "n,m", "32767,1", "x,1", "40000,1", ",1", "-32769,y", "-32768,1")
    task = EncodeTask(
        key_schema=NO_KEY,
        value_schema=avro_schema(columns),
        schema_id=0,
        key=(),
        value=("n", "m"),
        written_at=None,
        files={path.as_uri(): 0},
    )
    files = PushInput(paths=(str(path),), format="csv", key=())
    rows = list(locate([path.as_uri()], files, task, lambda cast: too_large(cast, config)))
    assert _where(rows) == [(3, "n"), (4, "n"), (6, "m")]
    assert (rows[1].found, rows[1].expected, rows[1].row) == ("int 40000", "smallint", {"n": "40000", "m": "1"})
