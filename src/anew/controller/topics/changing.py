"""Making, growing and deleting topics of our own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import structlog

from anew.api.topics import AlterTopic, CreateTopic
from anew.catalog.change import DropBatches, Put, PutReclaim, PutRequest, PutTopic, Reclaim
from anew.codec.avro import check_key_schema, parse_schema
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.controller.engine.fabrics import check_no_topic, fabric_named
from anew.controller.engine.requests import made_before
from anew.controller.engine.schemaids import schema_number
from anew.controller.topics.making import add_announced_partitions, make_announced, topics_of_deleted
from anew.controller.topics.records import change_topic, topic_named, topic_with
from anew.core.confighash import value_hash
from anew.core.errors import Failed, InvalidRequest, Refused, Unreachable
from anew.core.jobs.batch import EVERY_BATCH
from anew.core.jobs.uses import check_topic_grows, check_topic_unused
from anew.core.topics.ddl import parse_columns_ddl
from anew.core.topics.topic import (
    Kept,
    Topic,
    TopicFormat,
    check_partitions,
    check_topic_name,
    fewer_partitions,
    growing,
    not_growing,
)

_DESCRIBES: dict[TopicFormat, set[str]] = {
    TopicFormat.AVRO: {"key_schema", "value_schema"},
    TopicFormat.JSON: {"columns"},
    TopicFormat.BYTES: set(),
}
_EXPECTED = {
    TopicFormat.AVRO: "key_schema and value_schema",
    TopicFormat.JSON: "columns, or nothing",
    TopicFormat.BYTES: "nothing",
}
_LOG = structlog.get_logger("anew.controller")


def create_topic(context: Context, request: CreateTopic, actor: str) -> Topic:
    """Make a topic; idempotent by request id. Where the log does not answer, the next rounds make it.

    Raises:
        InvalidRequest: ``bad_topic_name``, ``bad_partitions``, ``bad_schema``, ``bad_columns``, ``bad_topic_format``,
            ``unknown_fabric``, ``request_id_reused``.
        Refused: ``topic_exists``; as `schema_number`, and so are others.
    """
    body_hash = value_hash(request.model_dump(mode="json", exclude={"request_id"}))
    uid = made_before(context, request.request_id, body_hash)
    if uid is None:
        try:
            uid = _announce(context, request, body_hash, actor)
        except (Refused, InvalidRequest) as error:
            # The same request may have been under way twice, and the other one was faster.
            is_lost = error.code in ("topic_exists", "request_id_reused")
            uid = made_before(context, request.request_id, body_hash) if is_lost else None
            if uid is None:
                raise
    try:
        return make_announced(context, uid)
    except Unreachable as error:
        _LOG.warning("topic_waits", topic=request.name, **error.to_json())
        return topic_with(context, uid)


def alter_topic(context: Context, name: str, request: AlterTopic, actor: str) -> Topic:
    """Give a topic more partitions; as many as it has: nothing. Where the log does not answer then, later rounds do it.

    Raises:
        NotFound: ``unknown_topic``.
        InvalidRequest: ``bad_partitions``.
        Refused: ``fewer_partitions``, ``topic_not_ready``; ``topic_in_use``: a generation of a job writes into it.
        Failed: ``topic_lost``.
        Unreachable: The log does not answer before anything is begun.
    """
    topic = topic_named(context, name)
    wanted = growing(topic, request.partitions)
    # Also what somebody else has added: the log refuses to take it away.
    found = context.fabrics[topic.fabric].log.partition_count(topic.name, topic.topic_uid)
    if request.partitions < found:
        raise fewer_partitions(name, found, request.partitions)
    if wanted is not topic:

        def change(present: Topic) -> tuple[Topic, tuple[Put, ...]]:
            check_topic_grows(present, context.catalog.jobs())
            return growing(present, request.partitions), ()

        operation = context.operation("alter topic", name, actor, partitions=request.partitions)
        change_topic(context, topic.uid, operation, change)
    try:
        return add_announced_partitions(context, topic.uid)
    except Unreachable as error:
        _LOG.warning("topic_waits", topic=name, **error.to_json())
        return topic_with(context, topic.uid)
    except (Failed, Refused):
        # The log will not: neither the rounds nor whoever asks for fewer are to wait for it.
        operation = context.operation("alter topic refused", name, actor, partitions=request.partitions)
        change_topic(context, topic.uid, operation, lambda present: (not_growing(present, request.partitions), ()))
        raise


def delete_topic(context: Context, name: str, actor: str) -> Topic:
    """Delete a topic: at once for everybody who asks for its name; the log's topic goes after the grace.

    Raises:
        NotFound: ``unknown_topic``.
        Refused: ``topic_in_use``: a job reads it, or writes into it.
    """

    def change(present: Topic) -> tuple[Topic, tuple[Put, ...]]:
        if present.deleted_at_ms is not None:
            return present, ()
        check_topic_unused(present, context.catalog.jobs())
        target, why = f"{present.name}\n{present.topic_uid}", f"the topic {name} was deleted"
        note = Reclaim(f"{present.uid}/topic", "topic", present.fabric, target, context.reclaim_due_ms(), why)
        after = present.model_copy(update={"deleted_at_ms": context.clock()})
        return after, (PutReclaim(note), *_unread(context, present))

    topic = topic_named(context, name)
    return change_topic(context, topic.uid, context.operation("delete topic", name, actor), change)


def _unread(context: Context, topic: Topic) -> Iterator[DropBatches]:
    """What is forgotten with a topic: which records of it counted, of generations of deleted jobs."""
    for job in context.catalog.deleted_jobs():
        for generation in job.generations:
            if generation.writes_to == topic.identity:
                yield DropBatches(job.uid, generation.number, EVERY_BATCH)


def _announce(context: Context, request: CreateTopic, body_hash: str, actor: str) -> str:
    """Commit the topic that is to be made; its uid."""
    check_topic_name(request.name)
    check_partitions(request.partitions)
    fabric = fabric_named(context, request.fabric)
    if context.catalog.topic(request.name) is not None:
        raise _exists(request.name)
    left = topics_of_deleted(context, fabric.name, request.name)
    check_no_topic(fabric, request.name, hint="choose another name, or remove the topic", besides=left)
    described = _described(context, request)
    seconds = request.retention_seconds
    topic = Topic(
        uid=context.new_id(),
        name=request.name,
        fabric=fabric.name,
        partitions=request.partitions,
        kept=Kept(time_ms=None if seconds is None else seconds * 1000, partition_bytes=request.retention_bytes),
        topic_uid=context.new_id(),
        incarnation=context.catalog.next_number(f"incarnation/{fabric.name}/{request.name}"),
        created_at_ms=context.clock(),
        **described,
    )
    known = () if request.request_id is None else (PutRequest(request.request_id, body_hash, topic.uid),)
    operation = context.operation("create topic", request.name, actor, format=topic.format.value)
    commit(context, operation, PutTopic(topic, None), *known)
    return topic.uid


def _described(context: Context, request: CreateTopic) -> dict[str, Any]:
    """The topic's format, and what goes with that format."""
    given = {"key_schema": request.key_schema, "value_schema": request.value_schema, "columns": request.columns}
    found = {name for name, value in given.items() if value is not None}
    of_format = request.format
    if of_format is None:
        of_format = TopicFormat.AVRO if found & {"key_schema", "value_schema"} else TopicFormat.JSON
    fits = found == _DESCRIBES[of_format] if of_format is TopicFormat.AVRO else found <= _DESCRIBES[of_format]
    if not fits:
        raise InvalidRequest(
            "bad_topic_format",
            f"a topic of the format {of_format.value} is not described by these",
            found=", ".join(sorted(found)) or "nothing",
            expected=_EXPECTED[of_format],
            hint="formats are avro, json and bytes",
        )
    if request.columns is not None:
        parse_columns_ddl(request.columns)
    if request.key_schema is None or request.value_schema is None:
        return {"format": of_format, "columns": request.columns}
    key_schema, value_schema = parse_schema(request.key_schema), parse_schema(request.value_schema)
    check_key_schema(key_schema)
    return {
        "format": of_format,
        "key_schema": key_schema.canonical,
        "key_schema_id": schema_number(context, f"{request.name}-key", key_schema.canonical),
        "value_schema": value_schema.canonical,
        "value_schema_id": schema_number(context, f"{request.name}-value", value_schema.canonical),
    }


def _exists(name: str) -> Refused:
    return Refused(
        "topic_exists",
        f"there is a topic {name} already",
        found=name,
        expected="a name that is not taken",
        hint=f"anew topic show {name}",
    )
