"""The Spark stage of a whole repush beside bare Spark on the same rows.

Ours: base and log scan → partition → sort → merge → base files, verified and counted. Bare Spark: the same rows as
Parquet → the same shuffle → the same sort → (a) nothing is written, (b) Spark's own Parquet writer.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from anew.core.rows import ROWS
from anew.deepstore.open import open_deep_store
from anew.spark.build import Place, build_repush
from anew.spark.frames import partitioned_and_sorted, spark_schema
from anew.spark.session import session_for_queries, spark_session
from bench.measuring import Outcome, machine, take_turns, timed
from bench.synthetic import KEY_BYTES, PARTITIONS, VALUE_BYTES, BenchStore, feed_rows, make_bench_store

DEFAULT_RECORDS = 2_000_000


def run(folder: Path, records: int) -> Outcome:
    """Measure with a store of so many records below a folder that is empty."""
    bench = make_bench_store(folder, records)
    feed_file = _write_feed(bench)
    with spark_session(None, {}) as started:
        spark = session_for_queries(started)
        numbers = itertools.count()
        seconds = take_turns(
            {
                "ours": lambda: _ours(spark, bench, f"v2-{next(numbers)}"),
                "noop": lambda: _noop(spark, bench, feed_file),
                "parquet": lambda: _parquet(spark, bench, feed_file, folder / "bare"),
            }
        )
    figures = {
        "records": records,
        "updates": bench.updates,
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "partitions": PARTITIONS,
        **{f"{name}_seconds": round(value, 3) for name, value in seconds.items()},
        **{f"{name}_records_per_s": round(records / value) for name, value in seconds.items()},
        **machine(),
    }
    ratios = {
        "ours_to_noop": round(seconds["noop"] / seconds["ours"], 3),
        "ours_to_parquet": round(seconds["parquet"] / seconds["ours"], 3),
    }
    return Outcome("repush", figures, ratios)


def _ours(spark: SparkSession, bench: BenchStore, directory: str) -> float:
    place = Place(bench.deep_store, bench.log, bench.deep_store, directory)
    plan = bench.plan()
    took = timed(lambda: build_repush(spark, plan, place, bench.manifest, bench.store.feeds))
    shutil.rmtree(Path(bench.deep_store) / directory)
    return took


def _noop(spark: SparkSession, bench: BenchStore, feed_file: str) -> float:
    ordered = partitioned_and_sorted(_bare(spark, bench, feed_file), bench.store.config)
    return timed(lambda: ordered.write.format("noop").mode("overwrite").save())


def _parquet(spark: SparkSession, bench: BenchStore, feed_file: str, target: Path) -> float:
    ordered = partitioned_and_sorted(_bare(spark, bench, feed_file), bench.store.config)
    return timed(lambda: ordered.write.mode("overwrite").parquet(str(target)))


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
