"""A topic that a job reads, one that it writes, and a catalog's part of its batches, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.api.location import LogLocation
from anew.codec.avro import decode_datum, encode_datum, parse_schema
from anew.core.hashing import key_hashes
from anew.core.identity import split_identities
from anew.core.jobs.batch import BatchRecord, check_next
from anew.core.jobs.code import JobCode
from anew.core.jobs.inputs import JobInput
from anew.core.partition import XxHash64Partitioner
from anew.core.stamp import Origin, OriginKind
from anew.log.embedded import EmbeddedLog
from anew.log.interface import APPEND_RECORDS, TopicPartition, TopicSpec
from anew.rebuild.jobs.archive import pack, unpack
from anew.rebuild.jobs.calling import Loaded, load
from anew.rebuild.jobs.running import Batches, GenerationRun, checked_frame
from anew.runtime.clock import now_ms
from anew.spark.jobs.decoding import InputTask
from anew.spark.jobs.sink import SinkTask
from anew.spark.jobs.source import Reading
from anew.spark.session import SparkSession

KEY = '"string"'
EVENT = '{"type": "record", "name": "Event", "fields": [{"name": "delay", "type": "int"}]}'
CLASS = '{"type": "record", "name": "Class", "fields": [{"name": "class", "type": "string"}]}'
CODE = """
from pyspark.sql import functions as F


def classify(events, *, severe: int = 15):
    kind = F.when(F.col("value.delay") >= severe, "severe").otherwise("fine")
    return events.select("key", F.struct(kind.alias("class")).alias("value"), "deleted", "timestamp")
"""


@dataclass
class Ledger:
    """The records of batches, as the catalog keeps them, and who may append."""

    records: list[BatchRecord] = field(default_factory=list)
    may: Callable[[int], bool] = lambda _: True
    after: Callable[[BatchRecord], None] = lambda _: None

    def may_append(self, batch: int) -> bool:
        """See `Recorder`."""
        return self.may(batch)

    def record(self, record: BatchRecord) -> None:
        """See `Recorder`."""
        if check_next(self.records[-1] if self.records else None, record):
            self.records = [*(r for r in self.records if r.batch < record.batch), record]
        self.after(record)


@dataclass(frozen=True)
class Seen:
    """A record of the output."""

    key: str
    value: dict[str, object] | None
    written_ms: int
    batch: int
    sequence: int


@contextmanager
def running_world(spark: SparkSession, folder: Path, events: Sequence[tuple[str, int | None]]) -> Iterator[JobsWorld]:
    """A world with these events, whose log is closed in the end."""
    world = JobsWorld(spark, folder)
    world.write(events)
    yield world
    world.log.close()


class JobsWorld:
    """Topics in a folder, a session, and one generation of one job."""

    def __init__(self, spark: SparkSession, folder: Path, partitions: int = 3) -> None:
        """Make both topics."""
        self.spark, self.folder, self.partitions = spark, folder, partitions
        self.events_partitions = partitions
        self.log = EmbeddedLog(folder / "log", clock=now_ms, durable=False)
        self.location = LogLocation(kind="embedded", address=str(folder / "log"))
        self.specs = {
            name: self.log.create_topic(TopicSpec(name, f"{name}-uid", partitions)) for name in ("events", "classes")
        }
        self.ledger = Ledger()

    def write(self, rows: Sequence[tuple[str, int | None]], at_ms: int | None = None) -> None:
        """Append events: key and delay, None for a delete."""
        key_schema, value_schema = parse_schema(KEY), parse_schema(EVENT)
        keys = pa.array([encode_datum(key_schema, key) for key, _ in rows], pa.binary())
        bodies = [None if delay is None else encode_datum(value_schema, {"delay": delay}) for _, delay in rows]
        to = XxHash64Partitioner(self.events_partitions).of_hashes(key_hashes(keys))
        columns: list[Any] = [
            pa.array([at_ms] * len(rows), pa.int64()),
            pa.array([b""] * len(rows), pa.binary()),
            keys,
            pa.array([0 if body is None else 1 for body in bodies], pa.int32()),
            pa.array(bodies, pa.binary()),
        ]
        records = pa.RecordBatch.from_arrays(columns, schema=APPEND_RECORDS)
        for partition in np.unique(to).tolist():
            self.log.append(self.at("events", partition), records.filter(pa.array(to == partition)))

    def write_times(self, partition: int, times_ms: npt.NDArray[np.int64]) -> None:
        """Append events that were written at these times, in their order, to one partition."""
        count, key = len(times_ms), encode_datum(parse_schema(KEY), "k")
        columns: list[Any] = [
            pa.array(times_ms),
            pa.array([b""] * count, pa.binary()),
            pa.array([key] * count, pa.binary()),
            pa.array(np.ones(count, np.int32)),
            pa.array([encode_datum(parse_schema(EVENT), {"delay": 1})] * count, pa.binary()),
        ]
        self.log.append(self.at("events", partition), pa.RecordBatch.from_arrays(columns, schema=APPEND_RECORDS))

    def grow(self, partitions: int) -> None:
        """The input gets more partitions, over which `write` spreads from now on."""
        self.events_partitions = self.log.add_partitions("events", self.specs["events"].uid, partitions)

    def at(self, topic: str, partition: int) -> TopicPartition:
        """A partition of one of the topics."""
        return TopicPartition(topic, self.specs[topic].uid, partition)

    def reading(self, max_records: int = 1_000, start: Mapping[int, int] | None = None) -> Reading:
        """How events are read."""
        of = JobInput(
            name="events",
            fabric="dc-0",
            topic="events",
            topic_uid=self.specs["events"].uid,
            partitions=self.partitions,
            key_schema=KEY,
            schemas={1: EVENT},
        )
        chosen = dict.fromkeys(range(self.partitions), 0) if start is None else dict(start)
        return Reading(InputTask(self.location, of), chosen, max_records)

    def sink(self, generation: int = 1) -> SinkTask:
        """Where classes go."""
        return SinkTask(
            location=self.location,
            topic="classes",
            uid=self.specs["classes"].uid,
            partitions=self.partitions,
            key_schema=KEY,
            value_schema=CLASS,
            schema_id=1,
            key_schema_id=1,
            origin=Origin(OriginKind.JOB, "delay_class", generation),
            skew_limit_ms=60_000,
            clock=now_ms,
        )

    def function(
        self, code: str = CODE, name: str = "classify", inputs: Sequence[str] = ("events",), **params: str
    ) -> tuple[JobCode, Loaded]:
        """A job's code as it is submitted and loaded."""
        source = self.folder / f"code-{abs(hash((code, name)))}"
        source.mkdir(exist_ok=True)
        module = source / f"m{abs(hash((code, name)))}.py"
        module.write_text(code, encoding="utf-8")
        packed = pack(f"{module}:{name}", {}, params, "jobs/j/code")
        return packed.code, load(packed.code, unpack(packed.code, packed.content, source / "unpacked"), list(inputs))

    def batches(
        self,
        epoch: int = 1,
        max_records: int = 1_000,
        code: str = CODE,
        start: Mapping[int, int] | None = None,
        **params: str,
    ) -> Batches:
        """The generation as a driver of that epoch runs it."""
        _, function = self.function(code, **params)
        run = GenerationRun(
            function=function,
            readings={"events": self.reading(max_records, start)},
            sink=self.sink(),
            epoch=epoch,
            checkpoint=self.folder / "checkpoint",
            records=list(self.ledger.records),
            clock=now_ms,
        )
        return Batches(run, self.ledger)

    def begin(self, batches: Batches, *, until_now: bool = True) -> None:
        """Start them."""
        frame = checked_frame(self.spark, batches.run.function, batches.run.readings)
        batches.run = replace(batches.run, keeps_state=bool(frame.state))
        batches.start(frame, until_now=until_now)

    def output(self) -> list[Seen]:
        """All records of the output, of each partition in order."""
        found = []
        key_schema, value_schema = parse_schema(KEY), parse_schema(CLASS)
        for partition in range(self.partitions):
            at, offset = self.at("classes", partition), 0
            end = self.log.offsets(at).end
            while offset < end:
                read = self.log.read(at, offset, 10_000)
                offset = read.next_offset
                rows = read.records.to_pylist()
                identities = split_identities(read.records.column("origin"))  # type: ignore[arg-type]  # it is binary
                for row, batch, sequence in zip(
                    rows, identities.batch.tolist(), identities.sequence.tolist(), strict=True
                ):
                    value = None if row["value"] is None else decode_datum(value_schema, row["value"])
                    key = decode_datum(key_schema, row["key"])
                    found.append(Seen(key, value, row["written_ms"], batch, sequence))
        return found
