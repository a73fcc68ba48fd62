"""Tables to bodies, and text columns to typed ones, by examples."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from anew.codec.avro import AvroSchema, encode_datum, parse_schema
from anew.codec.vector import Misfit, arrow_schema, cast_columns, decode_table, encode_table
from anew.core.errors import InvalidRequest

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def record(**types: Any) -> AvroSchema:
    """A record schema of these fields."""
    fields = [{"name": name, "type": of_type} for name, of_type in types.items()]
    return parse_schema({"type": "record", "name": "F", "fields": fields})


def texts(**columns: list[str | None]) -> pa.RecordBatch:
    """A batch of text columns."""
    return pa.RecordBatch.from_pydict({name: pa.array(column, pa.string()) for name, column in columns.items()})


def test_columns_are_found_by_name() -> None:
    """Order and further columns of the table do not matter; narrower integers and dictionaries are taken."""
    table = pa.table(
        {
            "other": pa.array([1.5, 2.5]),
            "b": pa.array(["x", "y"]).dictionary_encode(),
            "a": pa.array([1, 2], pa.int16()),
        }
    )
    schema = record(a="long", b="string")
    assert encode_table(schema, table).to_pylist() == [
        encode_datum(schema, {"a": 1, "b": "x"}),
        encode_datum(schema, {"a": 2, "b": "y"}),
    ]


def test_a_primitive_schema_takes_one_column() -> None:
    """One column is the value; two are refused."""
    one = pa.RecordBatch.from_pydict({"k": ["a", ""]})
    assert encode_table(parse_schema("string"), one).to_pylist() == [b"\x02a", b"\x00"]
    with pytest.raises(InvalidRequest) as caught:
        encode_table(parse_schema("string"), pa.RecordBatch.from_pydict({"k": ["a"], "l": ["b"]}))
    assert caught.value.code == "column_count"


@pytest.mark.parametrize("of_type", ["string", "long", {"type": "fixed", "name": "X", "size": 1}])
def test_a_null_that_is_not_allowed_is_named(of_type: Any) -> None:
    """Column and row of the first null are found, also beyond the first step of rows."""
    valid: dict[str, Any] = {"string": "x", "long": 1}
    value = valid.get(of_type, b"x") if isinstance(of_type, str) else b"x"
    table = pa.table({"a": pa.array([value] * 9000 + [None])})
    with pytest.raises(InvalidRequest) as caught:
        encode_table(record(a=of_type), table)
    assert caught.value.code == "null_value"
    assert "row 9000" in caught.value.found
    assert "column a" in caught.value.message


@pytest.mark.parametrize(
    ("of_type", "column", "code"),
    [
        ("int", pa.array([2**40]), "column_type"),
        ("long", pa.array(["1"]), "column_type"),
        ("float", pa.array([0.1]), "column_type"),
        (MILLIS, pa.array([1], pa.timestamp("us")), "column_type"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array(["B"]), "value_misfit"),
        ({"type": "fixed", "name": "X", "size": 2}, pa.array([b"a"]), "value_misfit"),
    ],
)
def test_what_would_be_lost_is_refused(of_type: Any, column: pa.Array[Any], code: str) -> None:
    """No value is narrowed, cut or guessed on the way to bytes."""
    with pytest.raises(InvalidRequest) as caught:
        encode_table(record(a=of_type), pa.table({"a": column}))
    assert caught.value.code == code


def test_a_missing_column_is_named() -> None:
    """The message has the column, the hint the nearest one."""
    with pytest.raises(InvalidRequest) as caught:
        encode_table(record(carrier="string"), pa.table({"carier": ["UA"]}))
    assert (caught.value.code, caught.value.hint) == ("missing_column", "did you mean carier?")


def test_empty_tables_and_empty_records() -> None:
    """No rows make no bodies; a record without fields makes empty ones."""
    assert encode_table(record(a="int"), pa.table({"a": pa.array([], pa.int32())})).to_pylist() == []
    assert decode_table(record(a="int"), pa.array([], pa.binary())).num_rows == 0


def test_text_is_cast() -> None:
    """Each type reads its text; nulls stay where the field allows them."""
    schema = record(
        i="int",
        d=["null", "double"],
        b="boolean",
        t=MILLIS,
        day={"type": "int", "logicalType": "date"},
        e={"type": "enum", "name": "E", "symbols": ["A", "B"]},
        y="bytes",
        f={"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        n={"type": "array", "items": "int"},
    )
    batch = texts(
        i=["-1", "2", "3", "4"],
        d=["1.5", None, "nan", "1e3"],
        b=["true", "false", "True", "false"],
        t=["2013-01-01T05:00:00Z", "2013-01-01 06:00:00+01:00", "2013-01-01 05:00:00.000", "2013-01-01"],
        day=["2013-01-01"] * 4,
        e=["A", "B", "A", "B"],
        y=["/w==", "", "/w==", ""],
        f=["1.5", "100", "0.01", "-1"],
        n=["[1, 2]", "[]", "[3]", "[4]"],
    )
    cast = cast_columns(schema, batch)
    assert cast.misfits == []
    assert cast.batch.schema.equals(arrow_schema(schema))
    plain = cast.batch.to_pydict()
    assert plain["i"] == [-1, 2, 3, 4]
    assert plain["d"][1] is None
    assert [at.isoformat()[:16] for at in plain["t"]] == ["2013-01-01T05:00"] * 3 + ["2013-01-01T00:00"]
    assert plain["y"] == [b"\xff", b"", b"\xff", b""]
    assert [str(fare) for fare in plain["f"]] == ["1.50", "100.00", "0.01", "-1.00"]
    assert plain["n"] == [[1, 2], [], [3], [4]]


def test_rows_that_do_not_fit_are_told_and_left_out() -> None:
    """Every misfit is listed by row and column; the other rows are kept in order."""
    schema = record(i="int", t=MILLIS)
    stamps: list[str | None] = ["2013-01-01T05:00Z"] * 6
    stamps[4] = "soon"
    cast = cast_columns(schema, texts(i=["1", "x", None, "4", "0x5", "99999999999"], t=stamps))
    assert cast.batch.column("i").to_pylist() == [1, 4]
    assert cast.kept.to_pylist() == [True, False, False, True, False, False]
    assert cast.misfits == [
        Misfit(1, "i", "text 'x'", "int"),
        Misfit(2, "i", "null", "int"),
        Misfit(4, "i", "text '0x5'", "int"),
        Misfit(4, "t", "text 'soon'", "timestamp-millis"),
        Misfit(5, "i", "text '99999999999'", "int"),
    ]


def test_typed_columns_are_cast_value_by_value() -> None:
    """A wider number fits where its value does."""
    batch = pa.RecordBatch.from_pydict({"i": pa.array([1, 2**40, 3]), "x": pa.array([0.5, 1e300, float("inf")])})
    cast = cast_columns(record(i="int", x="float"), batch)
    assert [(misfit.row, misfit.column) for misfit in cast.misfits] == [(1, "i"), (1, "x")]
    assert cast.batch.column("x").to_pylist() == [0.5, float("inf")]


def test_a_missing_column_needs_a_default() -> None:
    """A default fills it; being nullable is not enough."""
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"], "default": None}]
    schema = parse_schema({"type": "record", "name": "F", "fields": fields})
    assert cast_columns(schema, texts(a=["1"])).batch.to_pylist() == [{"a": 1, "b": None}]
    with pytest.raises(InvalidRequest) as caught:
        cast_columns(record(a="int", b=["null", "string"]), texts(a=["1"]))
    assert caught.value.code == "missing_column"
    assert caught.value.found == "columns a"


def test_a_column_of_another_family_is_refused() -> None:
    """No integer becomes a string, no number a boolean."""
    for of_type in ("string", "boolean", "bytes"):
        with pytest.raises(InvalidRequest) as caught:
            cast_columns(record(a=of_type), pa.RecordBatch.from_pydict({"a": [1]}))
        assert caught.value.code == "column_type"


def test_types_without_a_column_are_refused() -> None:
    """Unions of several types and recursive records have no Arrow type."""
    recursive = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
    for of_type in (["int", "string"], recursive):
        with pytest.raises(InvalidRequest) as caught:
            arrow_schema(record(a=of_type))
        assert caught.value.code == "no_arrow_type"
