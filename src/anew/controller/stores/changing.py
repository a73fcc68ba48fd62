"""Stores: making, changing and deleting them, and what clients and planners need to know of them."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from anew.api.stores.requests import CreateStore, HoldVersion, UpdateStore
from anew.catalog.change import PutFlag, PutReclaim, PutRequest, PutStore
from anew.codec.avro import check_evolution, check_key_schema, parse_schema
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.controller.engine.requests import made_before, request_id_reused
from anew.controller.stores.configuration import configured
from anew.controller.stores.feeds import check_topics, ensure_feeds, with_real_time_feeds
from anew.controller.stores.reclaim import all_of
from anew.controller.stores.records import change_store, store_named
from anew.controller.stores.schemas import key_schema_id, value_schema_id
from anew.core.confighash import value_hash
from anew.core.errors import InvalidRequest, NotFound, Refused, Unreachable
from anew.core.jobs.uses import check_store_unused
from anew.core.settings import SettingValue, Takes
from anew.core.stores import lifecycle
from anew.core.stores.names import check_store_name, real_time_topic
from anew.core.stores.settings import STORE_SETTINGS, defaults
from anew.core.stores.store import Store, takes_effect

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
    config = configured(defaults(), STORE_SETTINGS.parse(request.settings), request.partitioner_source, key_schema)
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
    commit(context, operation, PutStore(store, None), *known_request)
    return _with_topics(context, store.uid)


def update_store(context: Context, name: str, request: UpdateStore, actor: str) -> Store:
    """Change settings or add a value schema; live settings act at once, frozen ones with the next version.

    Raises:
        InvalidRequest: ``unknown_setting``, ``bad_setting``, ``bad_schema``, ``incompatible_schema``,
            ``fixed_setting``.
        Refused: ``rebuild_running``: whether it is hybrid cannot change now (case H5).
    """
    store = store_named(context, name)
    settings = STORE_SETTINGS.parse(request.settings)
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
        Refused: ``rebuild_running``; ``store_in_use``: a job writes into it.
    """
    now_ms = context.clock()

    def change(present: Store) -> tuple[Store, tuple[PutReclaim | PutFlag, ...]]:
        check_store_unused(name, present.uid, context.catalog.jobs())
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
    return with_real_time_feeds(context, changed) if config.hybrid and not store.real_time_feeds else changed


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
