"""A topic of raw records on a broker, read by jobs as the product runs them, and by bare Structured Streaming."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from anew.api.location import LogLocation
from anew.catalog.change import Change, Operation, PutBatch, PutRebuild
from anew.catalog.database import DatabaseCatalog
from anew.core.jobs.batch import BatchRecord
from anew.core.jobs.inputs import JobInput
from anew.core.partition import XxHash64Partitioner
from anew.core.stamp import Origin, OriginKind
from anew.core.topics.topic import TopicFormat
from anew.log.interface import RAW_APPEND, TopicPartition, TopicSpec
from anew.log.open import open_log
from anew.rebuild.jobs.calling import Loaded
from anew.rebuild.jobs.running import Batches, GenerationRun, checked_frame
from anew.spark.jobs.decoding import InputTask
from anew.spark.jobs.sink import SinkTask
from anew.spark.jobs.source import Reading, read_topic
from anew.testing.job_builders import a_job_rebuild
from bench.serving import now_ms
from bench.synthetic import KEY_BYTES, SEED, VALUE_BYTES, random_bytes, taken

PARTITIONS = 4
JOB_ORIGIN = Origin(OriginKind.JOB, "mark", 1)
"""Under which the job's records are stamped."""
TUNED: Mapping[str, str] = {
    "kafka.max.poll.records": "10000",
    "kafka.fetch.max.bytes": str(50 << 20),
    "kafka.max.partition.fetch.bytes": str(8 << 20),
}
"""Options that are said to make the connector's reads fast."""
TUNED_SINK: Mapping[str, str] = {"kafka.linger.ms": "5", "kafka.batch.size": str(1 << 20), "kafka.acks": "all"}
"""Likewise its writes, that wait for all replicas as ours do."""
_STEP_RECORDS = 50_000
_NUMBERS = itertools.count(1)


def mark(events: DataFrame) -> DataFrame:
    """The job: filters by key, and changes values; the same function for both sides."""
    kept = events.where(F.substring("key", KEY_BYTES, 1) != F.lit(b"\x00"))
    return kept.select("key", F.concat(F.lit(b"\x01"), F.col("value")).alias("value"), "timestamp")


@dataclass(frozen=True, slots=True)
class FilledTopic:
    """A topic with so many records of 112 bytes."""

    location: LogLocation
    name: str
    uid: str
    records: int

    def job_input(self) -> JobInput:
        """As a job reads it."""
        return JobInput(
            name="events",
            fabric="dc-0",
            topic=self.name,
            topic_uid=self.uid,
            partitions=PARTITIONS,
            format=TopicFormat.BYTES,
        )


def new_topic(location: LogLocation, prefix: str) -> tuple[str, str]:
    """A fresh topic: its name and what the log calls it."""
    number = next(_NUMBERS)
    with contextlib.closing(open_log(location, clock=now_ms)) as log:
        made = log.create_topic(TopicSpec(f"{prefix}-{number}", f"{prefix}-uid-{number}", PARTITIONS))
    return made.name, made.uid


def filled_topic(location: LogLocation, records: int) -> FilledTopic:
    """A topic with so many random records."""
    name, uid = new_topic(location, "events")
    random = np.random.default_rng(SEED)
    with contextlib.closing(open_log(location, clock=now_ms)) as log:
        for first in range(0, records, _STEP_RECORDS):
            count = min(_STEP_RECORDS, records - first)
            keys, values = random_bytes(random, count, KEY_BYTES), random_bytes(random, count, VALUE_BYTES)
            places = XxHash64Partitioner(PARTITIONS).of_all(keys)
            for partition in range(PARTITIONS):
                mine = (places == partition).nonzero()[0]
                columns: list[Any] = [taken(keys, mine), taken(values, mine), pa.nulls(mine.size, pa.int64())]
                rows = pa.RecordBatch.from_arrays(columns, schema=RAW_APPEND)
                log.append_raw(TopicPartition(name, uid, partition), rows)
    return FilledTopic(location, name, uid, records)


@dataclass
class Book:
    """Keeps the records of batches in a catalog on disk, as the controller does; its requests are not in it."""

    catalog: DatabaseCatalog
    uid: str
    records: list[BatchRecord] = field(default_factory=list)

    def may_append(self, batch: int) -> bool:
        """See `Recorder`."""
        return True

    def record(self, record: BatchRecord) -> None:
        """See `Recorder`."""
        self.catalog.put_batch(PutBatch(self.uid, 1, record, self.uid))
        self.records.append(record)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run of a query came to.

    Attributes:
        seconds: From its start until it had ended.
        batches: The seconds of each batch that had rows.
    """

    seconds: float
    batches: tuple[float, ...]

    @property
    def batch_seconds(self) -> float:
        """The median of the batches but the first ones, in which code is compiled."""
        settled = self.batches[len(self.batches) // 4 :]
        return statistics.median(settled)


class Streams:
    """Runs of both sides over one session, each with a checkpoint of its own."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        """Nothing runs yet."""
        self.spark, self._folder = spark, folder

    def ours(self, topic: FilledTopic, sink: SinkTask, max_records: int, start: Mapping[int, int]) -> Ran:
        """The job, as a driver runs it, over what is there from a start."""
        number = next(_NUMBERS)
        catalog = DatabaseCatalog(f"sqlite:///{self._folder / 'catalog.db'}")
        try:
            uid = f"job-{number}"
            rebuild = a_job_rebuild(id=uid, job_uid=uid)
            begun = Operation(uid, now_ms(), "bench", "begin", uid)
            catalog.commit(Change(begun, (PutRebuild(rebuild, None),)))
            book = Book(catalog, uid)
            run = GenerationRun(
                function=Loaded(lambda events: mark(events), ("events",), {}),
                readings={"events": Reading(InputTask(topic.location, topic.job_input()), dict(start), max_records)},
                sink=sink,
                epoch=1,
                checkpoint=self._checkpoint(number),
                records=(),
                clock=now_ms,
            )
            batches = Batches(run, book)
            frame = checked_frame(self.spark, run.function, run.readings)
            began = time.perf_counter()
            batches.start(frame, until_now=True)
            query = self.spark.streams.active[0]
            batches.wait()
            return Ran(time.perf_counter() - began, _batch_seconds(query))
        finally:
            catalog.close()

    def ours_to_nobody(self, topic: FilledTopic, max_records: int) -> Ran:
        """The source alone."""
        reading = Reading(
            InputTask(topic.location, topic.job_input()), dict.fromkeys(range(PARTITIONS), 0), max_records
        )
        return self._query(read_topic(self.spark, reading).writeStream.format("noop"))

    def connector_to_nobody(self, topic: FilledTopic, max_records: int) -> Ran:
        """Spark's source alone, with the columns that ours gives."""
        frame = self._connector(topic, max_records, "earliest")
        return self._query(frame.select("key", "value", "timestamp", "partition", "offset").writeStream.format("noop"))

    def bare(self, topic: FilledTopic, to: str, max_records: int, start: str = "earliest") -> Ran:
        """Structured Streaming as it is written by hand: connector, the function, Spark's Kafka sink."""
        frame = mark(self._connector(topic, max_records, start)).select("key", "value")
        writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", topic.location.address)
        return self._query(writer.option("topic", to).options(**TUNED_SINK))

    def _connector(self, topic: FilledTopic, max_records: int, start: str) -> DataFrame:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", topic.location.address)
        reader = reader.option("subscribe", topic.name).option("startingOffsets", start)
        return reader.option("maxOffsetsPerTrigger", str(max_records)).options(**TUNED).load()

    def _query(self, writer: Any) -> Ran:
        writer = writer.option("checkpointLocation", str(self._checkpoint(next(_NUMBERS)))).trigger(availableNow=True)
        began = time.perf_counter()
        query = writer.start()
        query.awaitTermination()
        return Ran(time.perf_counter() - began, _batch_seconds(query))

    def _checkpoint(self, number: int) -> Path:
        return self._folder / f"checkpoint-{number}"


def _batch_seconds(query: StreamingQuery) -> tuple[float, ...]:
    progress: list[Any] = list(query.recentProgress)
    return tuple(each.durationMs["triggerExecution"] / 1000 for each in progress if each.numInputRows)


def sink_into(location: LogLocation, name: str, uid: str) -> SinkTask:
    """Appends to a topic, with identities."""
    return SinkTask(
        location=location,
        topic=name,
        uid=uid,
        partitions=PARTITIONS,
        key_schema='"bytes"',
        value_schema='"bytes"',
        schema_id=1,
        key_schema_id=1,
        origin=JOB_ORIGIN,
        skew_limit_ms=60_000,
        clock=now_ms,
    )


def written(location: LogLocation, name: str, uid: str) -> int:
    """How many records a topic has that has lost none."""
    with contextlib.closing(open_log(location, clock=now_ms)) as log:
        return sum(log.offsets(TopicPartition(name, uid, partition)).end for partition in range(PARTITIONS))


Run = Callable[[], float]
