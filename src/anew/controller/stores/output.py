"""Stores as outputs of stream jobs: feeds, the empty bases of versions that follow, and how far their replicas are.

The first generation of a job into a store that serves something, and one that is deployed, gets a feed that all
versions apply; into an empty one, and for each rewind, a version of its own, which follows
(`anew.core.stores.following`). A first generation whose store came to serve something else meanwhile joins that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import partial
from typing import ClassVar

from anew.api.jobs.place import OutputPlace
from anew.catalog.change import Put, PutReclaim, PutStore, Reclaim
from anew.controller.engine.context import Context
from anew.controller.engine.fabrics import check_no_topic, fabric_named
from anew.controller.engine.nodes import live_reports
from anew.controller.engine.outputs import Opened, Output, Owned, Writer
from anew.controller.stores.feeds import ends_of, ensure_feeds, topics_of_deleted_stores
from anew.controller.stores.readiness import judge
from anew.controller.stores.records import change_store, store_named
from anew.core.errors import Refused
from anew.core.feed import Feed, PositionMap
from anew.core.ledger import Ledger
from anew.core.moment import utc_text
from anew.core.stamp import Origin
from anew.core.stores.floors import present_tombstone_floor_ms
from anew.core.stores.following import (
    Follower,
    base_written,
    bases_to_write,
    begin_following,
    cut_back,
    cut_over,
    give_up_following,
    join_serving,
)
from anew.core.stores.jobfeeds import add_feed, drop_feed, followed_feed, generation_feed
from anew.core.stores.names import incarnation_counter
from anew.core.stores.rebuild import STORE
from anew.core.stores.store import ManifestRef, Store, Version, VersionStatus, newest_schema_id
from anew.deepstore.interface import DeepStore
from anew.segments.dictionary import ZSTD_DICT, store_dictionary
from anew.segments.layout import manifest_path, version_path
from anew.segments.manifest import Manifest, SubPartition

_SERVED = (VersionStatus.FOLLOWING, VersionStatus.CURRENT, VersionStatus.BACKUP)
"""Statuses of a version of which it matters whether it has applied a feed, the first one first."""


class StoreOutput(Output):
    """Stores."""

    kind: ClassVar[str] = STORE
    by_key: ClassVar[bool] = True

    def uid_of(self, context: Context, name: str) -> str:
        """See `Output.uid_of`.

        Raises:
            NotFound: ``unknown_store``.
        """
        return store_named(context, name).uid

    def notes(self, context: Context, name: str, replaces: str | None) -> tuple[str, ...]:
        """Which records readers will reject, because deletes of before were forgotten (rule R12)."""
        store = store_named(context, name)
        floor_ms = present_tombstone_floor_ms(store)
        if replaces is not None or floor_ms == 0 or not any(store.current.values()):
            return ()
        until = utc_text(floor_ms)
        return (f"a record written before {until} is a dead letter where {name} does not hold its key (rule R12)",)

    def floor_ms(self, context: Context, name: str) -> int:
        """See `Output.floor_ms`."""
        return present_tombstone_floor_ms(store_named(context, name))

    def open(self, context: Context, writer: Writer) -> Opened:
        """See `Output.open`.

        Raises:
            NotFound: ``unknown_store``.
            Refused: ``topic_exists``, ``store_has_other_writers``, ``writes_disabled``, ``base_would_be_missing``.
        """
        store = store_named(context, writer.name)
        feed = new_feed(context, store, writer.origin, next(iter(store.fabrics)))
        serves = any(store.current.values())
        if serves and (writer.replaces is None or writer.goes_on):
            return Opened(feed.id, puts=(PutStore(add_feed(store, feed), store.revision),))
        replaces = () if writer.replaces is None else _fed_by(store, writer)
        path = version_path(store.uid, store.next_version, writer.rebuild, 1)
        # An empty store lacks nothing that was written before the first generation began.
        empty = tuple(each for each in _empty(context, store, writer.silent) if each not in replaces)
        made = Follower(feed, replaces, writer.is_whole or not serves, writer.rebuild, path, empty)
        ends = ends_of(context.fabrics, store.real_time_feeds)
        after = begin_following(store, made, ends, context.clock())
        return Opened(feed.id, after.versions[-1].number, (PutStore(after, store.revision),))

    def made(self, context: Context, name: str, where: str) -> OutputPlace | None:
        """See `Output.made`."""
        store = store_named(context, name)
        feed = store.feed(where)
        if feed is None:
            return None
        if not feed.ready or bases_to_write(store):
            store = ensure_feeds(context, store.uid)
            write_bases(context, store)
            feed = store.feed(where)
        if feed is None or not feed.ready:
            return None
        newest = newest_schema_id(store.schemas)
        return OutputPlace(
            fabric=feed.fabric,
            topic=feed.topic,
            topic_uid=feed.topic_uid,
            partitions=feed.partitions,
            key_schema=store.key_schema,
            key_schema_id=feed.key_schema_id,
            value_schema=store.schemas[newest],
            value_schema_id=newest,
            skew_limit_ms=feed.skew_limit_ms,
        )

    def served(self, context: Context, name: str, where: str) -> bool:
        """Every replica of the version is there, and has applied what was appended, within the lag limit (rule R17).

        Of the version that follows, else of the one that serves, else of the one that can be cut back to. The ends move
        all the time, and nodes report now and then: none would ever be found right there.
        """
        store = store_named(context, name)
        version = _asked_about(store, where)
        if version is None:
            return False
        ends = ends_of(context.fabrics, tuple(feed for feed in store.feeds_of(version) if feed.ready))
        limit = store.config.lag_limit_records
        target = PositionMap({at: max(0, end - limit) for at, end in ends.items()})
        fabrics = version.where(_SERVED)
        reports = live_reports(context, fabrics)
        # A version that follows begins without a node: until one is chosen for each partition nobody could read it.
        return all(
            all(version.fabrics[fabric].assignment.values())
            and judge(store, version, fabric, reports[fabric], target).caught_up
            for fabric in fabrics
        )

    def can_serve_again(self, context: Context, name: str, where: str) -> bool:
        """A version is there that applies its feed: the replaced one goes when the retention of backups is over."""
        return _asked_about(store_named(context, name), where) is not None

    def cut_over(self, context: Context, name: str, before: str | None, after: str) -> tuple[Put, ...]:
        """See `Output.cut_over`.

        Raises:
            Refused: ``not_served``: replicas have not applied what was appended; ``generation_moved``,
                ``feeds_missing``, ``store_has_other_writers``, ``replaced_version_gone``.
        """
        store = store_named(context, name)
        version = _of_feed(store, after)
        if version is None and before is None:
            # All versions apply the feed of a first generation.
            return ()
        if version is None and _asked_about(store, after) is None:
            # It says what is gone.
            return (PutStore(cut_back(store, str(before), context.clock()), store.revision),)
        if not self.served(context, name, after):
            raise Refused(
                "not_served",
                f"replicas of {name} have not applied what the generation wrote",
                found=f"the feed {after}",
                expected=f"every replica within {store.config.lag_limit_records} records of its ends",
                hint=f"anew store show {name}; it takes a moment",
            )
        feed = store.feed(after)
        if version is not None and feed is not None and before is None and any(store.current.values()):
            return (PutStore(join_serving(store, version.number, feed, context.clock()), store.revision),)
        if version is None:
            return (PutStore(cut_back(store, str(before), context.clock()), store.revision),)
        return (PutStore(cut_over(store, version.number, before, context.clock()), store.revision),)

    def owned(self, context: Context, name: str, where: str) -> tuple[Owned, ...]:
        """The feed's topic, and the versions that apply it and do not serve."""
        store = context.catalog.store(name)
        feed = None if store is None else store.feed(where)
        if store is None or feed is None:
            return ()
        versions = [v for v in store.versions if where in v.feeds and not v.reclaimed]
        found = [
            Owned("version", f"{name} version {v.number}", v.manifest.bytes, v.manifest.rows)
            for v in versions
            if v.manifest is not None and not v.has({VersionStatus.CURRENT})
        ]
        if feed.ready:
            facts = context.fabrics[feed.fabric].log.facts(feed.topic, feed.topic_uid)
            found.append(Owned("topic", feed.topic, records=sum(each.end - each.begin for each in facts.partitions)))
        return tuple(found)

    def close(self, context: Context, name: str, where: Collection[str]) -> tuple[Put, ...]:
        """The versions that follow are given up; a feed that versions apply stays until they are gone."""
        store = after = context.catalog.store(name)
        if store is None or after is None:
            return ()
        for version in filter(None, (_of_feed(store, feed) for feed in where)):
            why = "the generation that it followed was retired"
            after = give_up_following(after, version.number, why, context.clock())
        return () if after == store else (PutStore(after, store.revision),)

    def gone(self, context: Context, name: str, where: str) -> tuple[Put, ...] | None:
        """See `Output.gone`: the feed leaves the store once no version names it, and its topic after the grace."""
        store = context.catalog.store(name)
        feed = None if store is None else store.feed(where)
        if store is None or feed is None:
            return ()
        if any(where in version.feeds and not version.reclaimed for version in store.versions):
            return None
        target, why = f"{feed.topic}\n{feed.topic_uid}", f"the generation that wrote into {where} was retired"
        note = Reclaim(f"{feed.topic_uid}/topic", "topic", feed.fabric, target, context.reclaim_due_ms(), why)
        return PutStore(drop_feed(store, where), store.revision), PutReclaim(note)

    def is_read(self, context: Context, where: str) -> bool:
        """Replicas take all records, and their order says which win (rule R20): nobody asks for batches."""
        return False


def new_feed(context: Context, store: Store, origin: Origin, fabric: str) -> Feed:
    """A fresh feed for a generation, which nothing names yet: each call takes an incarnation of its own.

    Raises:
        Refused: ``topic_exists``: the log has a topic of that name that is not ours.
    """
    feed = generation_feed(
        store,
        origin,
        fabric,
        topic_uid=context.new_id(),
        incarnation=context.catalog.next_number(incarnation_counter(store.name, fabric)),
    )
    left = topics_of_deleted_stores(context, feed.topic)
    hint = "remove the topic, or give the job another name"
    check_no_topic(fabric_named(context, fabric), feed.topic, hint=hint, besides=left)
    return feed


def _empty(context: Context, store: Store, silent: Collection[str]) -> list[str]:
    """The feeds among some that hold no record, and never did.

    Raises:
        Unreachable: A log does not answer.
    """
    feeds = [feed for feed in store.feeds if feed.id in silent and not any(feed.low_water)]
    return [feed.id for feed in feeds if not any(ends_of(context.fabrics, (feed,)).values())]


def _asked_about(store: Store, feed: str) -> Version | None:
    """The version that readers ask, or are to ask, for what a feed brings."""
    following = _of_feed(store, feed)
    if following is not None:
        return following
    found = [version for version in store.versions if feed in version.feeds]
    for status in (VersionStatus.CURRENT, VersionStatus.BACKUP):
        of_status = [version for version in found if version.has({status})]
        if of_status:
            return of_status[-1]
    return None


def _fed_by(store: Store, writer: Writer) -> tuple[str, ...]:
    """The feeds that a generation takes the place of: the live one's, and those of generations that it went on from."""
    serving = [v for v in store.versions if writer.replaces in v.feeds and v.has({VersionStatus.CURRENT})]
    applied = {feed for version in serving for feed in version.feeds} - {writer.replaces}
    others = (f.id for f in store.feeds if f.id in applied and f.id in writer.wrote_before)
    return (str(writer.replaces), *others)


def _of_feed(store: Store, feed: str) -> Version | None:
    """The version that follows the generation of a feed; those of other jobs may apply the feed as well."""
    for version in store.versions:
        own = followed_feed(store, version)
        if own is not None and own.id == feed:
            return version
    return None


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
