"""Dead letters of jobs, with the records that the logs still hold of them."""

from __future__ import annotations

from dataclasses import dataclass

from anew.api.jobs.views import DeadLetterView
from anew.client.topicreads import TopicRecord
from anew.client.topics import Topic
from anew.core.errors import Failed


@dataclass(frozen=True, slots=True)
class DeadRecord:
    """A record that a generation has left out.

    Attributes:
        letter: Where it lies, and why.
        record: What the log holds there; None: it holds it no more, or the topic was made again or deleted.
        topic: Its topic as it is now; None: as of ``record``.
    """

    letter: DeadLetterView
    record: TopicRecord | None
    topic: Topic | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of the dead letters of a generation that were not replayed before.

    Attributes:
        replayed: How many records were given to their topics again.
        gone: How many the logs do not hold any more.
        unreadable: How many are not of their topic's format.
    """

    generation: int
    replayed: int
    gone: int
    unreadable: int


def dead_record(letter: DeadLetterView, topic: Topic | None) -> DeadRecord:
    """A dead letter with its record, read from its topic as that is now; None: it is another one by now, or none.

    Raises:
        Unreachable: The log does not answer.
    """
    if topic is None:
        return DeadRecord(letter, None, None)
    try:
        found = topic.read(letter.offset, partition=letter.partition, limit=1)
    except Failed:
        found = []
    record = found[0] if found and found[0].offset == letter.offset else None
    return DeadRecord(letter, record, topic)
