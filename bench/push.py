"""The Spark stage of a full push beside bare Spark on the same Parquet: read → shuffle → sort → Parquet.

Ours also casts to the store's schemas, encodes Avro, hashes each row, refuses keys that come twice, and verifies.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from anew.api.location import LogLocation
from anew.codec.avro import parse_schema
from anew.codec.compression import compressor
from anew.codec.vector import decode_table
from anew.core.feed import NOWHERE
from anew.core.stores.planning import Snapshot, plan_push
from anew.deepstore.open import open_deep_store
from anew.rebuild.columns import task_of_files
from anew.rebuild.inputs import PushRequest, find_input
from anew.segments.manifest import SubPartition
from anew.segments.provenfile import read_proven
from anew.spark.session import session_for_queries, spark_session
from anew.spark.stores.build import Codecs, Place, build_push
from anew.spark.stores.outputs import BaseTarget
from anew.testing.builders import a_config, a_store
from anew.testing.clock import NOON_MS
from bench.measuring import Bench, Measured, Repeats, take_turns, timed, times_as_fast
from bench.synthetic import PARTITIONS, SEED

_FILES = 4
_TEXT_BYTES = 40
_KEY_SCHEMA = json.dumps({"type": "record", "name": "K", "fields": [{"name": "id", "type": "string"}]})
_VALUE_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "V",
    "fields": [
        {"name": "amount", "type": "long"},
        {"name": "score", "type": "double"},
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "text", "type": "string"},
    ],
}
_NUMBERS = itertools.count()


class _Sides:
    """Both sides over one input."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self._spark, self._folder = spark, folder
        self._inputs = _write_input(folder / "input", rows)
        self._store = a_store(
            config=a_config(partitions=PARTITIONS, compression="none"),
            key_schema=_KEY_SCHEMA,
            schemas={1: json.dumps(_VALUE_SCHEMA)},
        )
        table = pq.read_table(folder / "input", columns=["amount"])
        self._expected = (rows, int(pc.sum(table.column("amount")).as_py()))

    def ours(self) -> float:
        """Seconds of a push's build stage."""
        found = find_input(PushRequest(tuple(map(str, self._inputs)), ("id",)))
        plan = plan_push(Snapshot(self._store, {}, {}, {}, None, NOON_MS), found.push, found.bytes, NOWHERE)
        uris = {Path(path).as_uri(): number for number, path in enumerate(sorted(found.push.paths))}
        deep_store, directory = str(self._folder / "deep"), f"v{next(_NUMBERS)}"
        place = Place(deep_store, LogLocation(kind="embedded", address=""), BaseTarget(deep_store, directory))
        parts: list[SubPartition] = []

        def build() -> None:
            task = task_of_files(self._store, found.push, uris, NOON_MS)
            built = build_push(self._spark, plan, place, Codecs(None, compressor("none")), task)
            parts.extend(built.sub_partitions)

        took = timed(build)
        self._check(deep_store, parts)
        shutil.rmtree(deep_store)
        return took

    def bare(self) -> float:
        """Seconds of the same rows through bare Spark."""
        rows = self._spark.read.parquet(*map(str, self._inputs))
        placed = rows.withColumn("place", F.pmod(F.xxhash64("id"), F.lit(PARTITIONS)).cast("int"))
        ordered = placed.repartitionById(PARTITIONS, F.col("place")).sortWithinPartitions("id")
        target = self._folder / "theirs"
        took = timed(lambda: ordered.write.mode("overwrite").parquet(str(target)))
        amounts = pq.read_table(target, columns=["amount"]).column("amount")
        self._compare(len(amounts), int(pc.sum(amounts).as_py()))
        return took

    def _check(self, deep_store: str, parts: Sequence[SubPartition]) -> None:
        store, schema = open_deep_store(deep_store), parse_schema(json.dumps(_VALUE_SCHEMA))
        count = amounts = 0
        for file in (file for part in parts for file in part.files):
            for rows in read_proven(store, file):
                count += rows.num_rows
                values: Any = rows.column("value")
                amounts += int(pc.sum(decode_table(schema, values).column("amount")).as_py())
        self._compare(count, amounts)

    def _compare(self, *found: int) -> None:
        if found != self._expected:
            raise AssertionError(f"the rows differ: {found}, the input has {self._expected}")


def _write_input(folder: Path, rows: int) -> list[Path]:
    """Parquet files of rows with unique keys in random order."""
    random = np.random.default_rng(SEED)
    ids = random.permutation(rows)
    letters = random.integers(97, 123, rows * _TEXT_BYTES, dtype=np.uint8)
    text: Any = pa.Array.from_buffers(
        pa.string(),
        rows,
        [
            None,
            pa.py_buffer(np.arange(0, rows * _TEXT_BYTES + 1, _TEXT_BYTES, dtype=np.int32).tobytes()),
            pa.py_buffer(letters.tobytes()),
        ],
    )
    cities: Any = pa.array(["Zürich", "Basel", None, "Bern"]).take(random.integers(0, 4, rows))
    numbers: Any = pa.array(ids)
    columns: dict[str, Any] = {
        "id": pc.binary_join_element_wise("key-", pc.utf8_lpad(numbers.cast(pa.string()), 12, "0"), ""),
        "amount": pa.array(random.integers(-(1 << 40), 1 << 40, rows)),
        "score": pa.array(random.random(rows)),
        "city": cities,
        "text": text,
    }
    table = pa.table(columns)
    folder.mkdir(parents=True)
    paths = [folder / f"{number}.parquet" for number in range(_FILES)]
    for number, path in enumerate(paths):
        first, last = rows * number // _FILES, rows * (number + 1) // _FILES
        pq.write_table(table.slice(first, last - first), path)
    return paths


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with inputs of so many rows."""
    found = []
    with spark_session(None, {}) as started:
        spark = session_for_queries(started)
        for size in sizes:
            sides = _Sides(spark, folder / str(size), size)
            seconds = take_turns({"ours": sides.ours, "bare": sides.bare}, repeats)
            found.append(Measured(size, seconds, figures={"files": _FILES, "partitions": PARTITIONS}))
            shutil.rmtree(folder / str(size))
    return found


BENCHES = (
    Bench(
        "push",
        "a full push's Spark stage from Parquet beside bare Spark: read → shuffle → sort → Parquet of the same rows",
        "rows",
        (500_000, 1_000_000, 2_000_000),
        (1_000, 2_000),
        (times_as_fast("ours ÷ bare", "ours", "bare", 0.6),),
        run,
        SEED,
    ),
)
