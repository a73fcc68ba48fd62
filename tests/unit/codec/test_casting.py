"""Text as values of every type, and values that stand in columns without an Arrow type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from anew.codec.avro import decode_datum, parse_schema
from anew.codec.carried import AS_JSON
from anew.codec.plain import to_plain
from anew.codec.vector import cast_columns, encode_table

_CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
_TIME_MICROS = {"type": "long", "logicalType": "time-micros"}
_TIME_MILLIS = {"type": "int", "logicalType": "time-millis"}
_DATE = {"type": "int", "logicalType": "date"}


def _cast(of_type: Any, column: Any, metadata: Any = None) -> tuple[list[Any], list[int]]:
    """The values that arrive, as JSON shows them, and the rows that do not fit."""
    schema = parse_schema({"type": "record", "name": "V", "fields": [{"name": "x", "type": of_type}]})
    fields = pa.schema([pa.field("x", column.type, metadata=metadata)])
    cast = cast_columns(schema, pa.RecordBatch.from_arrays([column], schema=fields))
    bodies: Any = encode_table(schema, cast.batch)
    values = [to_plain(schema, decode_datum(schema, body))["x"] for body in bodies.to_pylist()]
    return values, [misfit.row for misfit in cast.misfits]


@pytest.mark.parametrize(
    ("of_type", "texts", "expected", "bad"),
    [
        (
            _TIME_MICROS,
            ["01:02:03.000004", "01:02", "24:00:00", "1:2:3", "01:02:03Z"],
            ["01:02:03.000004", "01:02:00"],
            3,
        ),
        (_TIME_MILLIS, ["01:02:03.004", "01:02:03.0040", "01:02:03.0001"], ["01:02:03.004"] * 2, 1),
        (_MILLIS, ["2020-01-01T00:00:00.123000Z", "2020-01-01T00:00:00.0001Z"], ["2020-01-01T00:00:00.123Z"], 1),
        (_MILLIS, ["2020-01-01", "2020-02-30", "0000-01-01"], ["2020-01-01T00:00:00Z"], 2),
        (_LOCAL, ["2020-01-01T00:00:00.5", "2020-01-01T00:00:00Z"], ["2020-01-01T00:00:00.500"], 1),
        (_DATE, ["0001-01-01", "9999-12-31", "10000-01-01", "2020-02-30"], ["0001-01-01", "9999-12-31"], 2),
        ("double", ["1e308", "-Infinity", "NaN", "1e400", "0x1p3", " 1"], [1e308, "-Infinity", "NaN"], 3),
        ("float", ["0.5", "1e39", "1e400"], [0.5], 2),
        (_CENTS, ["1.2", "1e2", "1.234", "123456789.00", "NaN"], ["1.20", "100.00"], 3),
        ("long", ["-7", "+7", "7.0", "99999999999999999999"], [-7], 3),
        ("bytes", ["YWI=", "a"], ["YWI="], 1),
    ],
)
def test_text_is_read_exactly_or_not_at_all(of_type: Any, texts: list[str], expected: list[Any], bad: int) -> None:
    """A text that the type holds exactly is taken; one that would be cut, rounded or guessed at is a bad row."""
    values, rows = _cast(of_type, pa.array(texts))
    assert (values, rows) == (expected, list(range(len(expected), len(expected) + bad)))


@pytest.mark.parametrize(
    ("of_type", "column", "expected", "bad"),
    [
        (["null", "int", "string"], pa.array(["5", "x", None, ""]), [5, "x", None, ""], []),
        (["null", "string", "int"], pa.array(["5"]), ["5"], []),
        (["null", {"type": "array", "items": "int"}, "boolean"], pa.array(["[1]", "true", "x"]), [[1], True], [2]),
        (["int", "string"], pa.array([5, 2**40]), [5], [1]),
        (["int", "string"], pa.array([None, 5]), [5], [0]),
        (["null", "float", "double"], pa.array([0.5, 0.1, None]), [0.5, 0.1, None], []),
        (["null", _MILLIS, "string"], pa.array([5]), [], [0]),
        (["null", _MICROS, "string"], pa.array([5], pa.timestamp("us")), ["1970-01-01T00:00:00.000005Z"], []),
    ],
)
def test_a_union_takes_the_branch_that_fits(of_type: Any, column: Any, expected: list[Any], bad: list[int]) -> None:
    """Typed values keep their type, text takes the first branch whose text it is, and nothing is rounded."""
    assert _cast(of_type, column) == (expected, bad)


def test_json_keeps_numbers_and_texts_apart() -> None:
    """Of a column whose texts are JSON, "5" is a text and 5 a number, whichever branch comes first."""
    for of_type in (["null", "int", "string"], ["string", "int", "null"]):
        column = pa.array(['"5"', "5", "null", None, "{}"])
        assert _cast(of_type, column, AS_JSON) == (["5", 5, None, None], [4])


def test_a_default_stands_in_for_a_column_without_an_arrow_type() -> None:
    """A missing union of several types takes its default in each row."""
    field = {"name": "x", "type": ["int", "string"], "default": 7}
    schema = parse_schema({"type": "record", "name": "V", "fields": [field, {"name": "y", "type": "string"}]})
    cast = cast_columns(schema, pa.RecordBatch.from_pydict({"y": ["a", "b"]}))
    bodies: Any = encode_table(schema, cast.batch)
    assert [decode_datum(schema, body)["x"] for body in bodies.to_pylist()] == [7, 7]
