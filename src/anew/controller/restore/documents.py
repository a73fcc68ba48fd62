"""Records of topics and jobs in the deep stores: what the catalog says of each at one revision. Each round looks.

A job's record has the plans of its generations and the epochs of their drivers beside it. The records of batches come
too often to be written down: what a generation's batches did is lost with the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from anew.controller.engine.apart import Apart
from anew.controller.engine.context import Context, Fabric
from anew.core.errors import AnewError, Failed, Refused
from anew.core.jobs.generation import Generation
from anew.core.jobs.job import Job
from anew.core.jobs.plan import JobPlan
from anew.core.jobs.rebuild import JobRebuild
from anew.core.topics.topic import Topic

_LOG = structlog.get_logger("anew.controller")
TOPIC_RECORDS, JOB_RECORDS = "catalog/topics", "catalog/jobs"
"""Beside the records of stores; they outlive what they tell of (rules R16, R20)."""
_KEPT = 3
"""How many records of each stay: the newest, and some to fall back to."""
_NAME = re.compile(r"(?P<uid>[^/]+)/(?P<revision>[0-9]{20})\.json")


class TopicRecord(BaseModel):
    """One revision of a topic."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    topic: Topic


class DriverRecord(BaseModel):
    """What a generation's rebuild is made again from: its plan, and the epoch of its last driver."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: JobPlan
    epoch: int


class JobRecord(BaseModel):
    """One revision of a job; ``drivers``: the number of each generation that is not over → its driver."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    job: Job
    drivers: dict[int, DriverRecord]


_Record = TypeVar("_Record", TopicRecord, JobRecord)


@dataclass(slots=True)
class DocumentMemory:
    """Writes what has changed of topics and jobs; keeps nothing that cannot be made again.

    Attributes:
        context: The controller's collaborators.
    """

    context: Context
    _written: dict[str, tuple[int, BaseModel]] = field(default_factory=dict)

    def remember(self, away: set[str], apart: Apart) -> bool:
        """Write a record of each topic and job that has changed; whether everything of the other fabrics is written.

        Args:
            away: Fabrics whose deep stores did not answer in this round: they are left alone, and further ones added.
            apart: Takes what nobody foresaw of one.
        """
        catalog, complete = self.context.catalog, True
        for topic in (*catalog.topics(), *catalog.deleted_topics()):
            path = f"{TOPIC_RECORDS}/{topic.uid}"
            complete &= self._step(topic, path, away, apart)
        for job in (*catalog.jobs(), *catalog.deleted_jobs()):
            path = f"{JOB_RECORDS}/{job.uid}"
            complete &= self._step(job, path, away, apart)
        return complete

    def _step(self, document: Topic | Job, path: str, away: set[str], apart: Apart) -> bool:
        before = self._written.get(path)
        if document.fabric in away or (before is not None and before[0] == document.revision):
            return document.fabric not in away
        with apart.step(f"the record of {document.name}"):
            try:
                self._remember(document, path)
            except AnewError:
                away.add(document.fabric)
                raise
            return True
        return False

    def _remember(self, document: Topic | Job, path: str) -> None:
        before, deep_store = self._written.get(path), self.context.fabrics[document.fabric].deep_store
        record = self._record(document)
        worth = _worth(record)
        if before is None or before[1] != worth:
            try:
                deep_store.put(f"{path}/{document.revision:020d}.json", record.model_dump_json(indent=1).encode())
                for older in list(deep_store.list(path))[:-_KEPT]:
                    deep_store.delete(older.path)
            except Refused as error:
                # Another controller wrote it a moment before or after; the next change gets a name of its own.
                _LOG.warning("record_taken", document=document.name, **error.to_json())
        self._written[path] = document.revision, worth

    def _record(self, document: Topic | Job) -> TopicRecord | JobRecord:
        if isinstance(document, Topic):
            return TopicRecord(topic=document)
        drivers = {}
        for generation in document.generations:
            rebuild = None if generation.over else self.context.catalog.rebuild(generation.rebuild)
            if isinstance(rebuild, JobRebuild):
                drivers[generation.number] = DriverRecord(plan=rebuild.plan, epoch=rebuild.epoch)
        return JobRecord(job=document, drivers=drivers)


def _worth(record: TopicRecord | JobRecord) -> BaseModel:
    """The record without what changes by itself: a new one is written when the rest has changed."""
    if isinstance(record, TopicRecord):
        return record.model_copy(update={"topic": record.topic.model_copy(update={"revision": 0})})
    generations = tuple(map(_lasting, record.job.generations))
    job = record.job.model_copy(update={"revision": 0, "generations": generations})
    return record.model_copy(update={"job": job})


def _lasting(generation: Generation) -> Generation:
    return generation.model_copy(update={"failures": 0, "retry_at_ms": 0, "launched": False, "error": None})


def newest_records(
    fabric: Fabric, root: str, record: type[_Record], told: Callable[[str], None]
) -> dict[str, tuple[_Record, int]]:
    """Uid → the newest record that can be read, and the greatest revision that any has.

    Args:
        fabric: Whose deep store is read.
        root: `TOPIC_RECORDS` or `JOB_RECORDS`.
        record: The class of the records there.
        told: Takes what cannot be read.

    Raises:
        Unreachable: The deep store does not answer.
    """
    paths: dict[str, list[tuple[int, str]]] = {}
    for stored in fabric.deep_store.list(root):
        matched = _NAME.fullmatch(stored.path.removeprefix(f"{root}/"))
        if matched is not None:
            paths.setdefault(matched["uid"], []).append((int(matched["revision"]), stored.path))
    found = {}
    for uid, of in paths.items():
        for _, path in sorted(of, reverse=True):
            try:
                found[uid] = record.model_validate_json(fabric.deep_store.get(path)), max(of)[0]
                break
            except (ValidationError, Failed) as error:
                told(f"the record {path} cannot be read: {str(error).splitlines()[0]}")
    return found
