"""A topic as the output of jobs: each generation writes into a topic of its own, ``<topic>_g<N>``.

They have the schemas, the partitions and the retention of the topic that the job names. Which of them readers are to
ask is what the job says. Records of attempts that died and of batches that ran again lie there too:
`anew.core.jobs.committed` tells those that count.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from anew.api.jobs.place import OutputPlace
from anew.catalog.change import Put, PutReclaim, PutTopic, Reclaim
from anew.controller.engine.context import Context
from anew.controller.engine.outputs import Opened, Output, Owned, Writer
from anew.controller.topics.making import make_announced
from anew.controller.topics.records import TOPIC, topic_named
from anew.core.errors import Refused
from anew.core.jobs.uses import check_topic_unread
from anew.core.topics.topic import Topic, TopicFormat

SKEW_LIMIT_MS = 60_000
"""How far ahead of its append time a record's time may be."""


class TopicOutput(Output):
    """Topics of our own."""

    kind: ClassVar[str] = TOPIC
    by_key: ClassVar[bool] = False

    def uid_of(self, context: Context, name: str) -> str:
        """See `Output.uid_of`.

        Raises:
            NotFound: ``unknown_topic``.
            Refused: ``not_avro``: a job's records have schemas.
        """
        topic = topic_named(context, name)
        _check_avro(topic)
        return topic.uid

    def open(self, context: Context, writer: Writer) -> Opened:
        """See `Output.open`.

        Raises:
            NotFound: ``unknown_topic``.
            Refused: ``topic_exists``: somebody made a topic of the generation's name.
        """
        if writer.goes_on and writer.replaces is not None:
            return Opened(writer.replaces)
        like = topic_named(context, writer.name)
        _check_avro(like)
        name = f"{writer.name}_g{writer.origin.generation}"
        if context.catalog.topic(name) is not None:
            raise Refused(
                "topic_exists",
                f"the topic that {writer.origin} is to write into is there already",
                found=name,
                expected="a name that nobody has taken",
                hint=f"anew topic show {name}: another job's output stays; else anew topic delete {name}",
            )
        changes = {
            "uid": context.new_id(),
            "name": name,
            "topic_uid": context.new_id(),
            "incarnation": context.catalog.next_number(f"incarnation/{like.fabric}/{name}"),
            "ready": False,
            "growing_to": None,
            "created_at_ms": context.clock(),
            "revision": 0,
        }
        made = like.model_copy(update=changes)
        return Opened(made.identity, puts=(PutTopic(made, None),))

    def made(self, context: Context, name: str, where: str) -> OutputPlace | None:
        """See `Output.made`."""
        found = _found(context, where)
        if found is None:
            return None
        topic = found if found.ready else make_announced(context, found.uid)
        if not topic.ready or topic.key_schema is None or topic.value_schema is None:
            return None
        return OutputPlace(
            fabric=topic.fabric,
            topic=topic.name,
            topic_uid=topic.topic_uid,
            partitions=topic.partitions,
            key_schema=topic.key_schema,
            key_schema_id=topic.key_schema_id or 0,
            value_schema=topic.value_schema,
            value_schema_id=topic.value_schema_id or 0,
            skew_limit_ms=SKEW_LIMIT_MS,
        )

    def can_serve_again(self, context: Context, name: str, where: str) -> bool:
        """A topic stays until it is reclaimed: others than jobs may read it."""
        return True

    def served(self, context: Context, name: str, where: str) -> bool:
        """What was appended can be read."""
        found = _found(context, where)
        return found is not None and found.ready

    def cut_over(self, context: Context, name: str, before: str | None, after: str) -> tuple[Put, ...]:
        """Nothing but the job itself: it says which topic is asked.

        Raises:
            Refused: ``output_not_made``.
        """
        if not self.served(context, name, after):
            raise Refused(
                "output_not_made",
                f"the topic {after} is not there",
                found="no topic",
                expected="a topic that can be read",
                hint=f"anew topic show {after}",
            )
        return ()

    def owned(self, context: Context, name: str, where: str) -> tuple[Owned, ...]:
        """The topic."""
        topic = _found(context, where)
        if topic is None or not topic.ready:
            return ()
        facts = context.fabrics[topic.fabric].log.facts(topic.name, topic.topic_uid)
        return (Owned("topic", topic.name, records=sum(each.end - each.begin for each in facts.partitions)),)

    def close(self, context: Context, name: str, where: Collection[str]) -> tuple[Put, ...]:
        """The generations' topics are deleted; those of the log go after the grace.

        Raises:
            Refused: ``topic_in_use``: a job reads one.
        """
        topics = [topic for topic in (_found(context, one) for one in where) if topic is not None]
        for topic in topics:
            check_topic_unread(topic, context.catalog.jobs())
        return tuple(put for topic in topics for put in _deleted(context, topic))

    def gone(self, context: Context, name: str, where: str) -> tuple[Put, ...] | None:
        """Nothing is left to do: what is deleted goes by itself."""
        return ()

    def is_read(self, context: Context, where: str) -> bool:
        """A topic is read for as long as it is there: also that of a deleted job's last generation."""
        return _found(context, where) is not None


def _deleted(context: Context, topic: Topic) -> tuple[PutTopic, PutReclaim]:
    target, why = f"{topic.name}\n{topic.topic_uid}", f"the generation that wrote into {topic.name} was retired"
    note = Reclaim(f"{topic.uid}/topic", "topic", topic.fabric, target, context.reclaim_due_ms(), why)
    gone = topic.model_copy(update={"deleted_at_ms": context.clock()})
    return PutTopic(gone, topic.revision), PutReclaim(note)


def _found(context: Context, where: str) -> Topic | None:
    """The topic that was made for a generation, and no later one of its name."""
    found = context.catalog.topic(where.partition("#")[0])
    return found if found is not None and found.identity == where else None


def _check_avro(topic: Topic) -> None:
    if topic.format is not TopicFormat.AVRO:
        raise Refused(
            "not_avro",
            f"jobs do not write into {topic.name}: what they give has schemas",
            found=f"format {topic.format.value}",
            expected=f"format {TopicFormat.AVRO.value}",
            hint="make a topic with --key-schema and --value-schema",
        )
