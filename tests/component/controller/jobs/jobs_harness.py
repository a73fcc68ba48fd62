"""A controller with topics, and a job that reads one and writes into another; drivers are the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from anew.api.jobs.requests import CreateJob, DriverEnded, PlanGeneration, RecordBatch, RunGeneration
from anew.api.jobs.views import GenerationView, JobView
from anew.api.models import BeginRebuild, Heartbeat, ResumeRebuild
from anew.api.rebuilds import JobStart
from anew.api.topics import CreateTopic
from anew.client.topicreads import Edge
from anew.client.topics import Topic
from anew.client.topicwriter import TopicWriter
from anew.codec.avro import encode_datum, parse_schema
from anew.core.identity import identified_origins, sequences
from anew.core.jobs.batch import NO_DIGEST, BatchRecord, TaskOutput, chained
from anew.core.jobs.deadletters import DeadLetter
from anew.core.jobs.job import Job
from anew.core.jobs.plan import JobPlan
from anew.core.jobs.starts import start_of
from anew.core.rebuild import Stage
from anew.log.embedded import EmbeddedLog
from anew.log.interface import APPEND_RECORDS, Log, TopicPartition
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA
from anew.testing.job_builders import a_code
from tests.component.controller.harness import Cluster

JOB, EVENTS, CLASSES = "delay_class", "events", "classes"
PARTITIONS = 2

Ran = Callable[..., Any]
Said = Callable[..., str]
"""Runs ``anew job … --json``; its document."""


def offsets(plan: dict[str, Any]) -> dict[str, int]:
    """Partition → where a plan that was printed begins."""
    return {partition: place["offset"] for partition, place in plan["start"]["events"].items()}


@dataclass
class Jobs:
    """The job, and what its drivers and people do to it."""

    cluster: Cluster
    _numbers: Any = field(default_factory=count)

    def topics(self, **of_input: Any) -> None:
        """The input, and the topic that outputs are like."""
        for name, more in ((EVENTS, of_input), (CLASSES, {})):
            request = CreateTopic(name=name, partitions=PARTITIONS, key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA)
            self.cluster.client.create_topic(request.model_copy(update=more))

    def write(self, records: int, partition: int = 0) -> None:
        """Append events."""
        topic = self.cluster.client.topic(EVENTS)
        columns: list[Any] = [
            pa.nulls(records, pa.int64()),
            pa.array([b""] * records, pa.binary()),
            pa.array([b"\x02k"] * records, pa.binary()),
            pa.array([topic.value_schema_id] * records, pa.int32()),
            pa.array([b"\x02v"] * records, pa.binary()),
        ]
        at = TopicPartition(EVENTS, topic.topic_uid, partition, topic.key_schema_id or 0)
        self.cluster.log.append(at, pa.RecordBatch.from_arrays(columns, schema=APPEND_RECORDS))

    def create(self) -> JobView:
        """The job, without a generation."""
        return self.cluster.client.create_job(
            CreateJob(name=JOB, output=f"topic:{CLASSES}", inputs={"events": EVENTS}, request_id="create")
        )

    def plan(self, **asked: Any) -> JobPlan:
        """The next generation."""
        if asked.get("start") is not None:
            asked["start"] = start_of(asked["start"])
        return self.cluster.client.plan_generation(JOB, PlanGeneration(**{"code": a_code(), **asked}))

    def begin(self, plan: JobPlan | None = None) -> int:
        """Begin a generation, and let its output be made; its number."""
        number = self.begin_only(self.plan() if plan is None else plan)
        self.cluster.round()
        return number

    def begin_only(self, plan: JobPlan) -> int:
        """Begin a generation, and nothing else happens."""
        begin = BeginRebuild(plan=plan, request_id=f"begin-{next(self._numbers)}", driver="")
        return self.cluster.client.begin_rebuild(begin, JobStart).rebuild.generation

    def running(self, plan: JobPlan | None = None) -> int:
        """A generation that is to run; its number."""
        number = self.begin(plan)
        self.cluster.client.run_job(JOB, RunGeneration(generation=number))
        self.cluster.round()
        return number

    def view(self, number: int = 1) -> GenerationView:
        """One generation as it is shown."""
        return next(each for each in self.cluster.client.job(JOB).generations if each.number == number)

    def job(self) -> Job:
        """The document."""
        job = self.cluster.context.catalog.job(JOB)
        assert job is not None
        return job

    def take(self, number: int = 1, driver: str = "one") -> int:
        """A driver takes a generation; its epoch."""
        rebuild = self.view(number).rebuild
        return self.cluster.client.resume_rebuild(rebuild, ResumeRebuild(driver=driver), JobStart).rebuild.epoch

    def beat(self, epoch: int, number: int = 1) -> tuple[bool, bool]:
        """A sign of life; whether it is killed, and whether it is to stop."""
        answer = self.cluster.client.heartbeat(self.view(number).rebuild, Heartbeat(epoch=epoch, stage=Stage.BUILD))
        return answer.kill_asked, answer.stop_asked

    def append(
        self, batch: int, epoch: int, attempt: int, *keys: str, number: int = 1, written_ms: int | None = None
    ) -> None:
        """A task attempt of a generation appends records of these keys, to the first partition of its topic."""
        into = self.job().generation(number).writes_to.partition("#")[0]
        topic = self.cluster.client.topic(into, facts=False)
        origins = identified_origins(self.job().origin_of(number), batch, sequences(epoch, attempt, 0, len(keys)))
        columns: list[Any] = [
            pa.array([self.cluster.clock() if written_ms is None else written_ms] * len(keys), pa.int64()),
            origins,
            pa.array([encode_datum(parse_schema(KEY_SCHEMA), key) for key in keys], pa.binary()),
            pa.array([0] * len(keys), pa.int32()),
            pa.nulls(len(keys), pa.binary()),
        ]
        at = TopicPartition(topic.name, topic.topic_uid, 0, topic.key_schema_id or 0)
        self.cluster.log.append(at, pa.RecordBatch.from_arrays(columns, schema=APPEND_RECORDS))

    def read(self, number: int = 1, start: Edge | int = Edge.OLDEST, limit: int = 100) -> tuple[list[str], Any]:
        """The keys of the records that count in the first partition of a generation's topic; where the read waits."""
        read = self.output(number).read_committed(start, partition=0, limit=limit)
        return [record.key for record in read.records], [(each.offset, each.batch) for each in read.waiting]

    def output(self, number: int = 1) -> Topic:
        """A generation's topic, over a handle of its own on the log."""
        return self.topic(f"{CLASSES}_g{number}")

    def topic(self, name: str) -> Topic:
        """A topic, over a handle of its own on the log."""
        return Topic(self.cluster.client, name, self._opened_log)

    def write_past_us(self, key: str) -> None:
        """Another program writes into the first generation's topic, by the log's own means."""
        view = self.output().view
        with TopicWriter(view.model_copy(update={"written_by": None}), self._opened_log(view.fabric)) as writer:
            writer.put(key, None)

    def _opened_log(self, fabric: str) -> Log:
        directory = Path(self.cluster.context.fabrics[fabric].log_location.address)
        return EmbeddedLog(directory, clock=self.cluster.clock, durable=False)

    def record(
        self,
        epoch: int,
        upto: dict[int, int],
        number: int = 1,
        attempts: tuple[int, ...] = (),
        rows: int = 0,
        letters: tuple[DeadLetter, ...] = (),
    ) -> BatchRecord:
        """A batch was appended up to these offsets, by these task attempts, without these records."""
        generation = self.job().generation(number)
        last = self.cluster.context.catalog.batches(self.job().uid, number, 1)
        batch = last[-1].batch + 1 if last else 0
        record = BatchRecord(
            batch=batch,
            epoch=epoch,
            start=last[-1].end if last else generation.start,
            end={"events": upto},
            rows=rows,
            total=rows + (last[-1].total if last else 0),
            dead_letters=letters,
            dead_total=len(letters) + (last[-1].dead_total if last else 0),
            outputs=tuple(TaskOutput(task=t, attempt=attempt, rows=1) for t, attempt in enumerate(attempts)),
            planned=f"p{batch}",
            digest=chained(last[-1].digest if last else NO_DIGEST, f"p{batch}"),
            at_ms=self.cluster.clock(),
        )
        self.cluster.client.record_batch(generation.rebuild, RecordBatch(epoch=epoch, record=record))
        return record

    def end(self, epoch: int, error: str | None = None, number: int = 1, *, for_good: bool = False) -> None:
        """A driver ends."""
        told = DriverEnded(epoch=epoch, error=error, for_good=for_good)
        self.cluster.client.driver_ended(self.view(number).rebuild, told)

    @property
    def launched(self) -> list[str]:
        """The generations for which drivers were started."""
        return [name for name, _ in self.cluster.launched]
