"""Stores: making, changing and deleting them, and what clients and planners need to know of them."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from anew.api.models import CreateStore, HoldVersion, RoutedVersion, Routing, SnapshotView, UpdateStore
from anew.catalog.change import Change, PutReclaim, PutRequest, PutStore, Reclaim
from anew.codec.avro import check_evolution, check_key_schema, parse_schema
from anew.controller.context import Context, Fabric, change_store, store_named
from anew.controller.nodes import node_urls
from anew.core import lifecycle
from anew.core.confighash import value_hash
from anew.core.errors import InvalidRequest, NotFound, Refused, Unreachable
from anew.core.feed import Feed, PositionMap
from anew.core.settings import SettingValue, Takes, defaults, did_you_mean, parse_settings
from anew.core.stamp import fabric_origin
from anew.core.store import (
    SERVABLE,
    Store,
    StoreConfig,
    check_store_name,
    takes_effect,
)
from anew.log.interface import TopicPartition, TopicSpec
from anew.segments.layout import store_path

_LOG = structlog.get_logger("anew.controller")
_OFFSET_ATTEMPTS = 3


def create_store(context: Context, request: CreateStore, actor: str) -> Store:
    """Make a store; idempotent by request id.

    Raises:
        InvalidRequest: ``bad_store_name``, ``bad_schema``, ``unknown_setting``, ``bad_setting``,
            ``request_id_reused``.
        Refused: ``store_exists``, ``topic_exists``.
    """
    body_hash = value_hash(request.model_dump(mode="json", exclude={"request_id"}))
    made = _made_before(context, request.request_id, body_hash)
    if made is not None:
        return made
    try:
        return _make_store(context, request, body_hash, actor)
    except Refused as error:
        # The same request may have been under way twice, and the other one was faster.
        made = None if error.code != "store_exists" else _made_before(context, request.request_id, body_hash)
        if made is None:
            raise
        return made


def _make_store(context: Context, request: CreateStore, body_hash: str, actor: str) -> Store:
    check_store_name(request.name)
    key_schema, value_schema = parse_schema(request.key_schema), parse_schema(request.value_schema)
    check_key_schema(key_schema)
    config = StoreConfig.model_validate(defaults() | parse_settings(request.settings))
    if context.catalog.store(request.name) is not None:
        raise Refused("store_exists", f"there is a store {request.name} already", found=request.name)
    store = Store(
        uid=context.new_id(),
        name=request.name,
        revision=0,
        created_at_ms=context.clock(),
        key_schema=key_schema.canonical,
        schemas={context.catalog.next_number("schema_id"): value_schema.canonical},
        config=config,
        fabrics=tuple(context.fabrics),
        current=dict.fromkeys(context.fabrics, 0),
        next_version=context.catalog.next_version(request.name),
    )
    if config.hybrid:
        store = with_real_time_feeds(context, store)
        _check_topics(context, store)
    operation = context.operation("create store", request.name, actor)
    known_request = () if request.request_id is None else (PutRequest(request.request_id, body_hash, store.uid),)
    context.catalog.commit(Change(operation, (PutStore(store, None), *known_request)))
    return _with_topics(context, store.uid)


def update_store(context: Context, name: str, request: UpdateStore, actor: str) -> Store:
    """Change settings or add a value schema; live settings act at once, frozen ones with the next version.

    Raises:
        InvalidRequest: ``unknown_setting``, ``bad_setting``, ``bad_schema``, ``incompatible_schema``,
            ``fixed_setting``.
        Refused: ``hybrid_fixed``: the store has a version already.
    """
    store = store_named(context, name)
    settings = parse_settings(request.settings)
    fixed = [s for s in settings if takes_effect(s) is Takes.FIXED and settings[s] != getattr(store.config, s)]
    if fixed:
        raise InvalidRequest(
            "fixed_setting",
            f"{fixed[0]} is chosen when the store is made",
            found=settings[fixed[0]],
            expected=getattr(store.config, fixed[0]),
            hint="make a new store and push into it",
        )
    schema_id = None
    if request.value_schema is not None:
        new = parse_schema(request.value_schema)
        check_evolution([parse_schema(text) for text in store.schemas.values()], new)
        if new.canonical not in store.schemas.values():
            schema_id = context.catalog.next_number("schema_id"), new.canonical

    def change(present: Store) -> tuple[Store, tuple[()]]:
        after = _with_settings(context, present, settings)
        if schema_id is not None:
            after = after.model_copy(update={"schemas": {**after.schemas, schema_id[0]: schema_id[1]}})
        return after, ()

    detail = {"settings": dict(settings), "schema": schema_id is not None}
    changed = change_store(context, store.uid, context.operation("update store", name, actor, **detail), change)
    return _with_topics(context, changed.uid)


def delete_store(context: Context, name: str, actor: str) -> Store:
    """Delete a store: at once for everybody who reads or writes; its files and topics go after the grace.

    Raises:
        Refused: ``rebuild_running``.
    """
    now_ms = context.clock()
    due_ms = now_ms + int(context.limits.reclaim_grace_seconds * 1000)

    def change(present: Store) -> tuple[Store, tuple[PutReclaim, ...]]:
        making = present.in_the_making()
        if making is not None:
            raise Refused(
                "rebuild_running",
                f"a rebuild of {name} is running",
                found=making.rebuild,
                hint=f"anew rebuild kill {making.rebuild}",
            )
        reclaims = [
            Reclaim(f"{present.uid}/files/{f}", "tree", f, store_path(present.uid), due_ms, f"{name} was deleted")
            for f in present.fabrics
        ]
        reclaims += [
            Reclaim(f"{present.uid}/{x.id}", "topic", x.fabric, f"{x.topic}\n{x.topic_uid}", due_ms, f"{name} deleted")
            for x in present.feeds
        ]
        return present.model_copy(update={"deleted_at_ms": now_ms}), tuple(PutReclaim(r) for r in reclaims)

    store = store_named(context, name)
    return change_store(context, store.uid, context.operation("delete store", name, actor), change)


def _with_topics(context: Context, uid: str) -> Store:
    """The store with its topics, as far as the logs answer: what is announced is made by the next rounds."""
    try:
        return ensure_feeds(context, uid)
    except Unreachable as error:
        _LOG.warning("topics_wait", **error.to_json())
    store = context.catalog.store_by_uid(uid)
    if store is None:
        raise NotFound("unknown_store", "the store is gone", found=uid)
    return store


def hold_version(context: Context, name: str, request: HoldVersion, actor: str) -> Store:
    """Keep a version for a long read (rule R15).

    Raises:
        NotFound: ``unknown_version``.
        Refused: ``version_gone``.
    """
    store = store_named(context, name)
    until_ms = context.clock() + request.seconds * 1000
    operation = context.operation("hold version", name, actor, version=request.version, until_ms=until_ms)
    return change_store(context, store.uid, operation, lambda s: (lifecycle.hold(s, request.version, until_ms), ()))


def ensure_feeds(context: Context, uid: str) -> Store:
    """Make the topics that the catalog has announced: intent first, then the act (rule R22)."""
    store = context.catalog.store_by_uid(uid)
    if store is None:
        raise NotFound("unknown_store", "the store is gone", found=uid)
    waiting = [feed for feed in store.feeds if not feed.ready]
    if not waiting:
        return store
    for feed in waiting:
        log = context.fabrics[feed.fabric].log
        present = log.topic(feed.topic)
        if present is not None and present.uid in _topics_of_deleted_stores(context):
            # Its store is gone and its name is needed: nobody reads it during the rest of the grace (rule R16).
            log.delete_topic(feed.topic, present.uid)
        log.create_topic(TopicSpec(feed.topic, feed.topic_uid, feed.partitions))

    def change(present: Store) -> tuple[Store, tuple[()]]:
        feeds = tuple(f.model_copy(update={"ready": True}) if f in waiting else f for f in present.feeds)
        return present.model_copy(update={"feeds": feeds}), ()

    return change_store(context, uid, context.operation("topics made", store.name, "controller"), change)


def _check_topics(context: Context, store: Store) -> None:
    """Refuse before anything is made when a topic of that name belongs to somebody else."""
    for feed in store.feeds:
        present = context.fabrics[feed.fabric].log.topic(feed.topic)
        if present is not None and present.uid not in _topics_of_deleted_stores(context):
            raise Refused(
                "topic_exists",
                f"the log of {feed.fabric} has a topic {feed.topic} already",
                found=f"uid {present.uid}",
                expected="no topic of that name",
                hint="choose another name for the store, or remove the topic",
            )


def _topics_of_deleted_stores(context: Context) -> set[str]:
    return {feed.topic_uid for store in context.catalog.deleted_stores() for feed in store.feeds}


def with_real_time_feeds(context: Context, store: Store) -> Store:
    """The store with an announced real-time topic in each fabric; a feed id is never used twice (rule R3)."""
    topic = f"{store.name}_rt"
    feeds = tuple(
        Feed(
            fabric=fabric,
            topic=topic,
            topic_uid=context.new_id(),
            incarnation=context.catalog.next_number(f"incarnation/{fabric}/{topic}"),
            partitions=store.config.rt_partitions,
            partitioner=store.config.rt_partitioner,
            origin=fabric_origin(fabric).encoded.hex(),
            skew_limit_ms=store.config.skew_limit_seconds * 1000,
            low_water=(0,) * store.config.rt_partitions,
        )
        for fabric in store.fabrics
    )
    return store.model_copy(update={"feeds": feeds})


def snapshot(context: Context, name: str, at_ms: int | None) -> SnapshotView:
    """All that a plan depends on, read at one moment; with the feeds' offsets at a time when one is given.

    Raises:
        Unreachable: An end offset could not be read; it is never taken for "empty" (case B4).
    """
    store = store_named(context, name)
    done = [r for r in context.catalog.rebuilds(store_uid=store.uid, running_only=False) if r.records_per_s]
    return SnapshotView(
        store=store,
        ends=ends_of(context.fabrics, store.feeds),
        at_time=NOT_ASKED if at_ms is None else offsets_at(context.fabrics, store.feeds, at_ms),
        base_files={v.number: v.manifest.files for v in store.versions if v.manifest is not None},
        records_per_second=done[0].records_per_s if done else None,
        now_ms=context.clock(),
    )


NOT_ASKED = PositionMap()


def ends_of(fabrics: Mapping[str, Fabric], feeds: tuple[Feed, ...]) -> PositionMap:
    """The end of every partition of the feeds, each asked for a few times before it counts as unreachable."""
    ends = {}
    for feed in feeds:
        for at in feed.feed_partitions():
            topic = TopicPartition(feed.topic, feed.topic_uid, at.partition)
            ends[at] = _end(fabrics[feed.fabric], topic)
    return PositionMap(ends)


def _end(fabric: Fabric, topic: TopicPartition) -> int:
    for attempt in range(_OFFSET_ATTEMPTS):
        try:
            return fabric.log.offsets(topic).end
        except Unreachable:
            if attempt == _OFFSET_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable: the last attempt raises or returns")


def offsets_at(fabrics: Mapping[str, Fabric], feeds: tuple[Feed, ...], at_ms: int) -> PositionMap:
    """Per feed partition the first offset appended at or after a time."""
    return PositionMap(
        {
            at: fabrics[feed.fabric].log.offset_for_time(
                TopicPartition(feed.topic, feed.topic_uid, at.partition), at_ms
            )
            for feed in feeds
            for at in feed.feed_partitions()
        }
    )


def routing(context: Context, name: str, fabric: str | None) -> Routing:
    """What a client caches: which node holds which partition of which version, and where writes go.

    Raises:
        InvalidRequest: ``unknown_fabric``.
    """
    store = store_named(context, name)
    chosen = fabric_named(context, fabric)
    versions = {
        version.number: RoutedVersion(
            partitions=version.config.partitions,
            partitioner=version.config.partitioner,
            replicas=version.assignment.get(chosen.name, {}),
        )
        for version in store.versions
        if version.statuses.get(chosen.name) in SERVABLE
    }
    ready = [feed for feed in store.feeds if feed.fabric == chosen.name and feed.ready]
    return Routing(
        name=store.name,
        uid=store.uid,
        revision=store.revision,
        fabric=chosen.name,
        current=store.current.get(chosen.name, 0),
        key_schema=store.key_schema,
        schemas=store.schemas,
        versions=versions,
        nodes=node_urls(context),
        feed=ready[-1] if ready else None,
        log=chosen.log_location,
        reads=store.config.reads,
        writes=store.config.writes,
        max_value_bytes=store.config.max_value_bytes,
    )


def fabric_named(context: Context, name: str | None) -> Fabric:
    """The fabric of that name, the first one for None.

    Raises:
        InvalidRequest: ``unknown_fabric``.
    """
    if name is None:
        return next(iter(context.fabrics.values()))
    if name not in context.fabrics:
        raise InvalidRequest(
            "unknown_fabric",
            f"there is no fabric {name}",
            found=name,
            expected=", ".join(context.fabrics),
            hint=did_you_mean(name, context.fabrics),
        )
    return context.fabrics[name]


def _with_settings(context: Context, store: Store, settings: Mapping[str, SettingValue]) -> Store:
    config = StoreConfig.model_validate(store.config.model_dump() | dict(settings))
    if config.hybrid != store.config.hybrid and store.versions:
        raise Refused(
            "hybrid_fixed",
            f"{store.name} has a version: whether it is hybrid cannot be changed yet",
            found=f"hybrid = {config.hybrid}",
            expected=f"hybrid = {store.config.hybrid}",
            hint="make a new store and push into it",
        )
    changed = store.model_copy(update={"config": config})
    return with_real_time_feeds(context, changed) if config.hybrid and not store.feeds else changed


def _made_before(context: Context, request_id: str | None, body_hash: str) -> Store | None:
    """The store that a request id made; None for a new request.

    Raises:
        InvalidRequest: ``request_id_reused``.
    """
    known = None if request_id is None else context.catalog.request(request_id)
    if known is None:
        return None
    store = context.catalog.store_by_uid(known.result)
    if known.body_hash != body_hash or store is None:
        raise InvalidRequest(
            "request_id_reused",
            "the request id was used before with another body",
            found=request_id,
            expected="a new id for a new request",
        )
    return store
