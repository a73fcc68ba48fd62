"""A scan of a log range on Kafka as a repush does it, beside Spark's own Kafka connector reading the same range.

Ours reads, judges, stamps and hashes each record, sorts and packs for the shuffle, and accounts for every split. The
connector's read gives rows to nobody (``noop``): tuned, with headers as well (ours reads them), and as it comes.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from anew.api.location import LogLocation
from anew.core.arrow import bytes_list
from anew.core.blocks import unpack
from anew.core.feed import Feeds
from anew.core.stores.plan import LogSplit
from anew.log.interface import TopicSpec, topic_partition
from anew.log.open import open_log
from anew.spark.session import session_for_queries, spark_session
from anew.spark.stores.logsource import LogScan, group_splits
from anew.spark.stores.scan import Scan, scan_blocks
from anew.spark.stores.shuffle import Destination
from anew.testing.builders import a_feed
from bench.brokers import add_connector, check_connector, running_broker
from bench.measuring import Bench, Claim, Measured, Repeats, take_turns, timed, times_as_fast
from bench.serving import now_ms
from bench.synthetic import KEY_BYTES, PARTITIONS, SEED, VALUE_BYTES, append_all, bench_config, random_bytes

TUNED: Mapping[str, str] = {
    "kafka.max.poll.records": "10000",
    "kafka.fetch.max.bytes": str(50 << 20),
    "kafka.max.partition.fetch.bytes": str(8 << 20),
}
"""Options that are said to make the connector fast; which setting is faster depends on how much there is to read."""
_FEED_PARTITIONS = 4
_SPLIT_RECORDS = 5_000_000
_WIRE_HEADER_BYTES = 5
ROOMY = {"spark.driver.memory": "4g"}
"""The connector keeps what it fetched of each partition that it ever read: Spark's default of 1 GiB is too little."""


def read_topic(spark: SparkSession, log: LogLocation, topic: str, splits: Sequence[LogSplit]) -> DataFrameReader:
    """Spark's connector over ranges of a topic, with its settings as they come."""
    assigned = json.dumps({topic: [split.partition for split in splits]})
    begins = json.dumps({topic: {str(split.partition): split.begin for split in splits}})
    ends = json.dumps({topic: {str(split.partition): split.end for split in splits}})
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", log.address)
    return reader.option("assign", assigned).option("startingOffsets", begins).option("endingOffsets", ends)


class _Sides:
    """The sides over one topic, checked to read the same records."""

    def __init__(self, spark: SparkSession, location: LogLocation, records: int) -> None:
        """Fill the topic."""
        self._spark, self._location = spark, location
        random = np.random.default_rng(SEED)
        keys, values = random_bytes(random, records, KEY_BYTES), random_bytes(random, records, VALUE_BYTES)
        with contextlib.closing(open_log(location, clock=now_ms)) as log:
            made = log.create_topic(TopicSpec(f"scanned{records}_rt", f"uid-{records}", _FEED_PARTITIONS))
            feed = a_feed(partitions=_FEED_PARTITIONS)
            self._feed = feed.model_copy(update={"topic": made.name, "topic_uid": made.uid})
            append_all(log, self._feed, keys, values)
            ends = [log.offsets(topic_partition(self._feed, p)).end for p in range(_FEED_PARTITIONS)]
        self._splits = [LogSplit(feed=self._feed.id, partition=p, begin=0, end=end) for p, end in enumerate(ends)]
        found, expected = _sum_of_blocks(self._blocks()), _sum_of_messages(self._reader().load())
        if found != expected or found[0] != records:
            raise AssertionError(f"the sides differ: the connector reads {expected}, ours {found}")

    def ours(self) -> float:
        """Seconds of the scan stage of a repush, up to what the shuffle would take."""
        return _to_nobody(self._blocks())

    def connector(self, options: Mapping[str, str]) -> float:
        """Seconds of the connector's read of the same range."""
        return _to_nobody(self._reader().options(**options).load())

    def _blocks(self) -> DataFrame:
        log = LogScan(self._location, Feeds((self._feed,), (1,)), {}, False)
        tasks = group_splits(self._splits, _SPLIT_RECORDS, self._spark.sparkContext.defaultParallelism)
        destination = Destination.of(bench_config(PARTITIONS).frozen, None, len(self._splits))
        return scan_blocks(self._spark, Scan("", log, tuple(tuple(task) for task in tasks)), destination)

    def _reader(self) -> DataFrameReader:
        return read_topic(self._spark, self._location, self._feed.topic, self._splits)


def _to_nobody(rows: DataFrame) -> float:
    return timed(lambda: rows.write.format("noop").mode("overwrite").save())


def _sum_of_blocks(blocks: DataFrame) -> tuple[int, int]:
    """The number of records, and the sum of checksums of their keys and values; the tasks add up, not the driver."""

    def sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = checksum = 0
        for batch in batches:
            for constants, packed in zip(bytes_list(batch[0]), bytes_list(batch[1]), strict=True):
                if constants is not None:
                    rows = unpack(constants, packed)
                    pairs = zip(bytes_list(rows.column("key")), bytes_list(rows.column("value")), strict=True)
                    count, checksum = count + rows.num_rows, checksum + sum(zlib.crc32(k + v) for k, v in pairs)
        yield pa.RecordBatch.from_pydict({"count": [count], "checksum": [checksum]})

    found = blocks.select("constants", "rows").mapInArrow(sums, "count long, checksum long").collect()
    return sum(row["count"] for row in found), sum(row["checksum"] for row in found)


def _sum_of_messages(messages: DataFrame) -> tuple[int, int]:
    """The same of Kafka's messages, without their wire headers."""
    bodies = (F.substring(name, _WIRE_HEADER_BYTES + 1, max(KEY_BYTES, VALUE_BYTES)) for name in ("key", "value"))
    found = messages.agg(F.count("*"), F.coalesce(F.sum(F.crc32(F.concat(*bodies))), F.lit(0))).first()
    assert found is not None
    return int(found[0]), int(found[1])


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with so many records in the topic."""
    with running_broker(folder) as log, spark_session(None, ROOMY) as started:
        spark = session_for_queries(started)
        add_connector(spark)
        return [_measure(_Sides(spark, log, size), size, repeats) for size in sizes]


def _measure(sides: _Sides, records: int, repeats: Repeats) -> Measured:
    turns: dict[str, Callable[[], float]] = {
        "ours": sides.ours,
        "connector": partial(sides.connector, TUNED),
        "connector, with headers": partial(sides.connector, {**TUNED, "includeHeaders": "true"}),
        "connector as it comes": partial(sides.connector, {}),
    }
    figures = {"key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES, "partitions": _FEED_PARTITIONS}
    return Measured(records, take_turns(turns, repeats), figures=figures)


def _with_headers(found: Sequence[Measured]) -> float:
    return found[-1].median("connector, with headers") / found[-1].median("ours")


BENCHES = (
    Bench(
        "kafka-scan",
        "a repush's scan of a log range on Kafka, stamped and packed, beside a bare read by Spark's Kafka connector",
        "records",
        (500_000, 1_000_000, 2_000_000),
        (1_000,),
        (
            times_as_fast("ours ÷ connector", "ours", "connector", 0.9),
            times_as_fast("ours ÷ connector as it comes", "ours", "connector as it comes", 0.9),
            Claim("ours ÷ connector, with headers", _with_headers),
        ),
        run,
        SEED,
        check_connector,
    ),
)
