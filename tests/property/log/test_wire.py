"""Raw records and records with schemas, side by side: both readings are those of a definition record by record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from anew.log.interface import LOG_RECORDS, RAW_APPEND, Flaw
from anew.log.wire import RAW, judged, kept_raw, raw_of

KEY_SCHEMA = 3
_BODY = st.binary(max_size=9)
_IN_WIRE_FORM = st.builds(lambda id, body: b"\x00" + id.to_bytes(4, "big") + body, st.integers(0, 5), _BODY)
_BYTES = st.none() | _BODY | _IN_WIRE_FORM
_RAW_RECORD = st.tuples(st.just(RAW), _BYTES, _BYTES)
_DELETE = st.tuples(st.just(0), _BODY, st.none())
_WITH_SCHEMAS = _DELETE | st.tuples(st.integers(0, 2**31 - 1), _BODY, _BODY)
_RECORDS = st.lists(_RAW_RECORD | _WITH_SCHEMAS, max_size=20)


def _kept(records: list[tuple[int, bytes | None, bytes | None]]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "offset": list(range(len(records))),
        "appended_ms": [1_000] * len(records),
        "written_ms": [None] * len(records),
        "origin": [b""] * len(records),
        "key": [key for _, key, _ in records],
        "schema_id": [schema_id for schema_id, _, _ in records],
        "value": [value for _, _, value in records],
        "flaw": [0] * len(records),
    }
    arrays: list[pa.Array[Any]] = [pa.array(columns[f.name], f.type) for f in LOG_RECORDS]
    return pa.RecordBatch.from_arrays(arrays, schema=LOG_RECORDS)


def _id_of(data: bytes) -> int:
    """As Confluent's serialisers write it, a Java int: ids of a registry are above 0, bytes may say otherwise."""
    return int.from_bytes(data[1:5], "big", signed=True)


def _is_wire(data: bytes | None) -> bool:
    return data is not None and len(data) >= 5 and data[0] == 0


def _expected(schema_id: int, key: bytes | None, value: bytes | None) -> tuple[bytes, int, bytes | None, Flaw]:
    if schema_id != RAW:
        return key or b"", schema_id, value, Flaw.NONE
    flaw = Flaw.NONE if value is None or _is_wire(value) else Flaw.VALUE_WITHOUT_HEADER
    if key is None:
        flaw = Flaw.NO_KEY
    elif not _is_wire(key):
        flaw = Flaw.KEY_WITHOUT_HEADER
    elif _id_of(key) != KEY_SCHEMA:
        flaw = Flaw.UNKNOWN_KEY_SCHEMA
    body, id_of_value = (value[5:], _id_of(value)) if value and _is_wire(value) else (value, 0)
    return (key[5:] if key and _is_wire(key) else key or b""), id_of_value, body, flaw


@example([(RAW, None, b"\x00\x80\x00\x00\x00")], 0)
@given(_RECORDS, st.integers(0, 3))
def test_kept_records_are_judged_one_by_one(records: list[Any], skipped: int) -> None:
    """Of any mixture, also of a part of a larger batch, each record is judged by its own bytes."""
    found = judged(_kept(records).slice(min(skipped, len(records))), KEY_SCHEMA)
    rows = [(row["key"], row["schema_id"], row["value"], row["flaw"]) for row in found.to_pylist()]
    assert found.schema == LOG_RECORDS
    assert rows == [_expected(*record) for record in records[skipped:]]


@given(_RECORDS, st.integers(0, 3))
def test_kept_records_are_read_raw_one_by_one(records: list[Any], skipped: int) -> None:
    """Of any mixture, each record has its own bytes, or those of the wire form."""
    found = raw_of(_kept(records).slice(min(skipped, len(records))), KEY_SCHEMA).to_pylist()

    def wire(schema_id: int, body: bytes | None) -> bytes | None:
        return None if body is None else b"\x00" + schema_id.to_bytes(4, "big") + body

    assert [(row["key"], row["value"]) for row in found] == [
        (key, value) if schema_id == RAW else (wire(KEY_SCHEMA, key), wire(schema_id, value))
        for schema_id, key, value in records[skipped:]
    ]


@given(st.lists(st.tuples(_BYTES, _BYTES), max_size=20), st.integers(0, 3))
def test_raw_records_are_kept_as_they_are(pairs: list[tuple[bytes | None, bytes | None]], skipped: int) -> None:
    """What is kept of raw records has their bytes and the marker."""
    columns: dict[str, list[Any]] = {
        "key": [key for key, _ in pairs],
        "value": [value for _, value in pairs],
        "timestamp_ms": [None] * len(pairs),
    }
    batch = pa.RecordBatch.from_pydict(columns, schema=RAW_APPEND).slice(min(skipped, len(pairs)))
    kept = [(row["schema_id"], row["key"], row["value"]) for row in kept_raw(batch).to_pylist()]
    assert kept == [(RAW, key, value) for key, value in pairs[skipped:]]
