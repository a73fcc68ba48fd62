"""What a function is given of records of each format, with the types that Spark has."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from anew.api.location import LogLocation
from anew.codec.avro import encode_datum, parse_schema
from anew.core.errors import Failed
from anew.core.jobs.inputs import JobInput
from anew.core.topics.topic import TopicFormat
from anew.log.interface import LOG_RECORDS, RAW_RECORDS
from anew.spark.jobs.decoding import InputTask, decoder, frame_schema, json_fields
from anew.spark.session import SparkSession

_NOWHERE = LogLocation(kind="embedded", address="/nowhere")
_AT_MS = 1_400_000_000_123
_KEY = {
    "type": "record",
    "name": "K",
    "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
}
_VALUE: dict[str, Any] = {
    "type": "record",
    "name": "V",
    "fields": [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def _input(**changes: Any) -> JobInput:
    values = {"name": "in", "fabric": "dc-0", "topic": "t", "topic_uid": "u", "partitions": 1, **changes}
    return JobInput(**values)


def _records(*rows: tuple[bytes, int, bytes | None]) -> pa.RecordBatch:
    columns: list[Any] = [
        pa.array(range(len(rows)), pa.int64()),
        pa.array([_AT_MS] * len(rows), pa.int64()),
        pa.nulls(len(rows), pa.int64()),
        pa.array([b""] * len(rows), pa.binary()),
        pa.array([key for key, _, _ in rows], pa.binary()),
        pa.array([number for _, number, _ in rows], pa.int32()),
        pa.array([value for _, _, value in rows], pa.binary()),
        pa.array([0] * len(rows), pa.int8()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LOG_RECORDS)


def _raw(*rows: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    parts = {"offset": range(len(rows)), "timestamp_ms": [_AT_MS] * len(rows)}
    of = {**parts, "key": [key for key, _ in rows], "value": [value for _, value in rows]}
    return pa.RecordBatch.from_arrays([pa.array(of[f.name], f.type) for f in RAW_RECORDS], schema=RAW_RECORDS)


def test_avro_becomes_the_types_that_spark_has() -> None:
    """Times of milliseconds are microseconds; decimals, dates, lists and nulls are kept; a delete has no value."""
    key_schema, schema = parse_schema(json.dumps(_KEY)), parse_schema(json.dumps(_VALUE))
    task = InputTask(_NOWHERE, _input(key_schema=json.dumps(_KEY), schemas={7: json.dumps(_VALUE)}))
    at = datetime(2013, 1, 1, 5, tzinfo=UTC)
    value = {"day": date(2013, 1, 1), "price": Decimal("1.50"), "tags": ["a"], "note": None}
    key = encode_datum(key_schema, {"at": at})
    rows = decoder(task)(_records((key, 7, encode_datum(schema, value)), (key, 0, None)), 3)
    assert rows.schema == to_arrow_schema(from_arrow_schema(rows.schema), timezone="UTC") == frame_schema(task)
    first, second = rows.to_pylist()
    assert (first["key"], first["value"], first["deleted"]) == ({"at": at}, value, False)
    assert (second["value"], second["deleted"]) == (None, True)
    assert (first["timestamp"], first["partition"], first["offset"]) == (
        datetime.fromtimestamp(_AT_MS / 1000, tz=UTC),
        3,
        0,
    )


def test_values_of_older_schemas_are_shown_in_the_newest() -> None:
    """What a field's default says stands in what was written before it."""
    old = '{"type": "record", "name": "V", "fields": [{"name": "a", "type": "int"}]}'
    new = (
        '{"type": "record", "name": "V", "fields": [{"name": "a", "type": "int"}, '
        '{"name": "b", "type": "int", "default": 5}]}'
    )
    task = InputTask(_NOWHERE, _input(key_schema='"string"', schemas={9: old, 3: new}))
    key = encode_datum(parse_schema('"string"'), "k")
    bodies = [
        (key, 9, encode_datum(parse_schema(old), {"a": 1})),
        (key, 3, encode_datum(parse_schema(new), {"a": 2, "b": 3})),
    ]
    assert [row["value"] for row in decoder(task)(_records(*bodies), 0).to_pylist()] == [
        {"a": 1, "b": 5},
        {"a": 2, "b": 3},
    ]
    with pytest.raises(Failed) as caught:
        decoder(task)(_records((key, 4, b"\x00")), 0)
    assert caught.value.code == "input_unreadable"
    assert "schema id 4" in str(caught.value.found)


def test_json_and_bytes(spark: SparkSession) -> None:
    """JSON has its columns, whatever else it has; a key is text; what is no object is named by its place."""
    columns = "user STRING, n INT"
    of = _input(format=TopicFormat.JSON, columns=columns)
    task = InputTask(_NOWHERE, of, json_fields(spark, columns))
    found = decoder(task)(
        _raw((b"k", b'{"n": 3, "user": "ada", "more": [1]}'), (None, None), (b"j", b'{"n": null}')), 0
    )
    assert [row["value"] for row in found.to_pylist()] == [{"user": "ada", "n": 3}, None, {"user": None, "n": None}]
    assert [row["key"] for row in found.to_pylist()] == ["k", None, "j"]
    with pytest.raises(Failed) as caught:
        decoder(task)(_raw((b"k", b'{"n": 3}'), (b"k", b"[1]")), 2)
    assert "partition 2, offset 1" in str(caught.value.found)
    plain = InputTask(_NOWHERE, _input(format=TopicFormat.BYTES))
    assert decoder(plain)(_raw((None, b"\x00\xff")), 0).to_pylist()[0]["value"] == b"\x00\xff"


@pytest.mark.parametrize(
    ("values", "offset"),
    [
        ((b'{"n": 1}{"n": 2}', b""), 0),
        ((b'{"n": 1}\n{"n": 2}', b" "), 0),
        ((b'{"n": 1}', b"null"), 1),
        ((b"null",), 0),
        ((b'{"n": 1}},{"v":{"n": 2}', b'{"n": 3}'), 0),
        ((b'{"n": "one"}',), 0),
    ],
)
def test_a_json_value_is_one_object_and_stays_with_its_key(
    spark: SparkSession, values: tuple[bytes, ...], offset: int
) -> None:
    """Two in one record, none, null, or another type: the record is named, and no value goes to another key."""
    columns = "n INT"
    task = InputTask(_NOWHERE, _input(format=TopicFormat.JSON, columns=columns), json_fields(spark, columns))
    with pytest.raises(Failed) as caught:
        decoder(task)(_raw(*((b"k", value) for value in values)), 0)
    assert (caught.value.code, f"offset {offset}:" in str(caught.value.found)) == ("input_unreadable", True)
