"""Stores as outputs of stream jobs: feeds, the empty bases of versions that follow, and how far their replicas are."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import partial

from anew.controller.engine.context import Context
from anew.controller.engine.fabrics import fabric_named
from anew.controller.engine.nodes import live_reports
from anew.controller.engine.outputs import Readiness
from anew.controller.stores.feeds import check_no_topic, ends_of, ensure_feeds, topics_of_deleted_stores
from anew.controller.stores.readiness import judge
from anew.controller.stores.records import change_store
from anew.core.errors import NotFound
from anew.core.feed import Feed, PositionMap
from anew.core.ledger import Ledger
from anew.core.stamp import Origin
from anew.core.stores.following import base_written, bases_to_write
from anew.core.stores.jobfeeds import generation_feed
from anew.core.stores.lifecycle import existing
from anew.core.stores.names import incarnation_counter
from anew.core.stores.store import ManifestRef, Store, Version
from anew.deepstore.interface import DeepStore
from anew.segments.dictionary import ZSTD_DICT, store_dictionary
from anew.segments.layout import manifest_path
from anew.segments.manifest import Manifest, SubPartition


class StoreOutput:
    """See `anew.controller.engine.outputs.Output`."""

    def new_feed(
        self, context: Context, uid: str, origin: Origin, fabric: str, max_lateness_ms: int | None = None
    ) -> Feed:
        """See `Output.new_feed`."""
        store, place = _store(context, uid), fabric_named(context, fabric)
        feed = generation_feed(
            store,
            origin,
            fabric,
            topic_uid=context.new_id(),
            incarnation=context.catalog.next_number(incarnation_counter(store.name, fabric)),
            max_lateness_ms=max_lateness_ms,
        )
        left = topics_of_deleted_stores(context, feed.topic)
        check_no_topic(place, feed.topic, hint="remove the topic, or give the job another name", besides=left)
        return feed

    def make(self, context: Context, uid: str) -> None:
        """See `Output.make`."""
        write_bases(context, ensure_feeds(context, uid))

    def ends(self, context: Context, uid: str, feeds: Collection[str]) -> PositionMap:
        """See `Output.ends`."""
        return ends_of(context.fabrics, _store(context, uid).feeds_with_schemas(feeds).feeds)

    def nearline_ends(self, context: Context, uid: str) -> PositionMap:
        """See `Output.nearline_ends`."""
        return ends_of(context.fabrics, _store(context, uid).real_time_feeds)

    def readiness(self, context: Context, uid: str, version: int, fabric: str, target: PositionMap) -> Readiness:
        """See `Output.readiness`."""
        store = _store(context, uid)
        return judge(store, existing(store, version), fabric, live_reports(context, (fabric,))[fabric], target)


def write_bases(context: Context, store: Store) -> None:
    """Write the empty bases of versions that follow and have none yet, once their topics are there.

    (1) The catalog has announced the version; (2) the manifest is written; (3) the catalog names it, and nodes load it.
    A crash after any step leaves a state that the next call goes on from.

    Raises:
        Unreachable: A deep store does not answer.
    """
    for version, fabric in bases_to_write(store):
        if all(feed.ready for feed in store.feeds_of(version)):
            ref = _written(context.fabrics[fabric].deep_store, store, version, fabric)
            operation = context.operation(
                "base written", store.name, "controller", version=version.number, fabric=fabric
            )
            change_store(context, store.uid, operation, partial(_with_base, version.number, fabric, ref))


def _with_base(number: int, fabric: str, ref: ManifestRef, present: Store) -> tuple[Store, tuple[()]]:
    return base_written(present, number, fabric, ref), ()


def _written(deep_store: DeepStore, store: Store, version: Version, fabric: str) -> ManifestRef:
    """The manifest of an empty base in a deep store. One that is there already stays: it may be known elsewhere."""
    path = manifest_path(version.path)
    if deep_store.stat(path) is not None:
        content = deep_store.get(path)
        ref = Manifest.model_validate_json(content).ref(path)
        return ref.model_copy(update={"checksum": hashlib.sha256(content).hexdigest()})
    config = version.config
    made = None
    if config.compression == ZSTD_DICT:
        made = store_dictionary(deep_store, version.path, b"")
    manifest = Manifest(
        store=store.name,
        store_uid=store.uid,
        version=version.number,
        kind=version.kind,
        rebuild=version.rebuild,
        epoch=version.epoch,
        key_schema=store.key_schema,
        schemas=store.schemas,
        config=config,
        config_hash=version.config_hash,
        dictionary=None if made is None else made.path,
        dictionary_checksum=None if made is None else made.checksum,
        feeds=store.feeds_of(version),
        start=version.fabrics[fabric].start,
        ttl_floor_ms=version.ttl_floor_ms,
        created_at_ms=version.created_at_ms,
        ledger=Ledger(),
        sub_partitions=tuple(
            SubPartition(partition=partition, sub_partition=sub)
            for partition in range(config.partitions)
            for sub in range(config.amplification_factor)
        ),
    )
    deep_store.put(path, manifest.to_bytes())
    return manifest.ref(path)


def _store(context: Context, uid: str) -> Store:
    store = context.catalog.store_by_uid(uid)
    if store is None or store.deleted_at_ms is not None:
        raise NotFound("unknown_store", "the store is gone", found=uid)
    return store
