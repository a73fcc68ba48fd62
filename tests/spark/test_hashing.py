"""What Spark computes natively equals what nodes and clients compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from anew.core.hashing import key_hashes, origin_hash, row_hashes
from anew.core.rows import ROWS
from anew.core.stamp import BATCH
from anew.spark.session import SparkSession
from anew.spark.stores.frames import spark_schema
from anew.spark.stores.shuffle import Destination
from anew.testing.builders import ORIGIN, a_config

_RANDOM = np.random.default_rng(7)
_KEYS = [
    b"",
    b"\x00",
    "Zürich \N{SNOWMAN} 東京".encode(),
    b"\xff" * 33,
    *(_RANDOM.bytes(int(size)) for size in _RANDOM.integers(0, 70, 300)),
]


def _rows() -> pa.RecordBatch:
    rows: list[dict[str, Any]] = [
        {
            "key": key,
            "value": None if number % 3 == 0 else key[::-1] * (number % 5),
            "schema_id": 0 if number % 3 == 0 else number,
            "time": int(_RANDOM.integers(-(2**62), 2**62)),
            "origin": ORIGIN if number % 2 else BATCH.encoded,
            "append_timed": number % 2 == 1,
            "incarnation": number % 4,
            "feed_partition": number % 24,
            "offset": int(_RANDOM.integers(0, 2**62)),
            "hash": 0,
        }
        for number, key in enumerate(_KEYS)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ROWS)


def test_key_hash_equals_sparks(spark: SparkSession) -> None:
    """Spark's ``xxhash64`` of a key is the key hash of nodes and clients, whatever the key's bytes."""
    rows = spark.createDataFrame([(key,) for key in _KEYS], "key binary").select(F.xxhash64("key").alias("hash"))
    assert [row["hash"] for row in rows.collect()] == key_hashes(pa.array(_KEYS, pa.binary())).view(np.int64).tolist()


def test_row_hash_is_the_chained_hash(spark: SparkSession) -> None:
    """The row hash is Spark's ``xxhash64`` over the columns in chained form; a null value leaves the chain as it is."""
    rows = _rows()
    frame = spark.createDataFrame([tuple(row.values()) for row in rows.to_pylist()], spark_schema(ROWS))
    timed = F.when(F.col("append_timed"), 1).otherwise(0)
    flags = (timed + F.when(F.col("value").isNull(), 2).otherwise(0)).cast("long")
    longs = [F.col("schema_id").cast("long"), F.col("time"), F.xxhash64("origin"), flags]
    stamps = [F.col(name).cast("long") for name in ("incarnation", "feed_partition", "offset")]
    hashed = frame.select(F.xxhash64("key", "value", *longs, *stamps).alias("hash")).collect()
    assert [row["hash"] for row in hashed] == row_hashes(rows).view(np.int64).tolist()
    origins = frame.select(F.xxhash64("origin").alias("origin")).collect()
    assert {row["origin"] for row in origins} == {origin_hash(ORIGIN), origin_hash(BATCH.encoded)}


@pytest.mark.case("stores:H6")
@pytest.mark.parametrize("count", [1, 3, 8, 97])
def test_partition_equals_the_partitioners(spark: SparkSession, count: int) -> None:
    """The task that a rebuild sends a key to is the partition that Spark computes, for any key and count."""
    frame = spark.createDataFrame([(key,) for key in _KEYS], "key binary")
    found = frame.select(F.pmod(F.xxhash64("key"), F.lit(count)).alias("place")).collect()
    placed = Destination.of(a_config(partitions=count).frozen, None, 1).places(pa.array(_KEYS, pa.binary()))
    assert [row["place"] for row in found] == placed.tolist()
