"""Records of a topic as typed columns: what a job's function is given."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from anew.api.location import LogLocation
from anew.codec.arrow_types import arrow_schema
from anew.codec.avro import AvroSchema, decode_datum, encode_datum, parse_schema
from anew.codec.jsonvalue import is_json_object
from anew.codec.vector import decode_table
from anew.core.arrow import bytes_list
from anew.core.errors import Failed
from anew.core.jobs.inputs import JobInput
from anew.core.stores.store import newest_schema_id
from anew.core.topics.topic import TopicFormat

_NO_COLUMNS = b""
_MEMBER = "v"
TIMESTAMP_MS = "timestamp_ms"
"""Of raw records."""
KEY, VALUE, DELETED, TIMESTAMP, PARTITION, OFFSET = "key", "value", "deleted", "timestamp", "partition", "offset"
_FLAW_HINT = "records that cannot be read stop a job: mend the producer, and begin behind them"


@dataclass(frozen=True, slots=True)
class InputTask:
    """What crosses to the tasks that read an input.

    Attributes:
        location: Where the log is.
        of: The input.
        value_fields: Of format ``json``: the columns of the value, as an Arrow schema's bytes.
    """

    location: LogLocation
    of: JobInput
    value_fields: bytes = b""

    @property
    def json_schema(self) -> pa.Schema:
        """The members that are read of a JSON value."""
        return pa.ipc.read_schema(pa.py_buffer(self.value_fields))


def json_fields(spark: SparkSession, columns: str | None) -> bytes:
    """The columns of a JSON value, written as Spark's DDL, as `InputTask.value_fields`."""
    if columns is None:
        return _NO_COLUMNS
    parsed = spark.createDataFrame([], columns).schema
    return bytes(to_arrow_schema(parsed, timezone="UTC").serialize())


def frame_schema(task: InputTask) -> pa.Schema:
    """The Arrow schema of an input's frame.

    ``key`` and ``value`` have the types of their schemas (a record is a struct); ``value`` is null where ``deleted``;
    ``timestamp`` is when the record was written, as its writer or else the log says.
    """
    key, value = _types(task)
    fields: list[Any] = [
        pa.field(KEY, key),
        pa.field(VALUE, value),
        pa.field(DELETED, pa.bool_(), nullable=False),
        pa.field(TIMESTAMP, pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field(PARTITION, pa.int32(), nullable=False),
        pa.field(OFFSET, pa.int64(), nullable=False),
    ]
    # As Spark has it: times in microseconds, and no other types than it knows.
    return to_arrow_schema(from_arrow_schema(pa.schema(fields)), timezone="UTC")


def decoder(task: InputTask) -> Callable[[pa.RecordBatch, int], pa.RecordBatch]:
    """What makes rows of an input's frame of records that the log gave, of one partition.

    Raises, when it is called:
        Failed: ``input_unreadable``, with partition, offset and what is wrong.
    """
    schema = frame_schema(task)
    decode = _decode_avro(task) if task.of.format is TopicFormat.AVRO else _decode_raw(task)

    def run(records: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        key, value, at_ms = decode(records, partition)
        count = records.num_rows
        columns: list[Any] = [
            key,
            value,
            pc.is_null(records.column("value")),
            pc.multiply(at_ms, 1000).cast(pa.timestamp("us", tz="UTC")),
            pa.array(np.full(count, partition, dtype=np.int32)),
            records.column("offset"),
        ]
        return pa.RecordBatch.from_arrays([_as(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)

    return run


def times_of(records: pa.RecordBatch) -> pa.Array[Any]:
    """When records were written, in ms, as the column ``timestamp`` of an input's frame says it.

    Args:
        records: Of a read, with schemas or raw.
    """
    if TIMESTAMP_MS in records.schema.names:
        return records.column(TIMESTAMP_MS)
    return pc.coalesce(records.column("written_ms"), records.column("appended_ms"))


_Decoded = tuple[Any, Any, Any]
"""Keys, values, and times in ms."""


def _decode_avro(task: InputTask) -> Callable[[pa.RecordBatch, int], _Decoded]:
    of = task.of
    key_schema, schemas = parse_schema(str(of.key_schema)), {n: parse_schema(text) for n, text in of.schemas.items()}
    newest_id = newest_schema_id(of.schemas)
    newest = schemas[newest_id]

    def run(records: pa.RecordBatch, partition: int) -> _Decoded:
        flawed = records.column("flaw").to_numpy().nonzero()[0]
        if flawed.size:
            raise _unreadable(of, partition, records, int(flawed[0]), "it is not of the topic's format")
        live = records.column("value").is_valid()
        bodies = _bodies(records.filter(live), of, partition, schemas, newest_id)
        values = _spread(_column(newest, bodies), live)
        return _column(key_schema, records.column("key")), values, times_of(records)

    return run


def _bodies(
    records: pa.RecordBatch, of: JobInput, partition: int, schemas: dict[int, AvroSchema], newest_id: int
) -> pa.Array[Any]:
    """Avro bodies of the newest schema; those of older ones are written again."""
    ids = records.column("schema_id").to_numpy()
    if (ids == newest_id).all():
        return records.column("value")
    unknown = np.flatnonzero(~np.isin(ids, list(schemas)))
    if unknown.size:
        row = int(unknown[0])
        raise _unreadable(of, partition, records, row, f"its schema id {ids[row]} is none of {sorted(schemas)}")
    bodies = bytes_list(records.column("value"))
    for row in np.flatnonzero(ids != newest_id).tolist():
        datum = decode_datum(schemas[int(ids[row])], bodies[row], schemas[newest_id])
        bodies[row] = encode_datum(schemas[newest_id], datum)
    return pa.array(bodies, pa.binary())


def _decode_raw(task: InputTask) -> Callable[[pa.RecordBatch, int], _Decoded]:
    of = task.of

    def run(records: pa.RecordBatch, partition: int) -> _Decoded:
        at_ms = times_of(records)
        if of.format is TopicFormat.BYTES:
            return records.column("key"), records.column("value"), at_ms
        live = records.column("value").is_valid()
        parsed = _parse_json(records.filter(live), task, partition)
        try:
            keys = records.column("key").cast(pa.string())
        except pa.ArrowInvalid as error:
            raise _unreadable(of, partition, records, 0, f"a key from there on is not UTF-8: {error}") from error
        return keys, _spread(parsed, live), at_ms

    return run


def _parse_json(records: pa.RecordBatch, task: InputTask, partition: int) -> pa.Array[Any]:
    """Values as structs: all at once, and one by one only to say which of them is no JSON object of these columns."""
    schema = task.json_schema
    if records.num_rows == 0:
        return pa.array([], pa.struct(list(schema)))
    values = bytes_list(records.column("value"))
    try:
        parsed = _read_json(values, schema)
        if len(parsed) == len(values) and parsed.null_count == 0:
            return parsed
    except pa.ArrowInvalid:
        pass
    for row, value in enumerate(values):
        try:
            found = _read_json([value], schema)
            fits, why = len(found) == 1 and found.null_count == 0, "its value is not one JSON object"
        except pa.ArrowInvalid as error:
            fits, why = False, str(error)
        if not fits:
            raise _unreadable(task.of, partition, records, row, why)
    raise AssertionError("each value can be read, and all of them together cannot")


def _read_json(values: list[bytes], schema: pa.Schema) -> pa.Array[Any]:
    """Values as structs, one for each: as members of objects, because Arrow's reader breaks down at a bare null.

    Raises:
        pa.ArrowInvalid: One is not one JSON object, or does not fit the columns.
    """
    # What follows a value would otherwise be a member beside it, and would be ignored.
    if not all(map(is_json_object, values)):
        raise pa.ArrowInvalid("its value is not one JSON object")
    wrapped = pa.schema([pa.field(_MEMBER, pa.struct(list(schema)))])
    text = b"\n".join(b'{"%s":%s}' % (_MEMBER.encode(), value.replace(b"\n", b" ")) for value in values)
    table = _parsed_json(text, wrapped)
    return table.column(_MEMBER).combine_chunks()


def _parsed_json(text: bytes, schema: pa.Schema) -> pa.Table:
    options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    block = pa_json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1 << 20))
    return pa_json.read_json(io.BytesIO(text), read_options=block, parse_options=options)


def _types(task: InputTask) -> tuple[pa.DataType, pa.DataType]:
    of = task.of
    if of.format is TopicFormat.BYTES:
        return pa.binary(), pa.binary()
    if of.format is TopicFormat.JSON:
        return pa.string(), pa.struct(list(task.json_schema))
    return _type_of(parse_schema(str(of.key_schema))), _type_of(parse_schema(of.schemas[newest_schema_id(of.schemas)]))


def _type_of(schema: AvroSchema) -> pa.DataType:
    columns = arrow_schema(schema)
    return pa.struct(list(columns)) if schema.fields else columns.field(0).type


def _column(schema: AvroSchema, bodies: Any) -> Any:
    table = decode_table(schema, bodies)
    return table.to_struct_array() if schema.fields else table.column(0)


def _spread(values: Any, live: Any) -> Any:
    """The values of live rows at their places, null at the others."""
    if len(values) == len(live):
        return values
    places = np.cumsum(live.to_numpy(zero_copy_only=False)) - 1
    return values.take(pa.array(places, mask=~live.to_numpy(zero_copy_only=False)))


def _as(column: Any, wanted: pa.DataType) -> Any:
    return column if column.type == wanted else column.cast(wanted)


def _unreadable(of: JobInput, partition: int, records: pa.RecordBatch, row: int, why: str) -> Failed:
    return Failed(
        "input_unreadable",
        f"a record of the input {of.name} cannot be read",
        found=f"{of.topic}, partition {partition}, offset {records.column('offset')[row]}: {why}",
        expected=f"records of format {of.format.value}",
        hint=_FLAW_HINT,
    )
