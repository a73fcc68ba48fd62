"""The columns that flow through a rebuild's query, and the one expression that says where a key goes."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
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

from anew.core.copartition import Groups
from anew.core.partition import is_custom
from anew.core.partitioning import partitioner_of
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
_HELD: Any = pa.field("held", pa.bool_(), nullable=False)
HELD = pa.schema([*SCANNED, _HELD])
"""`SCANNED` and whether the row is of the source's base, which a winner inherits from its key's other rows (R12)."""

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


def no_rows(spark: SparkSession) -> DataFrame:
    """No row, columns `SCANNED`.

    Not createDataFrame: it makes this session the thread's active one, and Spark then refuses to register the log's
    source in any other session of the process.
    """
    return spark.range(0).select(*(F.lit(None).cast(f.dataType).alias(f.name) for f in spark_schema(SCANNED)))


def with_held(rows: pa.RecordBatch, kinds: npt.NDArray[np.int8]) -> pa.RecordBatch:
    """Rows of the columns `SCANNED` with the column that `HELD` adds."""
    return pa.RecordBatch.from_arrays([*rows.columns, pa.array(kinds == int(Kind.BASE))], schema=HELD)


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
    if is_custom(config.partitioner):
        return checked_partition(_custom_partition(config)(F.col("key"), F.col("kind")), config.partitions)
    return checked_partition(F.pmod(F.xxhash64("key"), F.lit(config.partitions)).cast("int"), config.partitions)


def sub_partition_expression(factor: int) -> Column:
    """The sub-partition of the ``key`` column, in [0, factor); see `anew.core.partition.sub_partitions_of`."""
    return F.lit(0) if factor == 1 else F.pmod(F.xxhash64(F.lit(1), "key"), F.lit(factor)).cast("int")


def unit_expression(config: Frozen) -> Column:
    """``partition * amplification_factor + sub-partition`` of the ``key`` column: what one task makes."""
    factor = config.amplification_factor
    return partition_expression(config) * F.lit(factor) + sub_partition_expression(factor)


def group_expression(config: Frozen, groups: Groups) -> Column:
    """The group of the ``key`` column under a target's configuration; see `anew.core.copartition`."""
    partition = F.pmod(partition_expression(config), F.lit(groups.partitions))
    sub = F.pmod(sub_partition_expression(config.amplification_factor), F.lit(groups.sub_partitions))
    return (partition * F.lit(groups.sub_partitions) + sub).cast("int")


def _custom_partition(config: Frozen) -> Any:
    # Spark evaluates these hints, and Arrow's arrays are generic for the type checker alone.
    def place(keys: pa.Array, kinds: pa.Array) -> pa.Array:  # type: ignore[type-arg]  # see above
        # A scan's report has no key that a partitioner of one's own could be asked about.
        records = (kinds.to_numpy(zero_copy_only=False) != int(Kind.REPORT)).nonzero()[0]
        bodies: Any = keys.cast(pa.binary()).take(records)
        placed = np.zeros(len(keys), dtype=np.int32)
        placed[records] = partitioner_of(config).of_all(bodies)
        return pa.array(placed)

    make: Any = F.arrow_udf  # type: ignore[attr-defined]  # decorated away from the checker's sight
    return make(place, IntegerType())


def checked_partition(partition: Column, count: int) -> Column:
    """The partition id, or an error that names the key (hex) where it is null or not in [0, count).

    ``repartitionById`` takes ids silently modulo n and null as 0, so that an id out of range must fail here.
    """
    in_range = partition.isNotNull() & (partition >= 0) & (partition < count)
    message = F.concat(F.lit("the partitioner gave no valid partition for key "), F.hex("key"))
    return F.when(in_range, partition).otherwise(F.raise_error(message).cast("int"))


def partitioned_and_sorted(scanned: DataFrame, place: Column, count: int) -> DataFrame:
    """The scanned rows in ``count`` Spark partitions by ``place``, in the order that the merge wants."""
    with_place = scanned.withColumn("pid", place)
    return with_place.repartitionById(count, F.col("pid")).sortWithinPartitions(*SORT_COLUMNS)
