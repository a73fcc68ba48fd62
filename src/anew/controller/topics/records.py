"""Finding topics, and the one way to change a topic."""

from __future__ import annotations

from collections.abc import Callable

from anew.catalog.change import Operation, Put, PutTopic
from anew.controller.engine.commit import change_document, found_by_name
from anew.controller.engine.context import Context
from anew.core.errors import NotFound
from anew.core.topics.topic import Topic

TOPIC = "topic"


def topic_named(context: Context, name: str) -> Topic:
    """The live topic of that name.

    Raises:
        NotFound: ``unknown_topic``, with the nearest name.
    """
    catalog = context.catalog
    return found_by_name(TOPIC, name, catalog.topic(name), lambda: [other.name for other in catalog.topics()])


def topic_with(context: Context, uid: str) -> Topic:
    """The topic of that identity, deleted or not.

    Raises:
        NotFound: ``unknown_topic``.
    """
    topic = context.catalog.topic_by_uid(uid)
    if topic is None:
        raise NotFound("unknown_topic", "the topic is gone", found=uid, expected="a topic that is there")
    return topic


def change_topic(
    context: Context, uid: str, operation: Operation, change: Callable[[Topic], tuple[Topic, tuple[Put, ...]]]
) -> Topic:
    """Change a topic, deleted or not, see `change_document`.

    Raises:
        Refused: What ``change`` refuses; ``revision_conflict`` after many losses.
        NotFound: ``unknown_topic``.
    """
    return change_document(context, operation, lambda: topic_with(context, uid), PutTopic, change)
