"""Between records with schemas and their bytes as they are: the wire form, as Confluent's serialisers have it.

A key or value in wire form is the byte 0, the schema's id (4 bytes, big-endian) and the Avro body. Kafka keeps that
form; a log without such headers keeps bodies and ids apart, and for a raw record the marker `RAW` in the place of the
id. So one topic may hold records of both kinds, and both logs say the same of each:

- A raw read gives a record with schemas in wire form, and a raw record as it was appended.
- A read gives a raw record as Kafka would: with schemas where both parts are in wire form, else with its `Flaw`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.arrow import binary_lengths, join_binary, split_binary
from anew.log.interface import LOG_RECORDS, RAW_APPEND, RAW_RECORDS, Flaw

RAW = -1
"""Stands for the schema's id of a raw record where these are kept apart from bytes; no schema has it."""
NO_RAW_RECORDS = pa.RecordBatch.from_pylist([], schema=RAW_RECORDS)
HEADER_BYTES = 5

_Column: TypeAlias = "pa.Array[Any]"
_Flags = npt.NDArray[np.bool_]


def kept_raw(records: pa.RecordBatch) -> pa.RecordBatch:
    """Raw records as a log keeps them beside records with schemas.

    Args:
        records: Columns `RAW_APPEND`.

    Returns:
        Columns `anew.log.interface.APPEND_RECORDS`, with the key null where there is none.
    """
    count = records.num_rows
    columns: dict[str, _Column] = {
        "written_ms": pa.nulls(count, pa.int64()),
        "origin": _empty(count),
        "key": records.column("key"),
        "schema_id": pa.array(np.full(count, RAW, np.int32)),
        "value": records.column("value"),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def judged(kept: pa.RecordBatch, key_schema_id: int) -> pa.RecordBatch:
    """What a read gives of kept records (columns `LOG_RECORDS`, raw ones with `RAW`): as Kafka would of their bytes."""
    is_raw: _Flags = kept.column("schema_id").to_numpy() == RAW
    if not is_raw.any():
        return kept
    key, value = kept.column("key"), kept.column("value")
    key_ids, bodies, key_sound = _taken_apart(key, is_raw)
    value_ids, values, value_sound = _taken_apart(value, is_raw)
    has_value = _valid(value)
    flaws = np.zeros(kept.num_rows, np.int8)
    # In the order of `kafka.c`: what is found out later counts.
    flaws[is_raw & has_value & ~value_sound] = Flaw.VALUE_WITHOUT_HEADER
    flaws[is_raw & key_sound & (key_ids != key_schema_id)] = Flaw.UNKNOWN_KEY_SCHEMA
    flaws[is_raw & ~key_sound] = Flaw.KEY_WITHOUT_HEADER
    flaws[is_raw & ~_valid(key)] = Flaw.NO_KEY
    schema_ids = np.where(is_raw, value_ids, kept.column("schema_id").to_numpy()).astype(np.int32)
    columns: dict[str, _Column] = {
        **{field.name: kept.column(field.name) for field in LOG_RECORDS},
        "key": bodies.fill_null(pa.scalar(b"", pa.binary())),
        "schema_id": pa.array(schema_ids),
        "value": values,
        "flaw": pa.array(flaws),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=LOG_RECORDS)


def raw_of(kept: pa.RecordBatch, key_schema_id: int) -> pa.RecordBatch:
    """The bytes of kept records (columns `LOG_RECORDS`, raw ones with `RAW`), columns `RAW_RECORDS`."""
    count = kept.num_rows
    if count == 0:
        return NO_RAW_RECORDS
    schema_ids: npt.NDArray[np.int32] = kept.column("schema_id").to_numpy()
    is_raw: _Flags = schema_ids == RAW
    key, value = kept.column("key"), kept.column("value")
    if not is_raw.all():
        key = _behind(np.full(count, key_schema_id, np.int32), key, is_raw)
        value = _behind(schema_ids, value, is_raw)
    return pa.RecordBatch.from_arrays(
        [kept.column("offset"), kept.column("appended_ms"), key, value], schema=RAW_RECORDS
    )


def has_raw_columns(records: pa.RecordBatch) -> bool:
    """Whether a batch is of raw records to append."""
    return records.schema.names == RAW_APPEND.names


def _taken_apart(column: _Column, is_raw: _Flags) -> tuple[npt.NDArray[np.int32], _Column, _Flags]:
    """The ids in wire headers (0 where there is none), the column without them, and where there is one.

    Args:
        column: Binary, may have nulls.
        is_raw: Where values are bytes as they are; others stay as they are.
    """
    ids = np.zeros(len(column), np.int32)
    found = is_raw & (binary_lengths(column) >= HEADER_BYTES)
    rows: npt.NDArray[np.int64] = np.flatnonzero(found)
    heads, bodies = split_binary(column.take(pa.array(rows, pa.int64())), HEADER_BYTES)
    sound = heads[:, 0] == 0
    found[rows[~sound]] = False
    ids[rows[sound]] = np.ascontiguousarray(heads[sound, 1:]).view(">i4").ravel()
    if not sound.all():
        kept: npt.NDArray[np.int64] = np.flatnonzero(sound)
        bodies = bodies.take(pa.array(kept, pa.int64()))
    return ids, pc.replace_with_mask(column, pa.array(found), bodies), found


def _behind(ids: npt.NDArray[np.int32], bodies: _Column, is_raw: _Flags) -> _Column:
    """Bodies behind their wire headers, nulls as nulls; raw values as they are."""
    heads = np.zeros((len(ids), HEADER_BYTES), np.uint8)
    heads[:, 1:] = ids.astype(">i4").view(np.uint8).reshape(-1, 4)
    headers: Any = pa.Array.from_buffers(pa.binary(HEADER_BYTES), len(ids), [None, pa.py_buffer(heads.tobytes())])
    joined = join_binary(headers.cast(pa.binary()), bodies)
    whole: _Column = pc.if_else(pa.array(is_raw | ~_valid(bodies)), bodies, joined)
    return whole


def _valid(column: _Column) -> _Flags:
    valid: _Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _empty(count: int) -> _Column:
    """A binary column of empty values."""
    offsets = np.zeros(count + 1, np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets.data), pa.py_buffer(b"")])
