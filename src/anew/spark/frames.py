"""The columns that flow through a rebuild's query, and the one expression that says where a key goes."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from anew.core.rows import ROWS, SORT_COLUMNS
from anew.core.store import Frozen


class Kind(IntEnum):
    """What a row of the query is."""

    BASE = 0
    """A record of the source's base; its value is compressed by the source's codec."""
    RAW = 1
    """A record of a feed or of a push; its value is an Avro body."""
    REPORT = 2
    """No record: what a scanning task says of itself (JSON in ``value``). Rows, not accumulators: a task that ran twice
    is counted once."""


_KIND: Any = pa.field("kind", pa.int8(), nullable=False)
_COLUMNS: list[Any] = [*ROWS, _KIND]
SCANNED = pa.schema(_COLUMNS)
"""`ROWS` and the kind."""

_SPARK_TYPES = {
    pa.binary(): BinaryType(),
    pa.int8(): ByteType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema of flat columns."""
    return StructType([StructField(field.name, _SPARK_TYPES[field.type], field.nullable) for field in schema])


def report_row(report: dict[str, Any]) -> pa.RecordBatch:
    """A scanning task's report as a row."""
    row: dict[str, Any] = {
        "key": b"",
        "value": json.dumps(report).encode(),
        "schema_id": 0,
        "time": 0,
        "origin": b"",
        "append_timed": False,
        "incarnation": 0,
        "feed_partition": 0,
        "offset": 0,
        "hash": 0,
        "kind": int(Kind.REPORT),
    }
    return pa.RecordBatch.from_pylist([row], schema=SCANNED)


def partition_expression(config: Frozen) -> Column:
    """The partition id of the ``key`` column, in [0, partitions)."""
    return checked_partition(F.pmod(F.xxhash64("key"), F.lit(config.partitions)).cast("int"), config.partitions)


def checked_partition(partition: Column, count: int) -> Column:
    """The partition id, or an error that names the key (hex) where it is null or not in [0, count).

    ``repartitionById`` takes ids silently modulo n and null as 0, so that an id out of range must fail here.
    """
    in_range = partition.isNotNull() & (partition >= 0) & (partition < count)
    message = F.concat(F.lit("the partitioner gave no valid partition for key "), F.hex("key"))
    return F.when(in_range, partition).otherwise(F.raise_error(message).cast("int"))


def partitioned_and_sorted(scanned: DataFrame, config: Frozen) -> DataFrame:
    """The scanned rows, one Spark partition per partition of the new version, in the order that the merge wants."""
    with_partition = scanned.withColumn("pid", partition_expression(config))
    return with_partition.repartitionById(config.partitions, F.col("pid")).sortWithinPartitions(*SORT_COLUMNS)
