"""Claims about schemas, datums and tables over generated ones."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from anew.codec.avro import AvroSchema, decode_datum, encode_datum, parse_schema
from anew.codec.plain import from_plain, to_plain
from anew.codec.vector import arrow_schema, cast_columns, decode_table, encode_table

MODEST = settings(derandomize=True, max_examples=120, deadline=None)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
LIMIT = 2**55 // 2 // 1000  # milliseconds that stay within the years of datetime

ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 63, 64, -64, -65, 2**63 - 1, -(2**63)])
instants = st.integers(-LIMIT, LIMIT).map(lambda ms: EPOCH + datetime.timedelta(milliseconds=ms))
micros = st.integers(-LIMIT * 1000, LIMIT * 1000).map(lambda us: EPOCH + datetime.timedelta(microseconds=us))
cents = st.integers(-99999, 99999).map(lambda n: decimal.Decimal(n).scaleb(-2))

# Type and the values of it; the first ones have kernels of their own.
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", ints),
    ("long", longs),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=80)),
    ("bytes", st.binary(max_size=80)),
    ({"type": "enum", "symbols": ["RED", "GREEN", "BLUE"]}, st.sampled_from(["RED", "GREEN", "BLUE"])),
    ({"type": "long", "logicalType": "timestamp-millis"}, instants),
    ({"type": "long", "logicalType": "timestamp-micros"}, micros),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, cents),
    ({"type": "fixed", "size": 3}, st.binary(min_size=3, max_size=3)),
    ({"type": "array", "items": "long"}, st.lists(longs, max_size=3)),
    (
        {"type": "map", "values": ["null", "string"]},
        st.dictionaries(st.text(max_size=3), st.none() | st.text(max_size=3)),
    ),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[AvroSchema, list[dict[str, Any]]]:
    """A record schema of one to six fields, nullable in either order or not, and rows of it."""
    fields: list[dict[str, Any]] = []
    values: dict[str, st.SearchStrategy[Any]] = {}
    for index, (of_type, datums) in enumerate(draw(st.lists(st.sampled_from(LEAVES), min_size=1, max_size=6))):
        name = f"f{index}"
        named = {**of_type, "name": f"T{index}"} if isinstance(of_type, dict) and "symbols" in of_type else of_type
        if isinstance(of_type, dict) and of_type["type"] == "fixed":
            named = {**of_type, "name": f"T{index}"}
        shape = draw(st.integers(0, 2))
        full = named if shape == 0 else ["null", named] if shape == 1 else [named, "null"]
        fields.append({"name": name, "type": full})
        values[name] = datums if shape == 0 else st.none() | datums
    rows = draw(st.lists(st.fixed_dictionaries(values), max_size=8))
    return parse_schema({"type": "record", "name": "F", "fields": fields}), rows


def as_table(schema: AvroSchema, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows as typed columns."""
    pairs = [{name: list(v.items()) if isinstance(v, dict) else v for name, v in row.items()} for row in rows]
    columns = [pa.array([row[one.name] for row in pairs], one.type) for one in arrow_schema(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def fastavro_body(schema: AvroSchema, datum: Any) -> bytes:
    """What fastavro writes by itself."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, json.loads(schema.canonical), datum)
    return out.getvalue()


@MODEST
@given(tables())
def test_a_table_is_encoded_as_fastavro_encodes_its_rows(case: tuple[AvroSchema, list[dict[str, Any]]]) -> None:
    """Columns and rows give the same bytes, and the bytes the same columns."""
    schema, rows = case
    table = as_table(schema, rows)
    bodies = encode_table(schema, table)
    assert bodies.to_pylist() == [fastavro_body(schema, row) for row in rows]
    assert bodies.to_pylist() == [encode_datum(schema, row) for row in rows]
    assert decode_table(schema, bodies).equals(table)


@MODEST
@given(tables(), st.integers(1, 4))
def test_slices_and_chunks_do_not_matter(case: tuple[AvroSchema, list[dict[str, Any]]], chunk_rows: int) -> None:
    """A table in chunks and a slice of a batch give the bytes of their rows."""
    schema, rows = case
    table = as_table(schema, rows)
    whole = encode_table(schema, table).to_pylist()
    parts = [table.slice(start, chunk_rows) for start in range(0, len(rows), chunk_rows)]
    chunked = pa.Table.from_batches(parts, schema=table.schema)
    assert encode_table(schema, chunked).to_pylist() == whole
    assert encode_table(schema, table.slice(1)).to_pylist() == whole[1:]


@MODEST
@given(st.lists(longs, min_size=1), st.sampled_from(["null-first", "null-last", "never"]))
def test_long_columns_of_every_width(values: list[int], shape: str) -> None:
    """Varints of every length stand side by side."""
    of_type = {"null-first": ["null", "long"], "null-last": ["long", "null"], "never": "long"}[shape]
    schema = parse_schema(of_type)
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.int64())})
    assert encode_table(schema, batch).to_pylist() == [fastavro_body(schema, value) for value in values]


@MODEST
@given(tables())
def test_the_json_face_goes_round(case: tuple[AvroSchema, list[dict[str, Any]]]) -> None:
    """Datum → JSON text → datum is the datum, and the JSON is plain."""
    schema, rows = case
    for row in rows:
        text = json.dumps(to_plain(schema, row), allow_nan=False)
        assert from_plain(schema, json.loads(text)) == row
        assert decode_datum(schema, encode_datum(schema, from_plain(schema, json.loads(text)))) == row


@MODEST
@given(tables())
def test_fitting_columns_are_cast_to_themselves(case: tuple[AvroSchema, list[dict[str, Any]]]) -> None:
    """Typed columns of the right types pass unchanged."""
    schema, rows = case
    table = as_table(schema, rows)
    cast = cast_columns(schema, table)
    assert cast.misfits == []
    assert cast.batch.equals(table)


@MODEST
@given(st.lists(st.none() | st.text("0123456789-+.eExX ", max_size=6) | ints.map(str), max_size=30))
def test_text_that_is_no_number_is_found(texts: list[str | None]) -> None:
    """Exactly the rows that Python reads as plain integers in range are kept."""

    def fits(text: str | None) -> bool:
        digits = text is not None and text.removeprefix("-").isdigit()
        return digits and text is not None and -(2**31) <= int(text) < 2**31

    schema = parse_schema({"type": "record", "name": "F", "fields": [{"name": "a", "type": "int"}]})
    cast = cast_columns(schema, pa.RecordBatch.from_pydict({"a": pa.array(texts, pa.string())}))
    assert cast.batch.column("a").to_pylist() == [int(text) for text in texts if text is not None and fits(text)]
    assert [misfit.row for misfit in cast.misfits] == [row for row, text in enumerate(texts) if not fits(text)]
