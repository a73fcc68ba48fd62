"""Parquet files as input: the types that others write, and files that cannot be read."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.codec.avro import decode_datum, parse_schema
from anew.codec.plain import to_plain
from anew.codec.vector import Misfit, cast_columns, encode_table
from anew.core.errors import InvalidRequest
from anew.segments.inputfile import parquet_names, read_parquet, row_groups

_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
_DATE = {"type": "int", "logicalType": "date"}
_CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
_PAIR = {
    "type": "record",
    "name": "P",
    "fields": [{"name": "b", "type": ["null", "string"]}, {"name": "a", "type": "int"}],
}


def _arrived(path: Path, column: Any, of_type: Any, **options: Any) -> tuple[list[Any], list[Misfit]]:
    pq.write_table(pa.table({"x": column}), path, **options)
    schema, values, misfits = parse_schema(_record(of_type)), list[Any](), list[Misfit]()
    for rows in read_parquet(str(path), ["x"]):
        cast = cast_columns(schema, rows.batch)
        misfits += cast.misfits
        bodies: Any = encode_table(schema, cast.batch)
        values += [to_plain(schema, decode_datum(schema, body))["x"] for body in bodies.to_pylist()]
    return values, misfits


def _record(of_type: Any) -> str:
    return json.dumps({"type": "record", "name": "V", "fields": [{"name": "x", "type": ["null", of_type]}]})


_AT = datetime.datetime.fromisoformat("2020-01-02T03:04:05.678901")
_ISO = "2020-01-02T03:04:05.678901Z"


@pytest.mark.parametrize(
    ("column", "of_type", "expected", "options"),
    [
        (pa.array([None, None]), "long", [None, None], {}),
        (pa.array([_AT], pa.timestamp("ns")), _MICROS, [_ISO], {}),
        (pa.array([_AT], pa.timestamp("us", "America/New_York")), _MICROS, [_ISO], {}),
        (pa.array([_AT, None], pa.timestamp("us")), _MICROS, [_ISO, None], {"use_deprecated_int96_timestamps": True}),
        (
            pa.array([_AT.replace(year=9000)], pa.timestamp("us")),
            _MICROS,
            [_ISO.replace("2020", "9000")],
            {"use_deprecated_int96_timestamps": True},
        ),
        (pa.array([datetime.date(9999, 12, 31)]), _DATE, ["9999-12-31"], {}),
        (pa.array([5], pa.uint32()), "long", [5], {}),
        (pa.array([5], pa.int64()), _CENTS, ["5.00"], {}),
        (pa.array([decimal.Decimal("1.2")]), _CENTS, ["1.20"], {}),
        (pa.array([decimal.Decimal("1.20")]), "string", ["1.20"], {}),
        (pa.array([1.5], pa.float16()), "float", [1.5], {}),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "string", ["a", "b", "a"], {}),
        (pa.array(["a"], pa.large_string()), "string", ["a"], {}),
        (pa.array([b"\xff"], pa.large_binary()), "bytes", ["/w=="], {}),
        (pa.array([b"0123456789abcdef"], pa.uuid()), "string", ["30313233-3435-3637-3839-616263646566"], {}),
        (
            pa.array([[1, 2], None, []], pa.list_(pa.int32())),
            {"type": "array", "items": "long"},
            [[1, 2], None, []],
            {},
        ),
        (
            pa.array([[("k", b"v")], None], pa.map_(pa.string(), pa.binary())),
            {"type": "map", "values": "bytes"},
            [{"k": "dg=="}, None],
            {},
        ),
        (
            pa.array([{"a": 1, "b": None}, None, {"a": 2, "b": "x"}]),
            _PAIR,
            [{"b": None, "a": 1}, None, {"b": "x", "a": 2}],
            {},
        ),
    ],
)
def test_types_that_others_write_arrive_exactly(
    tmp_path: Path, column: Any, of_type: Any, expected: list[Any], options: dict[str, Any]
) -> None:
    """Each type goes into the store's with the value that was written."""
    assert _arrived(tmp_path / "in.parquet", column, of_type, **options) == (expected, [])


def _not_utf8(*values: bytes) -> Any:
    plain = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), plain.buffers())


@pytest.mark.parametrize(
    ("column", "of_type", "found"),
    [
        (_not_utf8(b"ok", b"caf\xe9"), "string", "not UTF-8"),
        (pa.array([None, 1_001], pa.timestamp("ns")), _MICROS, "1970"),
        (pa.array([0, 253_402_300_800_000_000], pa.timestamp("us")), _MICROS, "not within the years"),
        (pa.array([0, 2_932_897], pa.date32()), _DATE, "not within the years"),
        (pa.array([0, 2**63], pa.uint64()), "long", str(2**63)),
        (pa.array([[1], [None]], pa.list_(pa.int32())), {"type": "array", "items": "int"}, "None"),
        (pa.array([[], [("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int32())), {"type": "map", "values": "int"}, "k"),
        (pa.array([None, {"a": 2**40, "b": "x"}]), _PAIR, "1099511627776"),
        (pa.array([0, 1], pa.time64("ns")), {"type": "long", "logicalType": "time-micros"}, "1 ns"),
        (
            pa.array([[0], [253_402_300_800_000_000]], pa.list_(pa.timestamp("us"))),
            {"type": "array", "items": _MICROS},
            "not within the years",
        ),
        (pa.ListArray.from_arrays([0, 1, 2], _not_utf8(b"ok", b"\xff")), {"type": "array", "items": "string"}, "UTF-8"),
        (_not_utf8(b"ok", b"\xff").dictionary_encode(), "string", "UTF-8"),
    ],
)
def test_what_does_not_fit_is_a_bad_row(tmp_path: Path, column: Any, of_type: Any, found: str) -> None:
    """A value that the store's type does not have is told with its row; the others are taken."""
    values, misfits = _arrived(tmp_path / "in.parquet", column, of_type)
    assert (len(values), [(misfit.row, misfit.column) for misfit in misfits]) == (1, [(1, "x")])
    assert found in misfits[0].found


def test_a_record_that_differs_inside_is_refused(tmp_path: Path) -> None:
    """A member that the store's record lacks is not lost without a word."""
    with pytest.raises(InvalidRequest, match="column x") as caught:
        _arrived(tmp_path / "in.parquet", pa.array([{"a": 1, "b": "x", "c": 2}]), _PAIR)
    assert caught.value.code == "column_type"


def test_int96_below_a_microsecond_is_refused(tmp_path: Path) -> None:
    """Digits that microseconds would cut are named with column and row."""
    column = pa.array([1_000, 1_001], pa.timestamp("ns"))
    with pytest.raises(InvalidRequest, match="column x") as caught:
        _arrived(tmp_path / "in.parquet", column, _MICROS, use_deprecated_int96_timestamps=True)
    assert "row 2" in str(caught.value.found)


@pytest.mark.parametrize("damage", ["nothing", "cut", "text", "pages", "encrypted"])
def test_a_file_that_cannot_be_read_is_refused_with_its_name(tmp_path: Path, damage: str) -> None:
    """An empty, cut, foreign, damaged or encrypted file is refused by name."""
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"x": [f"v{n}" for n in range(2_000)]}), path, compression="none", write_page_checksum=True)
    content = path.read_bytes()
    half = len(content) // 2
    damages = {
        "nothing": b"",
        "cut": content[:half],
        "text": b"id,x\n1,2\n",
        "pages": content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :],
        "encrypted": content[:-4] + b"PARE",
    }
    path.write_bytes(damages[damage])
    with pytest.raises(InvalidRequest, match=r"in\.parquet cannot be read") as caught:
        list(read_parquet(str(path), ["x"]))
    assert caught.value.code == "unreadable_input"


def test_a_file_is_read_in_parts_of_row_groups(tmp_path: Path) -> None:
    """The parts of a file together are its rows, each once and with its own number; no row group is one part."""
    path = str(tmp_path / "in.parquet")
    pq.write_table(pa.table({"x": list(range(1_000)), "y": [0] * 1_000}), path, row_group_size=64)
    found = [rows for part in row_groups(path, 1_000) for rows in read_parquet(path, ["none", "x"], part)]
    rows = [(int(n), x) for one in found for n, x in zip(one.lines, one.batch.column("x").to_pylist(), strict=True)]
    assert rows == [(number + 1, number) for number in range(1_000)]
    assert (len(found) > 3, parquet_names(path)) == (True, ["x", "y"])
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), path)
    assert [list(read_parquet(path, ["x"], part)) for part in row_groups(path, 1_000)] == [[]]
