"""Stores that jobs feed, for tests: feeds of generations, versions that apply them."""

from __future__ import annotations

from typing import Any

from anew.core.feed import Feed
from anew.core.stamp import Origin, OriginKind
from anew.core.stores.following import Follower, begin_following
from anew.core.stores.jobfeeds import generation_feed
from anew.core.stores.store import ManifestRef, Store
from anew.testing.builders import FABRIC, a_config, a_store, a_version
from anew.testing.clock import NOON_MS

EMPTY = ManifestRef(path="v/manifest.json", checksum="00", files=0, rows=0, tombstones=0, bytes=0, fingerprint=0)
FULL = EMPTY.model_copy(update={"files": 1, "rows": 5})


def feed_of(generation: int, job: str = "clicks", incarnation: int | None = None, **changes: Any) -> Feed:
    """The ready feed of a generation."""
    origin = Origin(OriginKind.JOB, job, generation)
    number = generation if incarnation is None else incarnation
    store = a_store(config=a_config(rt_partitions=2))
    feed = generation_feed(store, origin, FABRIC, topic_uid=f"uid-{job}-{generation}", incarnation=number)
    return feed.model_copy(update={"ready": True, **changes})


def fed_store(*generations: int, **changes: Any) -> Store:
    """A store without nearline writes, whose version 1 serves and applies the feeds of some generations."""
    feeds = tuple(feed_of(number) for number in generations)
    version = a_version(1, feeds=tuple(feed.id for feed in feeds), manifest=EMPTY, unpushed=True, timed=True)
    fields: dict[str, Any] = {
        "config": a_config(rt_partitions=2),
        "feeds": feeds,
        "versions": (version,),
        "current": {FABRIC: 1},
        "next_version": 2,
    }
    return a_store(**{**fields, **changes})


def follower_of(feed: Feed, *replaces: Feed, **changes: Any) -> Follower:
    """What a version that follows is made of."""
    fields: dict[str, Any] = {"from_first_record": True, "rebuild": "rewind-1", "path": "stores/uid/v2/rewind-1-e1"}
    return Follower(feed, tuple(replaced.id for replaced in replaces), **{**fields, **changes})


def following_store(live: int = 1, following: int = 2) -> Store:
    """A store whose version 1 applies one generation's feed, and version 2 follows another one, its base written."""
    store = fed_store(live)
    store = begin_following(store, follower_of(feed_of(following), feed_of(live)), {}, NOON_MS)
    return with_manifest(store, 2, EMPTY)


def with_manifest(store: Store, number: int, manifest: ManifestRef) -> Store:
    """The store, the base of one of its versions written."""
    versions = tuple(v.moved(v.fabrics, manifest=manifest) if v.number == number else v for v in store.versions)
    return store.model_copy(update={"versions": versions})
