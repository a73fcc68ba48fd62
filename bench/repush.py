"""The Spark stage of a whole repush beside bare Spark on the same rows, on both paths.

Ours, general path: base and log scan → partition → sort → merge → base files, verified and counted. Ours,
co-partitioned path: only feed records are shuffled and merged into the sorted base files. Bare Spark: the same rows as
Parquet → the same shuffle → the same sort → (a) nothing is written, (b) Spark's own Parquet writer.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from anew.codec.compression import compressor
from anew.core.rows import ROWS
from anew.deepstore.open import open_deep_store
from anew.spark.build import Codecs, Place, build_repush
from anew.spark.frames import partitioned_and_sorted, spark_schema, unit_expression
from anew.spark.session import session_for_queries, spark_session
from bench.measuring import Outcome, machine, take_turns, timed
from bench.synthetic import KEY_BYTES, PARTITIONS, VALUE_BYTES, BenchStore, feed_rows, make_bench_store

DEFAULT_RECORDS = 2_000_000
COPARTITIONED_SHARE, COPARTITIONED_FROM, COPARTITIONED_TO = 0.05, 4, (4, 8)
"""The co-partitioned path is measured with 5 % updates, from 4 partitions to 4 and to 8."""


def run(folder: Path, records: int) -> Outcome:
    """Measure with stores of so many records below a folder that is empty."""
    for name in ("general", "copartitioned"):
        (folder / name).mkdir()
    with spark_session(None, {}) as started:
        spark = session_for_queries(started)
        figures, ratios = _general(spark, folder / "general", records)
        shutil.rmtree(folder / "general")
        more_figures, more_ratios = _copartitioned(spark, folder / "copartitioned", records)
    stated = {"records": records, "key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES}
    return Outcome("repush", {**stated, **figures, **more_figures, **machine()}, {**ratios, **more_ratios})


Found = tuple[dict[str, Any], dict[str, float]]


def _general(spark: SparkSession, folder: Path, records: int) -> Found:
    bench = make_bench_store(folder, records)
    bare = _Bare(spark, bench, _write_feed(bench), folder / "bare")
    seconds = take_turns(
        {
            "ours": lambda: _ours(spark, bench, "general", PARTITIONS),
            "noop": lambda: bare.noop(PARTITIONS),
            "parquet": lambda: bare.parquet(PARTITIONS),
        }
    )
    ratios = {
        "ours_to_noop": round(seconds["noop"] / seconds["ours"], 3),
        "ours_to_parquet": round(seconds["parquet"] / seconds["ours"], 3),
    }
    return {"updates": bench.updates, "partitions": PARTITIONS, **_speeds(seconds, records)}, ratios


def _copartitioned(spark: SparkSession, folder: Path, records: int) -> Found:
    bench = make_bench_store(folder, records, COPARTITIONED_SHARE, COPARTITIONED_FROM)
    bare = _Bare(spark, bench, _write_feed(bench), folder / "bare")
    sides: dict[str, Callable[[], float]] = {}
    for target in COPARTITIONED_TO:
        sides[f"copartitioned_to_{target}"] = partial(_ours, spark, bench, "copartitioned", target)
        sides[f"parquet_to_{target}"] = partial(bare.parquet, target)
    seconds = take_turns(sides)
    ratios = {
        f"copartitioned_{COPARTITIONED_FROM}_to_{target}_to_parquet": round(
            seconds[f"parquet_to_{target}"] / seconds[f"copartitioned_to_{target}"], 3
        )
        for target in COPARTITIONED_TO
    }
    return {"copartitioned_updates": bench.updates, **_speeds(seconds, records)}, ratios


def _speeds(seconds: dict[str, float], records: int) -> dict[str, Any]:
    return {f"{name}_seconds": round(value, 3) for name, value in seconds.items()} | {
        f"{name}_records_per_s": round(records / value) for name, value in seconds.items()
    }


_NUMBERS = itertools.count()


def _ours(spark: SparkSession, bench: BenchStore, path: Literal["general", "copartitioned"], partitions: int) -> float:
    directory = f"v2-{next(_NUMBERS)}"
    place = Place(bench.deep_store, bench.log, bench.deep_store, directory)
    plan, codec = bench.plan(path, partitions), compressor("none")
    took = timed(lambda: build_repush(spark, plan, place, Codecs(codec, codec), bench.manifest, bench.store.feeds))
    shutil.rmtree(Path(bench.deep_store) / directory)
    return took


class _Bare:
    """What a Spark user runs on the same rows."""

    def __init__(self, spark: SparkSession, bench: BenchStore, feed_file: str, target: Path) -> None:
        self._spark, self._bench, self._feed_file, self._target = spark, bench, feed_file, target

    def noop(self, partitions: int) -> float:
        """Seconds to shuffle and sort."""
        ordered = self._ordered(partitions)
        return timed(lambda: ordered.write.format("noop").mode("overwrite").save())

    def parquet(self, partitions: int) -> float:
        """Seconds to shuffle, sort and write Parquet."""
        ordered = self._ordered(partitions)
        return timed(lambda: ordered.write.mode("overwrite").parquet(str(self._target)))

    def _ordered(self, partitions: int) -> DataFrame:
        config = self._bench.store.config.frozen.model_copy(update={"partitions": partitions})
        rows = _bare(self._spark, self._bench, self._feed_file)
        return partitioned_and_sorted(rows, unit_expression(config), partitions)


def _bare(spark: SparkSession, bench: BenchStore, feed_file: str) -> DataFrame:
    store = open_deep_store(bench.deep_store)
    files = [store.absolute(file.path) for file in bench.manifest.files]
    return spark.read.schema(spark_schema(ROWS)).parquet(*files, store.absolute(feed_file))


def _write_feed(bench: BenchStore) -> str:
    """The feed's rows as Parquet, for the side that has no reader of the log."""
    path = Path(bench.deep_store) / "bare" / "feed.parquet"
    path.parent.mkdir()
    pq.write_table(pa.Table.from_batches(list(feed_rows(bench)), schema=ROWS), path, compression="none")
    return "bare/feed.parquet"
