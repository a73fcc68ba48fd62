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
from anew.core.feed import Feed
from anew.core.settings import defaults
from anew.core.store import (
    IN_THE_MAKING,
    SERVABLE,
    RebuildKind,
    Store,
    StoreConfig,
    Version,
    VersionStatus,
    VersionTopic,
)
from anew.core.tables.table import Table

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


def outlived(records: Iterable[Store | Table]) -> set[str]:
    """The uids of those that live although a younger one has their name: a record of their end is missing."""
    living: dict[str, Store | Table] = {}
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
        if number not in known and not store.has_left(number):
            versions.append(_version_of(manifest, VersionStatus.DEFERRED, now_ms, _SEALED))
            made.notes.append(
                f"version {number} was begun after the record: it is deferred; anew swap {store.name} {number}"
            )
    schemas = {i: text for m in found.manifests.values() for i, text in m.manifest.schemas.items()}
    made.store = store.model_copy(update={"versions": tuple(versions), "schemas": {**schemas, **store.schemas}})


def _as_found(version: Version, sealed: FoundManifest | None, made: Rebuilt, now_ms: int) -> Version:
    name, present = made.store.name, set(version.statuses.values())
    if IN_THE_MAKING.isdisjoint(present):
        if SERVABLE.isdisjoint(present) or (sealed is not None and sealed.ref == version.manifest):
            if version.defer_swap and VersionStatus.DEFERRED in present:
                made.notes.append(f"version {version.number} is deferred as before; anew swap {name} {version.number}")
            return version.model_copy(update={"defer_swap": False})
        made.notes.append(f"version {version.number} is lost: its files are not what they were")
        return _moved(version, VersionStatus.FAILED, now_ms, "its files were lost")
    if sealed is None or sealed.manifest.rebuild != version.rebuild:
        made.notes.append(f"version {version.number} was being made; it has failed")
        return _moved(version, VersionStatus.FAILED, now_ms, _LOST)
    made.notes.append(f"version {version.number} was sealed, but not swapped; anew swap {name} {version.number}")
    changes = {"manifest": sealed.ref, "path": dirname(sealed.ref.path), "start": sealed.manifest.start}
    deferred = _moved(version, VersionStatus.DEFERRED, now_ms, _SEALED)
    return deferred.model_copy(update={**changes, "defer_swap": False, "closing": False})


def _moved(version: Version, status: VersionStatus, now_ms: int, error: str) -> Version:
    kept = (VersionStatus.CURRENT, VersionStatus.BACKUP)
    only = {f: s for f, s in version.statuses.items() if status is VersionStatus.FAILED or s not in kept}
    statuses = {**version.statuses, **dict.fromkeys(only, status)}
    since = {**version.since_ms, **dict.fromkeys(only, now_ms)}
    return version.model_copy(update={"statuses": statuses, "since_ms": since, "error": error})


def _choose_current(made: Rebuilt, now_ms: int) -> None:
    """Where the current version is lost, the newest one that is complete takes its place."""
    store = made.store
    for fabric, number in store.current.items():
        version = store.version(number)
        if number == 0 or (version is not None and version.statuses.get(fabric) is VersionStatus.CURRENT):
            continue
        complete = [v for v in store.versions if v.statuses.get(fabric) in SERVABLE and v.manifest is not None]
        best = max(complete, key=lambda v: v.number, default=None)
        made.notes.append(
            f"version {number}, which {fabric} served, is lost: it serves {best.number if best else 'none'}"
        )
        versions = store.versions
        if best is not None:
            statuses = {**best.statuses, fabric: VersionStatus.CURRENT}
            chosen = best.model_copy(update={"statuses": statuses, "since_ms": {**best.since_ms, fabric: now_ms}})
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
    current = {f: max((n for n, m in sealed.items() if f in m.fabrics), default=0) for f in fabrics}
    versions = []
    for number, manifest in sorted(sealed.items()):
        version = _version_of(manifest, VersionStatus.BACKUP, now_ms, None)
        serving = {f: VersionStatus.CURRENT for f in manifest.fabrics if current[f] == number}
        versions.append(version.model_copy(update={"statuses": {**version.statuses, **serving}}))
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
        fixed = {
            "rt_partitions": feeds[-1].partitions,
            "rt_partitioner": feeds[-1].partitioner,
            "skew_limit_seconds": feeds[-1].skew_limit_ms // 1000,
        }
    return StoreConfig(**{**defaults(), **frozen, **fixed})


def _sealed(manifests: Iterable[FoundManifest]) -> dict[int, FoundManifest]:
    """Version number → its manifest of the latest epoch."""
    ordered = sorted(manifests, key=lambda found: (found.manifest.version, found.manifest.epoch))
    return {found.manifest.version: found for found in ordered}


def _version_of(found: FoundManifest, status: VersionStatus, now_ms: int, error: str | None) -> Version:
    manifest = found.manifest
    return Version(
        number=manifest.version,
        kind=manifest.kind,
        config=manifest.config,
        config_hash=manifest.config_hash,
        statuses=dict.fromkeys(found.fabrics, status),
        since_ms=dict.fromkeys(found.fabrics, now_ms),
        created_at_ms=manifest.created_at_ms,
        rebuild=manifest.rebuild,
        epoch=manifest.epoch,
        path=dirname(found.ref.path),
        source_version=manifest.source_version,
        feeds=tuple(feed.id for feed in manifest.feeds),
        start=manifest.start,
        stop=manifest.stop,
        ttl_floor_ms=manifest.ttl_floor_ms,
        tombstone_floor_ms=manifest.tombstone_floor_ms,
        manifest=found.ref,
        # Without a node: the next rounds place the replicas.
        assignment={f: dict.fromkeys(range(manifest.config.partitions), ()) for f in found.fabrics},
        timed=manifest.config.hybrid or manifest.kind is RebuildKind.TTL_REPUSH,
        error=error,
        topics=_topics_of(found),
    )


def _topics_of(found: FoundManifest) -> dict[str, VersionTopic]:
    """The topics that a base lies in, as its manifest names them."""
    named = next(iter(found.manifest.ranges), None)
    if named is None:
        return {}
    return dict.fromkeys(found.fabrics, VersionTopic(name=named.topic, uid=named.topic_uid, ready=True))
