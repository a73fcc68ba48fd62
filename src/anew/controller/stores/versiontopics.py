"""The topics that bases go through: announced with their version, made in the logs, and gone with it (rule R23)."""

from __future__ import annotations

import structlog

from anew.catalog.change import PutReclaim, Reclaim
from anew.controller.engine.context import Context
from anew.controller.engine.fabrics import check_no_topic
from anew.controller.stores.records import change_store
from anew.core.errors import Refused, Unreachable
from anew.core.stores.store import IN_THE_MAKING, Frozen, Store, Version, VersionStatus, VersionTopic
from anew.log.interface import TopicSpec, record_bytes

_GONE = frozenset({VersionStatus.RETIRED, VersionStatus.RECLAIMED})
_LEAST_VALUE_BYTES = 16 << 20
"""Values may be older than the limit that is set now, and SOP carries a dictionary."""

_LOG = structlog.get_logger("anew.controller")


def announced(context: Context, name: str, config: Frozen, fabrics: tuple[str, ...]) -> dict[str, VersionTopic]:
    """The topics of a version that is about to begin; none where its base goes to files.

    Raises:
        Refused: ``topic_exists``: somebody else has a topic of that name.
        Unreachable: The log does not answer.
    """
    if not config.through_log:
        return {}
    for fabric in fabrics:
        hint = "remove the topic: no version of this store made it"
        check_no_topic(context.fabrics[fabric], name, hint=hint)
    return {fabric: VersionTopic(name=name, uid=context.new_id()) for fabric in fabrics}


def make_version_topics(context: Context, store: Store) -> None:
    """Make the topics that versions in the making have announced; what cannot be made now waits for the next round."""
    for version in store.versions:
        for fabric, there in version.fabrics.items():
            topic = there.topic
            if topic is not None and not topic.ready and there.status in IN_THE_MAKING:
                try:
                    _make(context, store, version, fabric, topic)
                except (Refused, Unreachable) as error:
                    _LOG.warning("topic_waits", store=store.name, topic=topic.name, **error.to_json())


def topics_to_reclaim(version: Version, fabric: str, due_ms: int, why: str) -> list[PutReclaim]:
    """The note that a version's topic is to go with its files."""
    topic = version.fabrics[fabric].topic
    if topic is None:
        return []
    target = f"{topic.name}\n{topic.uid}"
    return [PutReclaim(Reclaim(f"{version.path}@{fabric}/topic", "topic", fabric, target, due_ms, why))]


def topics_left(store: Store, due_ms: int, why: str) -> list[PutReclaim]:
    """The notes for a store that is deleted; those of retired versions are noted already."""
    return [
        note
        for version in store.versions
        for fabric, there in version.fabrics.items()
        if there.status not in _GONE
        for note in topics_to_reclaim(version, fabric, due_ms, why)
    ]


def _make(context: Context, store: Store, version: Version, fabric: str, topic: VersionTopic) -> None:
    """Make one topic; a crash after it is made leaves one that the next round finds made, as it is of the same uid."""
    log = context.fabrics[fabric].log
    value_bytes = max(store.config.max_value_bytes, _LEAST_VALUE_BYTES)
    spec = TopicSpec(topic.name, topic.uid, version.config.sub_partitions, record_bytes(value_bytes))
    made = log.create_topic(spec)
    is_late = False

    def change(present: Store) -> tuple[Store, tuple[()]]:
        nonlocal is_late
        now = present.version(version.number)
        is_late = now is None or now.fabrics[fabric].status in _GONE
        if now is None or is_late:
            return present, ()
        ready = topic.model_copy(update={"uid": made.uid, "ready": True})
        changed = now.moved((fabric,), topic=ready)
        versions = tuple(changed if v.number == now.number else v for v in present.versions)
        return present.model_copy(update={"versions": versions}), ()

    operation = context.operation("version topic made", store.name, "controller", version=version.number)
    change_store(context, store.uid, operation, change)
    if is_late:
        # It was to go before it was made.
        log.delete_topic(topic.name, made.uid)
