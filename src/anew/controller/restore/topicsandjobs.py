"""Topics and jobs of a lost catalog, made again from their records in the deep stores.

What the batches of a generation did is not in any record. A generation that has a checkpoint has begun: it fails, and
does not run again; what it wrote serves as before, and a rewind takes its place. One that had not begun goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from anew.api.upkeep import RestoredJob, RestoredTopic
from anew.catalog.change import Put, PutRebuild, PutReclaim, PutRestoredJob, PutRestoredTopic, Reclaim
from anew.controller.engine.context import Context
from anew.controller.restore.documents import JOB_RECORDS, TOPIC_RECORDS, JobRecord, TopicRecord, newest_records
from anew.controller.restore.stores import outlived
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.job import Job, lost_batches
from anew.core.jobs.places import folder_of
from anew.core.jobs.rebuild import JobRebuild
from anew.core.rebuild import RebuildStatus, Stage
from anew.core.topics.topic import Topic

_EPOCH_GAP = 100
"""Drivers that took over after the last record must not come again."""
_NUMBER_GAP = 10
"""Nor numbers of generations that were begun after it (rule R20)."""
_LOST = "what its batches did was lost with the catalog"


@dataclass(slots=True)
class RebuiltTopic:
    """A topic as it is to be in the catalog again."""

    topic: Topic
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RebuiltJob:
    """A job as it is to be in the catalog again, and the rebuilds of its generations."""

    job: Job
    rebuilds: list[JobRebuild] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RebuiltDocuments:
    """All topics and jobs that were found.

    Attributes:
        revisions: Those that were used.
        notes: What could not be read.
    """

    topics: list[RebuiltTopic] = field(default_factory=list)
    jobs: list[RebuiltJob] = field(default_factory=list)
    revisions: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def shown_topics(self) -> tuple[RestoredTopic, ...]:
        """As the answer of a restore tells of the topics."""
        return tuple(
            RestoredTopic(
                name=one.topic.name,
                uid=one.topic.uid,
                deleted=one.topic.deleted_at_ms is not None,
                notes=tuple(one.notes),
            )
            for one in self.topics
        )

    def shown_jobs(self) -> tuple[RestoredJob, ...]:
        """As it tells of the jobs."""
        return tuple(
            RestoredJob(
                name=one.job.name,
                uid=one.job.uid,
                deleted=one.job.deleted_at_ms is not None,
                live=one.job.live,
                next_generation=one.job.next_generation,
                generations={each.number: each.status.value for each in one.job.generations},
                notes=tuple(one.notes),
            )
            for one in self.jobs
        )

    def puts(self, context: Context, revision: int) -> Iterator[Put]:
        """What brings them back, with the notes of what is to be reclaimed that were lost (rule R22)."""
        for topic in (one.topic for one in self.topics):
            yield PutRestoredTopic(topic.model_copy(update={"revision": revision}))
            if topic.deleted_at_ms is not None:
                target, due_ms = f"{topic.name}\n{topic.topic_uid}", context.reclaim_due_ms()
                yield PutReclaim(Reclaim(f"{topic.uid}/topic", "topic", topic.fabric, target, due_ms, "deleted before"))
        for one in self.jobs:
            yield PutRestoredJob(one.job.model_copy(update={"revision": revision}))
            yield from (PutRebuild(rebuild, None) for rebuild in one.rebuilds)
            for generation in one.job.generations:
                if generation.status is GenerationStatus.RECLAIMED:
                    yield PutReclaim(_checkpoint(context, one.job, generation))


def restored_documents(context: Context) -> RebuiltDocuments:
    """Everything that the deep stores hold of topics and jobs.

    Raises:
        Unreachable: A deep store or a log does not answer.
    """
    made = RebuiltDocuments()
    for fabric in context.fabrics.values():
        topics = newest_records(fabric, TOPIC_RECORDS, TopicRecord, made.notes.append)
        made.topics += [RebuiltTopic(topic.topic) for topic, _ in topics.values()]
        jobs = newest_records(fabric, JOB_RECORDS, JobRecord, made.notes.append)
        made.jobs += [_job(context, job) for job, _ in jobs.values()]
        made.revisions += [greatest for _, greatest in (*topics.values(), *jobs.values())]
    _let_one_live(made, context.clock())
    for one in made.topics:
        _follow_log(context, one)
    made.topics.sort(key=lambda one: (one.topic.name, one.topic.created_at_ms))
    made.jobs.sort(key=lambda one: (one.job.name, one.job.created_at_ms))
    return made


def _job(context: Context, record: JobRecord) -> RebuiltJob:
    now_ms = context.clock()
    job = record.job.model_copy(update={"next_generation": record.job.next_generation + _NUMBER_GAP})
    made = RebuiltJob(job)
    for generation in record.job.generations:
        if generation.over:
            continue
        if _has_begun(context, job, generation):
            made.notes.append(f"generation {generation.number}: {_LOST}; anew job rewind {job.name} --from oldest")
            made.job = lost_batches(made.job, generation.number, f"{_LOST}: anew job rewind {job.name}", now_ms)
        driver = record.drivers.get(generation.number)
        if driver is None:
            made.notes.append(f"generation {generation.number} has no plan any more: it cannot be dropped")
            continue
        wanted = made.job.generation(generation.number).status is GenerationStatus.RUNNING
        made.rebuilds.append(
            JobRebuild(
                id=generation.rebuild,
                plan=driver.plan,
                status=RebuildStatus.RUNNING,
                stage=Stage.BEGIN,
                epoch=driver.epoch + _EPOCH_GAP,
                lease_until_ms=0,
                created_at_ms=generation.created_at_ms,
                stage_since_ms=now_ms,
                job=job.name,
                job_uid=job.uid,
                generation=generation.number,
                wanted=wanted,
            )
        )
    return made


def _has_begun(context: Context, job: Job, generation: Generation) -> bool:
    """Whether a generation has a checkpoint: Spark writes there before its first batch."""
    folder = folder_of(job.uid, generation.number)
    return next(iter(context.fabrics[job.fabric].deep_store.list(folder)), None) is not None


def _let_one_live(made: RebuiltDocuments, now_ms: int) -> None:
    """Of topics, and of jobs, with one name the newest lives."""
    gone = {"deleted_at_ms": now_ms}
    for topic in made.topics:
        if topic.topic.uid in outlived(one.topic for one in made.topics):
            topic.notes.append("a younger topic has its name: it counts as deleted")
            topic.topic = topic.topic.model_copy(update=gone)
    for job in made.jobs:
        if job.job.uid in outlived(one.job for one in made.jobs):
            job.notes.append("a younger job has its name: it counts as deleted; what it owns stays")
            job.job = job.job.model_copy(update=gone)


def _follow_log(context: Context, one: RebuiltTopic) -> None:
    topic = one.topic
    if topic.deleted_at_ms is None and topic.ready:
        there = context.fabrics[topic.fabric].log.topic(topic.name)
        if there is None or there.uid != topic.topic_uid:
            one.notes.append(f"its records are lost: {topic.fabric}'s log has no such topic any more")


def _checkpoint(context: Context, job: Job, generation: Generation) -> Reclaim:
    path = folder_of(job.uid, generation.number)
    reason = "a generation, reclaimed before"
    return Reclaim(f"{path}@{job.fabric}", "tree", job.fabric, path, context.reclaim_due_ms(), reason)
