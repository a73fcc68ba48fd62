"""A store made again from what was found of it in the deep stores. Values in, values out.

The record says how things stood; the manifests say what is really there. A version that both know is as it was. What
was in the making is not: a build that was not finished has failed, and one that was sealed, but of which nobody can say
whether it was swapped, waits as *deferred* for somebody to choose it. While there is a record, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from posixpath import dirname
from typing import Any

from anew.controller.restore.findings import Found, FoundManifest
from anew.core.feed import Feed, FeedKind
from anew.core.jobs.job import Job
from anew.core.stores.settings import defaults
from anew.core.stores.store import (
    IN_THE_MAKING,
    SERVABLE,
    RebuildKind,
    Store,
    StoreConfig,
    Version,
    VersionInFabric,
    VersionStatus,
    VersionTopic,
)
from anew.core.tables.table import Table
from anew.core.topics.topic import Topic

ERA = 1 << 32
"""Revisions of a restored catalog go on at the next multiple: above all that nodes, clients and logs have seen."""

_LOST = "the catalog was lost while it was made"
_SEALED = "restored: it is complete, and nobody can say whether it was swapped"


@dataclass(slots=True)
class Rebuilt:
    """A store as it is to be in the catalog again.

    Attributes:
        source: ``record`` (with what manifests say beyond it) or ``manifests`` alone.
        notes: What a person should know, and may have to decide.
        displaced: It counts as deleted only because a younger store has its name.
    """

    store: Store
    source: str
    notes: list[str] = field(default_factory=list)
    displaced: bool = False


def rebuilt(found: Found, fabrics: tuple[str, ...], now_ms: int) -> Rebuilt | None:
    """The store; None where neither a record nor a manifest can be read."""
    if found.record is not None and found.record.deleted_at_ms is not None:
        return Rebuilt(found.record, "record")
    if found.record is not None:
        made = Rebuilt(found.record, "record", list(found.notes))
        _follow_record(made, found, now_ms)
    elif found.manifests:
        made = _from_manifests(found, fabrics, now_ms)
    else:
        return None
    _choose_current(made, now_ms)
    feeds = tuple(_to_be_told(feed) for feed in made.store.feeds)
    numbers = [made.store.next_version, found.greatest + 1, *(version.number + 1 for version in made.store.versions)]
    made.store = made.store.model_copy(update={"feeds": feeds, "next_version": max(numbers)})
    return made


def outlived(records: Iterable[Store | Table | Topic | Job]) -> set[str]:
    """The uids of those that live although a younger one has their name: a record of their end is missing."""
    living: dict[str, Store | Table | Topic | Job] = {}
    found = set()
    for record in sorted(records, key=lambda each: each.created_at_ms):
        if record.deleted_at_ms is None:
            older = living.get(record.name)
            if older is not None:
                found.add(older.uid)
            living[record.name] = record
    return found


def era_after(revisions: Iterable[int]) -> int:
    """The first revision of a restored catalog."""
    return (max(revisions, default=0) // ERA + 1) * ERA


def _to_be_told(feed: Feed) -> Feed:
    """The logs know the word of the catalog before; they are told again."""
    return feed.model_copy(update={"moving": feed.ready})


# -- with a record ---------------------------------------------------------------------------------------------------


def _follow_record(made: Rebuilt, found: Found, now_ms: int) -> None:
    """Bring what the record says in line with the files that are there."""
    store = made.store
    by_number = _sealed(found.manifests.values())
    versions = []
    for version in store.versions:
        named = found.manifests.get("" if version.manifest is None else version.manifest.path)
        versions.append(_as_found(version, named if named else by_number.get(version.number), made, now_ms))
    known = {version.number for version in versions}
    for number, manifest in sorted(by_number.items()):
        # Of one that has left, only what nobody had sealed can still be there.
        if number in known or store.has_left(number):
            continue
        if manifest.manifest.kind is RebuildKind.STREAM_REPROCESSING:
            made.notes.append(f"version {number} followed a job that began it after the record: it is left out")
        else:
            versions.append(_version_of(manifest, VersionStatus.DEFERRED, now_ms, _SEALED))
            made.notes.append(
                f"version {number} was begun after the record: it is deferred; anew swap {store.name} {number}"
            )
    schemas = {i: text for m in found.manifests.values() for i, text in m.manifest.schemas.items()}
    made.store = store.model_copy(update={"versions": tuple(versions), "schemas": {**schemas, **store.schemas}})


def _as_found(version: Version, sealed: FoundManifest | None, made: Rebuilt, now_ms: int) -> Version:
    """The version, fabric by fabric, as its files there say."""
    name, number = made.store.name, version.number
    mine = sealed is not None and sealed.manifest.rebuild == version.rebuild
    lost, unmade, waiting = list[str](), list[str](), list[str]()
    for fabric, there in version.fabrics.items():
        present = sealed is not None and fabric in sealed.fabrics
        if there.status in IN_THE_MAKING:
            (waiting if present and mine else unmade).append(fabric)
        elif there.status is VersionStatus.FOLLOWING and there.manifest is None:
            continue  # Its empty base is written by the next round.
        elif there.status in SERVABLE and not (present and sealed is not None and sealed.ref == there.manifest):
            lost.append(fabric)
    failed = VersionStatus.FAILED
    if lost:
        made.notes.append(f"version {number} is lost: its files are not what they were")
        version = version.moved(lost, status=failed, since_ms=now_ms, error="its files were lost")
    if unmade:
        made.notes.append(f"version {number} was being made; it has failed")
        version = version.moved(unmade, status=failed, since_ms=now_ms, error=_LOST)
    if waiting and sealed is not None:
        made.notes.append(f"version {number} was sealed, but not swapped; anew swap {name} {number}")
        base = {"manifest": sealed.ref, "start": sealed.manifest.start}
        waits = {"status": VersionStatus.DEFERRED, "since_ms": now_ms, "error": _SEALED}
        version = version.moved(waiting, **base, **waits)
        return version.model_copy(update={"path": dirname(sealed.ref.path), "defer_swap": False, "closing": False})
    if version.defer_swap and version.has({VersionStatus.DEFERRED}):
        made.notes.append(f"version {number} is deferred as before; anew swap {name} {number}")
    return version.model_copy(update={"defer_swap": False})


def _choose_current(made: Rebuilt, now_ms: int) -> None:
    """Where the current version is lost, the newest one that is complete takes its place."""
    store = made.store
    for fabric, number in store.current.items():
        version = store.version(number)
        if number == 0 or (version is not None and version.status_in(fabric) is VersionStatus.CURRENT):
            continue
        # What follows a job may lack what the job has still to write.
        there = ((v, v.fabrics[fabric]) for v in store.versions if fabric in v.fabrics)
        complete = [v for v, life in there if life.readable and life.status is not VersionStatus.FOLLOWING]
        best = max(complete, key=lambda v: v.number, default=None)
        made.notes.append(
            f"version {number}, which {fabric} served, is lost: it serves {best.number if best else 'none'}"
        )
        versions = store.versions
        if best is not None:
            chosen = best.moved((fabric,), status=VersionStatus.CURRENT, since_ms=now_ms)
            versions = tuple(chosen if v.number == best.number else v for v in versions)
        current = {**store.current, fabric: 0 if best is None else best.number}
        store = store.model_copy(update={"versions": versions, "current": current})
    made.store = store


# -- from manifests alone --------------------------------------------------------------------------------------------


def _from_manifests(found: Found, fabrics: tuple[str, ...], now_ms: int) -> Rebuilt:
    sealed = _sealed(found.manifests.values())
    newest = sealed[max(sealed)].manifest
    feeds = {feed.id: feed for number in sorted(sealed) for feed in sealed[number].manifest.feeds}
    schemas = {i: text for number in sorted(sealed) for i, text in sealed[number].manifest.schemas.items()}
    # Whether a job has cut over to a version that followed it is not known: any other is the safer choice.
    certain = {n: m for n, m in sealed.items() if m.manifest.kind is not RebuildKind.STREAM_REPROCESSING}
    current = {f: max((n for n, m in (certain or sealed).items() if f in m.fabrics), default=0) for f in fabrics}
    versions = []
    for number, manifest in sorted(sealed.items()):
        version = _version_of(manifest, VersionStatus.BACKUP, now_ms, None)
        serving = [fabric for fabric in manifest.fabrics if current[fabric] == number]
        versions.append(version.moved(serving, status=VersionStatus.CURRENT))
    store = Store(
        uid=found.uid,
        name=newest.store,
        revision=0,
        created_at_ms=min(m.manifest.created_at_ms for m in sealed.values()),
        key_schema=newest.key_schema,
        schemas=schemas,
        config=_config(newest.config.model_dump(), list(feeds.values())),
        fabrics=fabrics,
        current=current,
        feeds=tuple(feeds.values()),
        versions=tuple(versions),
    )
    note = "there is no record: the newest complete version is current, live settings are the defaults"
    return Rebuilt(store, "manifests", [*found.notes, note])


def _config(frozen: dict[str, Any], feeds: list[Feed]) -> StoreConfig:
    fixed: dict[str, Any] = {}
    if feeds:
        # Of a job's feed the settings are the store's but for the partitioner, which goes without saying.
        last = next((feed for feed in reversed(feeds) if feed.kind is FeedKind.RT), feeds[-1])
        fixed = {
            "rt_partitions": last.partitions,
            "rt_partitioner": last.partitioner,
            "skew_limit_seconds": last.skew_limit_ms // 1000,
        }
    return StoreConfig(**{**defaults(), **frozen, **fixed})


def _sealed(manifests: Iterable[FoundManifest]) -> dict[int, FoundManifest]:
    """Version number → its manifest of the latest epoch."""
    ordered = sorted(manifests, key=lambda found: (found.manifest.version, found.manifest.epoch))
    return {found.manifest.version: found for found in ordered}


def _version_of(found: FoundManifest, status: VersionStatus, now_ms: int, error: str | None) -> Version:
    manifest = found.manifest
    there = VersionInFabric(
        status=status,
        since_ms=now_ms,
        error=error,
        manifest=found.ref,
        start=manifest.start,
        topic=_topic_of(found),
        # Without a node: the next rounds place the replicas.
        assignment=dict.fromkeys(range(manifest.config.partitions), ()),
    )
    return Version(
        number=manifest.version,
        kind=manifest.kind,
        config=manifest.config,
        config_hash=manifest.config_hash,
        fabrics=dict.fromkeys(found.fabrics, there),
        created_at_ms=manifest.created_at_ms,
        rebuild=manifest.rebuild,
        epoch=manifest.epoch,
        path=dirname(found.ref.path),
        source_version=manifest.source_version,
        feeds=tuple(feed.id for feed in manifest.feeds),
        stop=manifest.stop,
        ttl_floor_ms=manifest.ttl_floor_ms,
        tombstone_floor_ms=manifest.tombstone_floor_ms,
        timed=manifest.config.hybrid or manifest.kind is RebuildKind.TTL_REPUSH,
    )


def _topic_of(found: FoundManifest) -> VersionTopic | None:
    """The topic that a base lies in, as its manifest names it."""
    named = next(iter(found.manifest.ranges), None)
    return None if named is None else VersionTopic(name=named.topic, uid=named.topic_uid, ready=True)
