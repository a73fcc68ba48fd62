"""The log's side of topics: what the catalog has announced is made, and a crash in between is finished (rule R22).

(1) The catalog holds the topic, not ready, with a uid that was chosen for the log. (2) The log makes the topic under
that uid. (3) The catalog notes the identity that the log gave it. After a crash behind (1) or (2) the next round, or a
repeat of the request, makes the topic again under the same uid, and finds it where it was made.

Partitions are added alike. (1) The catalog says how many the topic is to get. (2) The log adds them. (3) The catalog
notes them, and writers that are made from now on use them. After a crash behind (1) or (2) the next round, or a repeat
of the request, asks the log for the same number, which changes nothing where it has as many.
"""

from __future__ import annotations

from anew.controller.engine.context import Context
from anew.controller.topics.records import change_topic, topic_with
from anew.core.topics.topic import Kept, Topic, grown
from anew.log.interface import Retention, TopicSpec


def make_announced(context: Context, uid: str) -> Topic:
    """Make the log's topic, if it was not made yet.

    Raises:
        NotFound: ``unknown_topic``.
        Refused: ``topic_exists``: somebody else made a topic of that name meanwhile.
        Unreachable: The log does not answer.
    """
    topic = topic_with(context, uid)
    if topic.ready or topic.deleted_at_ms is not None:
        return topic
    log = context.fabrics[topic.fabric].log
    for left in topics_of_deleted(context, topic.fabric, topic.name):
        # Its topic was deleted and its name is needed: nobody asks for it during the rest of the grace (rule R16).
        log.delete_topic(topic.name, left)
    made = log.create_topic(spec_of(topic))

    def change(present: Topic) -> tuple[Topic, tuple[()]]:
        return present.model_copy(update={"ready": True, "topic_uid": made.uid}), ()

    after = change_topic(context, uid, context.operation("topic made", topic.name, "controller"), change)
    if after.deleted_at_ms is not None:
        # It was to go before it was made.
        log.delete_topic(topic.name, made.uid)
    return after


def add_announced_partitions(context: Context, uid: str) -> Topic:
    """Give the log's topic the partitions that it is to get, if it has fewer.

    Raises:
        NotFound: ``unknown_topic``.
        Failed: ``topic_lost``.
        Unreachable: The log does not answer.
    """
    topic = topic_with(context, uid)
    if topic.growing_to is None or topic.deleted_at_ms is not None:
        return topic
    log = context.fabrics[topic.fabric].log
    found = log.partition_count(topic.name, topic.topic_uid)
    # Somebody else may have added more meanwhile.
    made = max(found, topic.growing_to)
    if found < made:
        made = log.add_partitions(topic.name, topic.topic_uid, made)
    operation = context.operation("partitions added", topic.name, "controller", partitions=made)
    return change_topic(context, uid, operation, lambda present: (grown(present, made), ()))


def spec_of(topic: Topic) -> TopicSpec:
    """A topic as its log is asked for it."""
    return TopicSpec(topic.name, topic.topic_uid, topic.partitions, retention=retention_of(topic.kept))


def retention_of(kept: Kept) -> Retention:
    """What a log is told that is to keep so much."""
    return Retention(kept.time_ms, kept.partition_bytes)


def topics_of_deleted(context: Context, fabric: str, name: str) -> set[str]:
    """The log's uids of topics of that name that were deleted and may still be in the log."""
    gone = context.catalog.deleted_topics()
    return {topic.topic_uid for topic in gone if (topic.fabric, topic.name) == (fabric, name)}
