"""A store as a DataFrame: the current version's base merged with its feeds, decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from anew.codec.avro import AvroSchema, decode_datum, encode_datum, parse_schema
from anew.codec.compression import Compressor
from anew.codec.vector import arrow_schema, decode_table
from anew.core.arrow import bytes_list, take
from anew.core.blocks import merge_blocks
from anew.core.dropping import DropFloors, drop
from anew.core.feed import Feeds
from anew.core.reduce import WinnerReducer
from anew.core.stores.plan import Plan
from anew.core.stores.store import newest_schema_id
from anew.segments.manifest import Manifest
from anew.spark.stores.build import Place, repush_blocks
from anew.spark.stores.frames import Kind, with_held
from anew.spark.stores.shuffle import delivered, received
from anew.spark.worker import begin_task, required_build


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """What crosses to the executors: schemas as texts, the base's codec, and the version's floors."""

    key_schema: str
    schemas: dict[int, str]
    codec: Compressor
    floors: DropFloors

    @property
    def newest(self) -> int:
        """The id of the schema that all values are shown in."""
        return newest_schema_id(self.schemas)


def read_rows(
    spark: SparkSession, plan: Plan, place: Place, source: Manifest, feeds: Feeds, task: DecodeTask
) -> DataFrame:
    """Columns ``key``, ``value`` (structs for record schemas) and ``written_at`` (ms): what the plan's source holds.

    Args:
        spark: The session to read with.
        plan: A repush's plan: its source says what is read.
        place: Where the source lies; nothing is written.
        source: The manifest of the plan's source version.
        feeds: The feeds that it applies.
        task: How to decode.
    """
    config = plan.target.config
    ordered = delivered(repush_blocks(spark, plan, place, source, feeds), config.sub_partitions)
    return ordered.mapInArrow(_decoder(task), from_arrow_schema(output_schema(task)))


def output_schema(task: DecodeTask) -> pa.Schema:
    """The Arrow schema of what `read_rows` gives."""
    fields: list[Any] = [
        pa.field("key", _type_of(parse_schema(task.key_schema)), nullable=False),
        pa.field("value", _type_of(parse_schema(task.schemas[task.newest]))),
        pa.field("written_at", pa.int64(), nullable=False),
    ]
    return pa.schema(fields)


def _type_of(schema: AvroSchema) -> pa.DataType:
    columns = arrow_schema(schema)
    fields: list[Any] = list(columns)
    return pa.struct(fields) if schema.fields else columns.field(0).type


def _decoder(task: DecodeTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    build = required_build()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = begin_task(build)
        reducer = WinnerReducer(rehash=_no_hashes)
        for rows in merge_blocks(map(_flagged, received(batches, context.partitionId(), []))):
            yield _decoded(drop(reducer.feed(rows), task.floors).rows, task)
        yield _decoded(drop(reducer.finish(), task.floors).rows, task)

    return run


def _flagged(rows: pa.RecordBatch) -> pa.RecordBatch:
    return with_held(rows, rows.column("kind").to_numpy())


def _decoded(rows: pa.RecordBatch, task: DecodeTask) -> pa.RecordBatch:
    live = take(rows, rows.column("value").is_valid().to_numpy(zero_copy_only=False).nonzero()[0])
    schema = output_schema(task)
    if live.num_rows == 0:
        return pa.RecordBatch.from_pylist([], schema=schema)
    newest = parse_schema(task.schemas[task.newest])
    columns: list[Any] = [
        _column(parse_schema(task.key_schema), live.column("key")),
        _column(newest, _bodies(live, task, newest)),
        live.column("time"),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(schema: AvroSchema, bodies: Any) -> Any:
    table = decode_table(schema, bodies)
    return table.to_struct_array() if schema.fields else table.column(0)


def _bodies(rows: pa.RecordBatch, task: DecodeTask, newest: AvroSchema) -> Any:
    """The values as bodies of the newest schema: uncompressed, and written again where an older schema wrote them."""
    codec = task.codec
    schemas = {number: parse_schema(text) for number, text in task.schemas.items()}
    base = rows.column("kind").to_numpy() == int(Kind.BASE)
    bodies: list[bytes] = []
    numbers: list[Any] = rows.column("schema_id").to_pylist()
    for value, number, compressed in zip(bytes_list(rows.column("value")), numbers, base, strict=True):
        body = codec.decompress(value) if compressed else value
        if number != task.newest:
            body = encode_datum(newest, decode_datum(schemas[number], body, newest))
        bodies.append(body)
    return pa.array(bodies, pa.binary())


def _no_hashes(rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A read keeps no account, so that raised winners need no new hash."""
    return np.zeros(rows.num_rows, dtype=np.uint64)
