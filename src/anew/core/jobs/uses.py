"""Which jobs read a topic, or write into a topic or a store: what they use is not deleted under them."""

from __future__ import annotations

from collections.abc import Iterable

from anew.core.errors import Refused
from anew.core.jobs.generation import Generation
from anew.core.jobs.job import Job
from anew.core.jobs.plan import DEPLOY, PARALLEL, SIMPLE, Mode
from anew.core.topics.topic import Topic


def downstream_of(job: Job, mode: Mode, jobs: Iterable[Job]) -> tuple[str, ...]:
    """Which jobs read the topics of a job's generations, and what the next one means for them, a line each (case N5).

    Args:
        job: The job that gets another generation.
        mode: In which way.
        jobs: All jobs that were not deleted.
    """
    topics = _topics_of(job)
    meaning = {
        PARALLEL: "it goes on with that one, and gets nothing of the new one: rewind it onto the new one's topic",
        SIMPLE: "it gets the results again, behind those of before: rewind it too where it counts them",
        DEPLOY: "it goes on, with what the new code makes of new records",
    }
    others, seen = [other for other in jobs if other.uid != job.uid], {job.uid}
    found = [
        f"{other.name} reads {topic} as {name}: {meaning[mode]}"
        for other in others
        for name, topic in sorted(other.inputs.items())
        if topic in topics
    ]
    while topics:
        readers = [other for other in others if other.uid not in seen and topics & set(other.inputs.values())]
        seen |= {reader.uid for reader in readers}
        topics = {topic for reader in readers for topic in _topics_of(reader)}
        found += [
            f"{other.name} reads {topic} as {name}, which comes of that: the same holds for it"
            for other in others
            if other.uid not in seen
            for name, topic in sorted(other.inputs.items())
            if topic in topics
        ]
    return tuple(found)


def _topics_of(job: Job) -> set[str]:
    """The topics that generations of a job write into."""
    return {g.writes_to.partition("#")[0] for g in job.generations if not g.over and "#" in g.writes_to}


def check_topic_unused(topic: Topic, jobs: Iterable[Job]) -> None:
    """Raise where a job reads a topic or writes into it.

    Args:
        topic: It.
        jobs: All jobs that were not deleted.

    Raises:
        Refused: ``topic_in_use``, with the job and what it does.
    """
    for job in jobs:
        check_topic_unread(topic, (job,))
        if job.output.uid == topic.uid:
            raise _topic_in_use(topic, f"{job.name} has it as its output", _stopped_and_deleted(job))
        writes = _writing(topic, job)
        if writes is not None:
            is_live = writes.number == job.live
            gone = _stopped_and_deleted(job) if is_live else f"anew job reclaim {job.name}@{writes.number}"
            raise _topic_in_use(topic, f"{job.name}@{writes.number} writes into it", gone)


def written_by(topic: Topic, jobs: Iterable[Job]) -> str | None:
    """Whose a topic is, so that nobody else is to write into it; None: no job's.

    Args:
        topic: It.
        jobs: All jobs that were not deleted.

    Returns:
        ``JOB`` of the topic that a job names as its output, ``JOB@N`` of the one that a generation writes into.
    """
    for job in jobs:
        if job.output.uid == topic.uid:
            return job.name
        writes = _writing(topic, job)
        if writes is not None:
            return f"{job.name}@{writes.number}"
    return None


def _writing(topic: Topic, job: Job) -> Generation | None:
    return next((g for g in job.generations if not g.over and g.writes_to == topic.identity), None)


def check_topic_grows(topic: Topic, jobs: Iterable[Job]) -> None:
    """Raise where a generation writes into a topic that is to get partitions.

    Its readers have the records of a key in the order of one partition; from then on its drivers would put them into
    another one. The topic that a job names as its output may grow: the next generation's topic has as many partitions.

    Args:
        topic: It.
        jobs: All jobs that were not deleted.

    Raises:
        Refused: ``topic_in_use``, with the generation.
    """
    for job in jobs:
        for generation in job.generations:
            if not generation.over and generation.writes_to == topic.identity:
                raise Refused(
                    "topic_in_use",
                    f"a generation writes into the topic {topic.name}: the records of a key stay in one partition",
                    found=f"{job.name}@{generation.number} writes into it",
                    expected="a topic that no generation writes into",
                    hint=f"anew topic alter {job.output.name} --partitions N, then anew job rewind {job.name}: "
                    "the next generation's topic has as many",
                )


def check_topic_unread(topic: Topic, jobs: Iterable[Job]) -> None:
    """Raise where a job reads a topic that is to go with the generation that wrote it.

    Args:
        topic: It.
        jobs: All jobs that were not deleted.

    Raises:
        Refused: ``topic_in_use``, with the job.
    """
    for job in jobs:
        for name, read in job.inputs.items():
            if read == topic.name:
                raise _topic_in_use(topic, f"{job.name} reads it as {name}", _stopped_and_deleted(job))


def check_store_unused(name: str, uid: str, jobs: Iterable[Job]) -> None:
    """Raise where a job writes into a store.

    Args:
        name: The store's.
        uid: The store's.
        jobs: All jobs that were not deleted.

    Raises:
        Refused: ``store_in_use``, with the job.
    """
    for job in jobs:
        if job.output.uid == uid:
            raise Refused(
                "store_in_use",
                f"a job writes into the store {name}",
                found=f"{job.name} has it as its output",
                expected="a store that no job writes into",
                hint=_stopped_and_deleted(job),
            )


def _stopped_and_deleted(job: Job) -> str:
    return f"first stop the job and delete it: anew job stop {job.name}, anew job delete {job.name}"


def _topic_in_use(topic: Topic, found: str, hint: str) -> Refused:
    return Refused(
        "topic_in_use",
        f"a job uses the topic {topic.name}",
        found=found,
        expected="a topic that no job reads or writes into",
        hint=hint,
    )
