"""The feeds of stores and their topics: announced in the catalog first, then made, opened and closed in the logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import structlog

from anew.controller.engine.context import Context, Fabric
from anew.controller.engine.fabrics import check_no_topic
from anew.controller.stores.records import change_store
from anew.core.errors import AnewError, NotFound, Unreachable
from anew.core.feed import Feed, FeedKind, FeedPartition, PositionMap
from anew.core.stamp import fabric_origin
from anew.core.stores.names import incarnation_counter, real_time_topic
from anew.core.stores.store import Store
from anew.log.interface import TopicPartition, TopicSpec, record_bytes, topic_partition

_OFFSET_ATTEMPTS = 3
_LOG = structlog.get_logger("anew.controller")


def ensure_feeds(context: Context, uid: str) -> Store:
    """Make the topics that the catalog has announced: intent first, then the act (rule R22)."""
    store = context.catalog.store_by_uid(uid)
    if store is None:
        raise NotFound("unknown_store", "the store is gone", found=uid)
    waiting = [feed for feed in store.feeds if not feed.ready]
    if not waiting:
        return store
    made: dict[str, str] = {}
    for feed in waiting:
        log = context.fabrics[feed.fabric].log
        for left in topics_of_deleted_stores(context, feed.topic):
            # Its store is gone and its name is needed: nobody reads it during the rest of the grace (rule R16).
            log.delete_topic(feed.topic, left)
        made[feed.id] = log.create_topic(spec_of(store, feed)).uid

    def change(present: Store) -> tuple[Store, tuple[()]]:
        feeds = tuple(
            f.model_copy(update={"ready": True, "topic_uid": made[f.id]}) if f in waiting else f for f in present.feeds
        )
        return present.model_copy(update={"feeds": feeds}), ()

    return change_store(context, uid, context.operation("topics made", store.name, "controller"), change)


def spec_of(store: Store, feed: Feed) -> TopicSpec:
    """A feed's topic as the log is asked for it; it takes whatever record writers may write."""
    return TopicSpec(feed.topic, feed.topic_uid, feed.partitions, record_bytes(store.config.max_value_bytes))


def check_topics(context: Context, store: Store) -> None:
    """Refuse before anything is made when a topic of that name belongs to somebody else."""
    for feed in store.feeds:
        left = topics_of_deleted_stores(context, feed.topic)
        hint = "choose another name for the store, or remove the topic"
        check_no_topic(context.fabrics[feed.fabric], feed.topic, hint=hint, besides=left)


def topics_of_deleted_stores(context: Context, name: str) -> set[str]:
    """The uids of topics of that name whose store was deleted and that may still be there."""
    return {feed.topic_uid for store in context.catalog.deleted_stores() for feed in store.feeds if feed.topic == name}


def with_real_time_feeds(context: Context, store: Store) -> Store:
    """The store with an announced real-time topic in each fabric besides; a feed id is never used twice (rule R3)."""
    topic = real_time_topic(store.name)
    feeds = tuple(
        Feed(
            fabric=fabric,
            topic=topic,
            topic_uid=context.new_id(),
            incarnation=context.catalog.next_number(incarnation_counter(store.name, fabric)),
            partitions=store.config.rt_partitions,
            partitioner=store.config.rt_partitioner,
            origin=fabric_origin(fabric).encoded.hex(),
            key_schema_id=store.key_schema_id,
            skew_limit_ms=store.config.skew_limit_seconds * 1000,
            low_water=(0,) * store.config.rt_partitions,
        )
        for fabric in store.fabrics
    )
    return store.model_copy(update={"feeds": (*store.feeds, *feeds)})


def open_and_close(context: Context, store: Store) -> Store:
    """Let the logs accept writes just where the store does (rule R10); returns the store as it is then.

    Intent first (rule R22): a feed is *moving* from before its log is told until the catalog knows that it was. So what
    a crash, or a change of the store, leaves half done is never taken for done. The store's revision is the epoch:
    whoever decided on an older store cannot undo in a log what was decided on a newer one.
    """
    if not to_be_told(store):
        return store
    operation = context.operation("open or close topics", store.name, "controller")
    store = change_store(context, store.uid, operation, _announced)
    told = {feed.id: _accepts(store, feed) for feed in store.feeds if _to_be_told(store, feed)}
    for feed in store.feeds:
        if feed.id in told:
            spec = spec_of(store, feed)
            context.fabrics[feed.fabric].log.set_open(spec, is_open=told[feed.id], epoch=store.revision)

    def change(present: Store) -> tuple[Store, tuple[()]]:
        if present.revision != store.revision:
            # Something was decided meanwhile: the next round tells the logs again, with a greater epoch.
            return present, ()
        feeds = tuple(
            feed.model_copy(update={"open": told[feed.id], "moving": False}) if feed.id in told else feed
            for feed in present.feeds
        )
        return present.model_copy(update={"feeds": feeds}), ()

    operation = context.operation("topics opened or closed", store.name, "controller", open=told)
    return change_store(context, store.uid, operation, change)


def look_at_partitions(context: Context, store: Store) -> None:
    """Note it where a topic does not have the partitions any more that it was made with (rule R8).

    Nobody reads the ones that came later. What our writers write is not there, but other people's producers spread
    their records over all that there are.
    """
    found: dict[str, int | None] = {}
    for feed in store.feeds:
        try:
            present = context.fabrics[feed.fabric].log.topic(feed.topic) if feed.ready else None
        except AnewError as error:
            _LOG.warning("topic_not_seen", store=store.name, topic=feed.topic, **error.to_json())
            continue
        if present is not None and present.uid == feed.topic_uid:
            found[feed.id] = None if present.partitions == feed.partitions else present.partitions
    if all(found.get(feed.id, feed.partitions_in_log) == feed.partitions_in_log for feed in store.feeds):
        return

    def change(present: Store) -> tuple[Store, tuple[()]]:
        feeds = tuple(
            feed.model_copy(update={"partitions_in_log": found.get(feed.id, feed.partitions_in_log)})
            for feed in present.feeds
        )
        return present.model_copy(update={"feeds": feeds}), ()

    operation = context.operation("partitions of topics changed", store.name, "controller", found=found)
    change_store(context, store.uid, operation, change)


def to_be_told(store: Store) -> bool:
    """Whether a log still accepts, or refuses, writes that the store does not."""
    return any(_to_be_told(store, feed) for feed in store.feeds)


def _to_be_told(store: Store, feed: Feed) -> bool:
    return feed.ready and (feed.moving or feed.open != _accepts(store, feed))


def _accepts(store: Store, feed: Feed) -> bool:
    """Whether a log is to accept records of a feed: those of a job whether the store takes nearline writes or not."""
    return feed.open if feed.kind is FeedKind.GENERATION else store.writable(feed)


def _announced(present: Store) -> tuple[Store, tuple[()]]:
    feeds = tuple(
        feed.model_copy(update={"moving": True}) if _to_be_told(present, feed) else feed for feed in present.feeds
    )
    return present.model_copy(update={"feeds": feeds}), ()


def ends_of(fabrics: Mapping[str, Fabric], feeds: tuple[Feed, ...]) -> PositionMap:
    """The end of every partition of the feeds, each asked for a few times before it counts as unreachable.

    Of a job's feed whose topic is still to be made it is known: no generation appends before it is there.
    """
    ends = {}
    for feed in feeds:
        for at in feed.feed_partitions():
            topic = topic_partition(feed, at.partition)
            ends[at] = 0 if is_to_be_made(feed) else _end(fabrics[feed.fabric], topic)
    return PositionMap(ends)


def is_to_be_made(feed: Feed) -> bool:
    """Whether a job's feed is announced, and no log has its topic yet."""
    return feed.kind is FeedKind.GENERATION and not feed.ready


def _end(fabric: Fabric, topic: TopicPartition) -> int:
    for attempt in range(_OFFSET_ATTEMPTS):
        try:
            return fabric.log.offsets(topic).end
        except Unreachable:
            if attempt == _OFFSET_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable: the last attempt raises or returns")


def offsets_at(
    fabrics: Mapping[str, Fabric], feeds: tuple[Feed, ...], at_ms: int, only: Collection[FeedPartition] | None = None
) -> PositionMap:
    """Per feed partition, only some unless None, the first offset appended at or after a time."""
    return PositionMap(
        {
            at: 0
            if is_to_be_made(feed)
            else fabrics[feed.fabric].log.offset_for_time(topic_partition(feed, at.partition), at_ms)
            for feed in feeds
            for at in feed.feed_partitions()
            if only is None or at in only
        }
    )
