"""A repush from a topic on Kafka until readers get the new version, beside the same by hand.

Ours: a cluster of processes with a store whose records all lie in its real-time topic, on an empty base. A repush reads
the topic, keeps the newest of each key and writes base files; the node loads them and swaps; the clock stops when a
client reads the new version. By hand: a Spark job reads the same ranges with Spark's Kafka connector, keeps the newest
of each key and writes them to a new topic, from which a process with confluent-kafka fills a RocksDB per partition
meanwhile; the clock stops when all are there. Each version is held once. Both have the same Spark session and broker.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from anew.api.location import LogLocation
from anew.core.stores.plan import LogSplit
from anew.log.interface import TopicSpec
from anew.log.open import open_log
from anew.spark.session import session_for_queries, spark_session
from bench.brokers import add_connector, check_connector, running_broker
from bench.kafkascan import ROOMY, TUNED, read_topic
from bench.measuring import Bench, Measured, Repeats, take_turns, timed, times_as_fast
from bench.rebuilding import LoggedStore, make_logged_store, running_cluster
from bench.serving import now_ms
from bench.synthetic import KEY_BYTES, PARTITIONS, SEED, VALUE_BYTES
from bench.topicfill import filling

_WRITES = {"kafka.linger.ms": "20", "kafka.batch.size": str(1 << 20), "kafka.buffer.memory": str(64 << 20)}
"""Options under which the connector writes fast: large batches."""
_NUMBERS = itertools.count()


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with so many records in the topic."""
    found = []
    with running_broker(folder) as log, running_cluster(folder, log) as cluster, spark_session(None, ROOMY) as started:
        # One session each for the whole run: classes that a session loads are compiled as it goes on.
        spark, theirs = session_for_queries(started), started.newSession()
        add_connector(theirs)
        theirs.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
        for size in sizes:
            store = make_logged_store(cluster, spark, f"store{size}", size, "files")
            by_hand = partial(_by_hand, theirs, log, store, folder)
            seconds = take_turns({"ours": partial(store.repushed, spark), "by hand": by_hand}, repeats)
            figures = {"key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES, "partitions": PARTITIONS}
            found.append(Measured(size, seconds, figures=figures))
            cluster.controller.delete_store(store.name)
    return found


def _by_hand(spark: SparkSession, log: LogLocation, store: LoggedStore, folder: Path) -> float:
    """Seconds of the job as a Spark user writes it, until RocksDB holds what it wrote."""
    feed, number = store.feed, next(_NUMBERS)
    target, databases = f"by-hand-{number}", folder / f"by-hand-{number}"
    ends = store.cluster.controller.snapshot(store.name).ends
    splits = [LogSplit(feed=feed.id, partition=at.partition, begin=0, end=end) for at, end in ends.items()]

    def rebuild() -> None:
        # All records of a key are in one partition, so that the greatest offset is the newest.
        newest = Window.partitionBy("key").orderBy(F.col("offset").desc())
        rows = read_topic(spark, log, feed.topic, splits).options(**TUNED).load()
        ranked = rows.withColumn("rank", F.row_number().over(newest)).where("rank = 1")
        writer = ranked.select("key", "value").write.format("kafka").options(**_WRITES)
        writer.option("kafka.bootstrap.servers", log.address).option("topic", target).save()
        reader.finish()

    with contextlib.closing(open_log(log, clock=now_ms)) as opened:
        made = opened.create_topic(TopicSpec(target, f"uid-{target}", feed.partitions))
        with filling(log.address, target, feed.partitions, databases) as reader:
            took = timed(rebuild)
            if reader.held(store.sample) != (store.keys, store.sample):
                raise AssertionError("the sides differ: the job by hand made other rows")
        opened.delete_topic(made.name, made.uid)
    shutil.rmtree(databases)
    return took


BENCHES = (
    Bench(
        "repush-kafka",
        "a topic → the newest of each key, readable: a repush beside a Spark job, a new topic and a consumer by hand",
        "records",
        (500_000, 1_000_000, 2_000_000),
        (1_000,),
        (times_as_fast("ours ÷ by hand", "ours", "by hand", 3.0),),
        run,
        SEED,
        check_connector,
    ),
)
