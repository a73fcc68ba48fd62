"""Stores: making, changing and deleting them, and what clients and planners need to know of them."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from anew.api.models import CreateStore, HoldVersion, RoutedVersion, Routing, SnapshotView, UpdateStore
from anew.catalog.change import Change, PutFlag, PutReclaim, PutRequest, PutStore
from anew.codec.avro import check_evolution, check_key_schema, parse_schema
from anew.controller.configuring import configured
from anew.controller.context import Context, Fabric, change_store, made_before, request_id_reused, store_named
from anew.controller.feeds import check_topics, ends_of, ensure_feeds, offsets_at, with_real_time_feeds
from anew.controller.nodes import live_reports, node_urls, replicas_of
from anew.controller.readiness import is_loaded
from anew.controller.reclaim import all_of
from anew.controller.schemas import key_schema_id, value_schema_id
from anew.core import lifecycle
from anew.core.confighash import value_hash
from anew.core.errors import InvalidRequest, NotFound, Refused, Unreachable
from anew.core.feed import PositionMap
from anew.core.plan import pace_of
from anew.core.settings import SettingValue, Takes, defaults, parse_settings
from anew.core.store import (
    SERVABLE,
    Store,
    Version,
    check_store_name,
    real_time_topic,
    takes_effect,
)
from anew.core.suggest import did_you_mean

_LOG = structlog.get_logger("anew.controller")


def create_store(context: Context, request: CreateStore, actor: str) -> Store:
    """Make a store; idempotent by request id.

    Raises:
        InvalidRequest: ``bad_store_name``, ``bad_schema``, ``unknown_setting``, ``bad_setting``,
            ``request_id_reused``.
        Refused: ``store_exists``, ``topic_exists``; as `value_schema_id`, and so are others.
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
    config = configured(defaults(), parse_settings(request.settings), request.partitioner_source, key_schema)
    if context.catalog.store(request.name) is not None:
        raise Refused("store_exists", f"there is a store {request.name} already", found=request.name)
    topic = real_time_topic(request.name)
    schema_id = value_schema_id(context, topic, value_schema.canonical)
    store = Store(
        uid=context.new_id(),
        name=request.name,
        revision=0,
        created_at_ms=context.clock(),
        key_schema=key_schema.canonical,
        key_schema_id=key_schema_id(context, topic, key_schema.canonical),
        schemas={schema_id: value_schema.canonical},
        config=config,
        fabrics=tuple(context.fabrics),
        current=dict.fromkeys(context.fabrics, 0),
        next_version=context.catalog.next_version(request.name),
    )
    if config.hybrid:
        store = with_real_time_feeds(context, store)
        check_topics(context, store)
    operation = context.operation("create store", request.name, actor)
    known_request = () if request.request_id is None else (PutRequest(request.request_id, body_hash, store.uid),)
    context.catalog.commit(Change(operation, (PutStore(store, None), *known_request)))
    return _with_topics(context, store.uid)


def update_store(context: Context, name: str, request: UpdateStore, actor: str) -> Store:
    """Change settings or add a value schema; live settings act at once, frozen ones with the next version.

    Raises:
        InvalidRequest: ``unknown_setting``, ``bad_setting``, ``bad_schema``, ``incompatible_schema``,
            ``fixed_setting``.
        Refused: ``rebuild_running``: whether it is hybrid cannot change now (case H5).
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
            schema_id = value_schema_id(context, real_time_topic(name), new.canonical, store), new

    def change(present: Store) -> tuple[Store, tuple[()]]:
        after = _with_settings(context, present, settings, request.partitioner_source)
        if schema_id is not None and schema_id[0] not in present.schemas:
            # Somebody may have added another one meanwhile.
            check_evolution([parse_schema(text) for text in present.schemas.values()], schema_id[1])
            after = after.model_copy(update={"schemas": {**after.schemas, schema_id[0]: schema_id[1].canonical}})
        if after.config.max_value_bytes != present.config.max_value_bytes:
            # The logs hear of it with the next word about what they accept.
            feeds = tuple(feed.model_copy(update={"moving": True}) for feed in after.feeds)
            after = after.model_copy(update={"feeds": feeds})
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

    def change(present: Store) -> tuple[Store, tuple[PutReclaim | PutFlag, ...]]:
        making = present.in_the_making()
        if making is not None:
            raise Refused(
                "rebuild_running",
                f"a rebuild of {name} is running",
                found=making.rebuild,
                hint=f"anew rebuild kill {making.rebuild}",
            )
        return present.model_copy(update={"deleted_at_ms": now_ms}), tuple(all_of(context, present))

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
    """Keep a version for a long read (rule R15), or let go of it; letting go of what is not held changes nothing.

    Raises:
        NotFound: ``unknown_version``.
        Refused: ``version_gone``, ``hold_over``.
    """
    store = store_named(context, name)
    now_ms, hold = context.clock(), request.hold
    if hold is not None and request.seconds == 0:
        released = context.operation("release version", name, actor, version=request.version)
        return change_store(
            context, store.uid, released, lambda s: (lifecycle.release(s, request.version, hold, now_ms), ())
        )
    until_ms = now_ms + request.seconds * 1000
    operation = context.operation("hold version", name, actor, version=request.version, until_ms=until_ms)
    return change_store(
        context, store.uid, operation, lambda s: (lifecycle.hold(s, request.version, until_ms, now_ms, hold), ())
    )


def snapshot(context: Context, name: str, at_ms: int | None) -> SnapshotView:
    """All that a plan depends on, read at one moment; with the feeds' offsets at a time when one is given.

    Raises:
        Unreachable: An end offset could not be read; it is never taken for "empty" (case B4).
    """
    store = store_named(context, name)
    # Before the ends: what is appended behind them gets a time that is not below this, by whatever clock; clocks that
    # are further apart than the skew limit are wrong (rules R6, R12).
    skew_ms = max((feed.skew_limit_ms for feed in store.feeds), default=0)
    read_until_ms = context.clock() - skew_ms
    past = context.catalog.rebuilds(store_uid=store.uid, running_only=False)
    return SnapshotView(
        store=store,
        ends=ends_of(context.fabrics, store.feeds),
        at_time=NOT_ASKED if at_ms is None else offsets_at(context.fabrics, store.feeds, at_ms),
        base_files={v.number: v.manifest.files for v in store.versions if v.manifest is not None},
        pace=pace_of((each.ledger.read.count, each.records_per_s) for each in past if each.ledger is not None),
        now_ms=context.clock(),
        read_until_ms=read_until_ms,
    )


NOT_ASKED = PositionMap()


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
            config=version.config,
            replicas=_asked(context, store, version, chosen.name),
        )
        for version in store.versions
        if version.statuses.get(chosen.name) in SERVABLE
    }
    here = (feed for feed in store.feeds if feed.fabric == chosen.name)
    ready = [feed for feed in here if feed.ready and feed.open and store.writable(feed)]
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


def _asked(context: Context, store: Store, version: Version, fabric: str) -> dict[int, tuple[str, ...]]:
    """Partition → who is asked for it. A successor is, once it has been at the ends of what it reads.

    With the base alone it would take readers back, and show them what was deleted.
    """
    held, wanted = version.assignment.get(fabric, {}), version.config.replicas
    if all(len(nodes) <= wanted for nodes in held.values()):
        return dict(held)
    found = replicas_of(live_reports(context, (fabric,))[fabric], store, version)
    well = {place for place, replica in found.items() if replica.arrived and is_loaded(replica)}
    return {
        partition: nodes
        if len(nodes) <= wanted
        else tuple(node for node in nodes if (node, partition) in well) or nodes
        for partition, nodes in held.items()
    }


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


def _with_settings(
    context: Context, store: Store, settings: Mapping[str, SettingValue], partitioner_source: str | None
) -> Store:
    config = configured(store.config.model_dump(), settings, partitioner_source, parse_schema(store.key_schema))
    making = store.in_the_making()
    if config.hybrid != store.config.hybrid and making is not None:
        raise Refused(
            "rebuild_running",
            f"whether {store.name} is hybrid cannot change while {making.name_in(store.name)} is made",
            found=f"hybrid = {config.hybrid}",
            expected="no version in the making",
            hint=f"wait for it, or: anew rebuild kill {making.rebuild}",
        )
    changed = store.model_copy(update={"config": config})
    if config.repush_schedule != store.config.repush_schedule:
        # Times of another schedule say nothing about this one: its times to come count.
        changed = changed.model_copy(update={"schedule": None})
    return with_real_time_feeds(context, changed) if config.hybrid and not store.feeds else changed


def _made_before(context: Context, request_id: str | None, body_hash: str) -> Store | None:
    """The store that a request id made; None for a new request.

    Raises:
        InvalidRequest: ``request_id_reused``.
    """
    uid = made_before(context, request_id, body_hash)
    store = None if uid is None else context.catalog.store_by_uid(uid)
    if uid is not None and store is None:
        raise request_id_reused(request_id, body_hash)
    return store
