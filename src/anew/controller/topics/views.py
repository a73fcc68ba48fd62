"""The shapes of the face that are about topics."""

from __future__ import annotations

from collections.abc import Sequence

from anew.api.topics import PartitionFactsView, TopicFactsView, TopicView
from anew.controller.engine.context import Context
from anew.core.errors import AnewError
from anew.core.jobs.job import Job
from anew.core.jobs.uses import written_by
from anew.core.topics.topic import Topic
from anew.log.interface import TopicFacts


def topic_views(context: Context, topics: Sequence[Topic]) -> tuple[TopicView, ...]:
    """The ``topic`` shape of each, without what the log says."""
    jobs = context.catalog.jobs()
    return tuple(_view(topic, jobs) for topic in topics)


def topic_view(context: Context, topic: Topic) -> TopicView:
    """The ``topic`` shape, without what the log says."""
    return _view(topic, context.catalog.jobs())


def _view(
    topic: Topic, jobs: Sequence[Job], facts: TopicFacts | None = None, log_error: str | None = None
) -> TopicView:
    return TopicView(
        name=topic.name,
        uid=topic.uid,
        fabric=topic.fabric,
        partitions=topic.partitions,
        growing_to=topic.growing_to,
        format=topic.format,
        key_schema=topic.key_schema,
        key_schema_id=topic.key_schema_id,
        value_schema=topic.value_schema,
        value_schema_id=topic.value_schema_id,
        columns=topic.columns,
        retention_seconds=_seconds(topic.kept.time_ms),
        retention_bytes=topic.kept.partition_bytes,
        topic_uid=topic.topic_uid,
        incarnation=topic.incarnation,
        ready=topic.ready,
        created_at=topic.created_at_ms,
        written_by=written_by(topic, jobs),
        held_by=() if topic.hold is None else tuple(holder.name for holder in topic.hold.by),
        facts=None if facts is None else _facts_view(facts),
        log_error=log_error,
    )


def topic_with_facts(context: Context, topic: Topic) -> TopicView:
    """The ``topic`` shape with what the log says now; what keeps the log from saying anything stands in it too."""
    if not topic.ready:
        return topic_view(context, topic)
    jobs = context.catalog.jobs()
    try:
        return _view(topic, jobs, context.fabrics[topic.fabric].log.facts(topic.name, topic.topic_uid))
    except AnewError as error:
        return _view(topic, jobs, log_error=str(error))


def _facts_view(facts: TopicFacts) -> TopicFactsView:
    return TopicFactsView(
        retention_seconds=_seconds(facts.retention.time_ms),
        retention_bytes=facts.retention.partition_bytes,
        compacted=facts.compacted,
        partitions=tuple(PartitionFactsView(begin=p.begin, end=p.end, oldest_ms=p.oldest_ms) for p in facts.partitions),
    )


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000
