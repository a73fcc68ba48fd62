"""The Spark stage of a whole repush beside what Spark does with the same rows.

Ours, general path: base and log scan → partition → sort → merge → base files, verified and counted. Ours,
co-partitioned path: feed records are merged into the sorted base files. Bare Spark: the same rows as Parquet → the same
shuffle → the same sort → (a) nothing is written, (b) Spark's own Parquet writer. By hand: what a Spark user writes for
the same job: the newest row of each key by a window, then Parquet.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from anew.codec.compression import compressor
from anew.core.hashing import total
from anew.core.ledger import Entry, Ledger
from anew.core.rows import ROWS, SORT_COLUMNS
from anew.deepstore.open import open_deep_store
from anew.spark.session import session_for_queries, spark_session
from anew.spark.stores.build import Codecs, Place, build_repush
from anew.spark.stores.frames import spark_schema
from anew.spark.stores.outputs import BaseTarget
from bench.measuring import Bench, Measured, Repeats, take_turns, timed, times_as_fast
from bench.synthetic import (
    KEY_BYTES,
    PARTITIONS,
    SEED,
    UPDATES_SHARE,
    VALUE_BYTES,
    BenchStore,
    feed_rows,
    make_bench_store,
)

COPARTITIONED_SHARE, COPARTITIONED_FROM, COPARTITIONED_TO = 0.05, 4, (4, 8)
"""The co-partitioned path is measured with 5 % updates, from 4 partitions to 4 and to 8."""
_RULE = ("time", "origin", "append_timed", "incarnation", "feed_partition", "offset")
_NUMBERS = itertools.count()


class Sides:
    """The sides over one store, each checked to have worked on the same rows."""

    def __init__(self, spark: SparkSession, bench: BenchStore) -> None:
        """Put the feed's rows beside the base as Parquet, for the sides that have no reader of the log."""
        self._spark, self._bench = spark, bench
        self._target = Path(bench.deep_store) / "theirs"
        feed = Path(bench.deep_store) / "bare" / "feed.parquet"
        feed.parent.mkdir()
        pq.write_table(pa.Table.from_batches(list(feed_rows(bench)), schema=ROWS), feed, compression="none")
        store = open_deep_store(bench.deep_store)
        self._inputs = [store.absolute(file.path) for file in bench.manifest.files] + [str(feed)]
        self.ledger = Ledger()

    def ours(self, path: Literal["general", "copartitioned"], partitions: int) -> float:
        """Seconds of a repush's build stage."""
        bench, directory = self._bench, f"v2-{next(_NUMBERS)}"
        place = Place(bench.deep_store, bench.log, BaseTarget(bench.deep_store, directory))
        plan, codec = bench.plan(path, partitions), compressor("none")
        began: list[Ledger] = []

        def build() -> None:
            built = build_repush(self._spark, plan, place, Codecs(codec, codec), bench.manifest, bench.feeds)
            began.append(built.ledger)

        took = timed(build)
        shutil.rmtree(Path(bench.deep_store) / directory)
        self.ledger = began[0]
        return took

    def noop(self, partitions: int) -> float:
        """Seconds to shuffle and sort."""
        ordered = self._ordered(partitions)
        return timed(lambda: ordered.write.format("noop").mode("overwrite").save())

    def parquet(self, partitions: int) -> float:
        """Seconds to shuffle, sort and write Parquet."""
        return self._written(self._ordered(partitions), self.ledger.read)

    def by_hand(self, partitions: int) -> float:
        """Seconds of the job as a Spark user writes it, with a session as Spark gives it."""
        session = self._spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", str(partitions))
        newest = Window.partitionBy("key").orderBy(*(F.col(name).desc() for name in _RULE))
        ranked = self._rows(session).withColumn("rank", F.row_number().over(newest))
        return self._written(ranked.where("rank = 1").drop("rank"), self.ledger.written)

    def _written(self, rows: DataFrame, expected: Entry) -> float:
        """Seconds to write; what was written is what ours read, or wrote."""
        took = timed(lambda: rows.write.mode("overwrite").parquet(str(self._target)))
        hashes = pq.read_table(self._target, columns=["hash"]).column("hash").combine_chunks().to_numpy()
        found = Entry(count=len(hashes), hash=total(hashes))
        if found != expected:
            raise AssertionError(f"the sides differ: they have {found}, ours {expected}")
        return took

    def _ordered(self, partitions: int) -> DataFrame:
        placed = self._rows(self._spark).withColumn("place", F.pmod(F.xxhash64("key"), F.lit(partitions)).cast("int"))
        return placed.repartitionById(partitions, F.col("place")).sortWithinPartitions(*SORT_COLUMNS)

    def _rows(self, session: SparkSession) -> DataFrame:
        return session.read.schema(spark_schema(ROWS)).parquet(*self._inputs)


Make = Callable[[Sides], dict[str, Callable[[], float]]]


@dataclass(frozen=True, slots=True)
class _Setting:
    """Sides over a store with that share of updates and so many partitions."""

    make: Make
    updates_share: float
    partitions: int


def _measure(*settings: _Setting) -> Callable[[Path, Sequence[int], Repeats], list[Measured]]:
    def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
        found = []
        with spark_session(None, {}) as started:
            spark = session_for_queries(started)
            for size in sizes:
                seconds: dict[str, list[float]] = {}
                for setting in settings:
                    at = folder / "store"
                    bench = make_bench_store(at, size, setting.updates_share, setting.partitions)
                    seconds |= take_turns(setting.make(Sides(spark, bench)), repeats)
                    shutil.rmtree(at)
                found.append(Measured(size, seconds, figures={"key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES}))
        return found

    return run


def _general(sides: Sides) -> dict[str, Callable[[], float]]:
    return {
        "ours": partial(sides.ours, "general", PARTITIONS),
        "noop": partial(sides.noop, PARTITIONS),
        "parquet": partial(sides.parquet, PARTITIONS),
    }


def _copartitioned(sides: Sides) -> dict[str, Callable[[], float]]:
    turns: dict[str, Callable[[], float]] = {}
    for target in COPARTITIONED_TO:
        turns[f"to_{target}"] = partial(sides.ours, "copartitioned", target)
        turns[f"parquet_to_{target}"] = partial(sides.parquet, target)
    return turns


def _by_hand(path: Literal["general", "copartitioned"], partitions: int) -> Make:
    return lambda sides: {
        path: partial(sides.ours, path, partitions),
        f"by_hand_{path}": partial(sides.by_hand, partitions),
    }


_SIZES, _QUICK_SIZES = (500_000, 1_000_000, 2_000_000), (1_000, 2_000)
_OF_GENERAL = (UPDATES_SHARE, PARTITIONS)
_OF_COPARTITIONED = (COPARTITIONED_SHARE, COPARTITIONED_FROM)

BENCHES = (
    Bench(
        "repush",
        "a repush's Spark stage, general path, beside bare Spark: shuffle and sort, then (a) nothing, (b) Parquet",
        "records",
        _SIZES,
        _QUICK_SIZES,
        (
            times_as_fast("ours ÷ bare (a)", "ours", "noop", 0.65),
            times_as_fast("ours ÷ bare (b)", "ours", "parquet", 1.15),
        ),
        _measure(_Setting(_general, *_OF_GENERAL)),
        SEED,
    ),
    Bench(
        "repush-copartitioned",
        "a repush's Spark stage, co-partitioned path, 5 % updates, beside bare Spark with Parquet",
        "records",
        _SIZES,
        _QUICK_SIZES,
        tuple(
            times_as_fast(f"{COPARTITIONED_FROM} → {target} ÷ bare (b)", f"to_{target}", f"parquet_to_{target}", 2.5)
            for target in COPARTITIONED_TO
        ),
        _measure(_Setting(_copartitioned, *_OF_COPARTITIONED)),
        SEED,
    ),
    Bench(
        "repush-handwritten",
        "a repush's Spark stage, both paths, beside the same job by hand: row_number() over a window, then Parquet",
        "records",
        _SIZES,
        _QUICK_SIZES,
        (
            times_as_fast("general ÷ by hand", "general", "by_hand_general", 1.25),
            times_as_fast("co-partitioned ÷ by hand", "copartitioned", "by_hand_copartitioned", 3.0),
        ),
        _measure(
            _Setting(_by_hand("general", PARTITIONS), *_OF_GENERAL),
            _Setting(_by_hand("copartitioned", COPARTITIONED_FROM), *_OF_COPARTITIONED),
        ),
        SEED,
    ),
)
