"""Reclaim: what nobody needs any more goes, after a grace, intent first (rules R2, R15, R22)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import chain

import structlog

from anew.catalog.change import PutFlag, PutReclaim, Reclaim
from anew.controller.engine.context import Context
from anew.controller.stores.deadletters import dead_letters_left
from anew.controller.stores.records import change_store
from anew.controller.stores.versiontopics import topics_left, topics_to_reclaim
from anew.core.errors import Failed
from anew.core.stores import lifecycle
from anew.core.stores.retention import retirable
from anew.core.stores.store import Store, Version, VersionStatus
from anew.deepstore.interface import DeepStore
from anew.log.interface import TopicPartition
from anew.segments.layout import repair_path, repairs_path, store_path
from anew.segments.manifest import parse_manifest

_REPAIR_MS = 86_400_000
_OF_THE_LOG = ("topic", "truncate")
_LOG = structlog.get_logger("anew.controller")


def collect(context: Context, store: Store, actor: str = "controller") -> None:
    """First step: retire what retention lets go, and note its files as to be reclaimed after the grace.

    What may go is decided again on the store that the compare-and-swap is made on: a rollback that chose the version
    meanwhile wins (rule R15).
    """
    wait_seconds = context.limits.repush_source_wait_seconds
    for number, found in retirable(store, context.clock(), wait_seconds).items():

        def change(present: Store, number: int = number) -> tuple[Store, tuple[PutReclaim, ...]]:
            why = retirable(present, context.clock(), wait_seconds).get(number)
            if why is None:
                return present, ()
            version = lifecycle.existing(present, number)
            notes = (notes_of(context, present, version, fabric, why) for fabric in version.fabrics)
            return lifecycle.retire(present, number, context.clock()), tuple(chain.from_iterable(notes))

        operation = context.operation("retire version", store.name, actor, version=number, why=found)
        change_store(context, store.uid, operation, change)


def orphans_of(context: Context, store: Store, version: Version, fabric: str) -> Reclaim:
    """The note that files of ended attempts, which no manifest names, lie beside a sealed version's."""
    target = f"{store.uid}\n{version.number}"
    path = f"{version.path}/orphans@{fabric}"
    return Reclaim(path, "orphans", fabric, target, context.reclaim_due_ms(), "files of ended attempts")


def notes_of(context: Context, store: Store, version: Version, fabric: str, why: str) -> list[PutReclaim]:
    """The notes that the files of a retired version are to go after the grace, and its topic."""
    target, due_ms, reason = f"{store.uid}\n{version.number}", context.reclaim_due_ms(), f"{store.name}: {why}"
    files = Reclaim(f"{version.path}@{fabric}", "tree", fabric, target, due_ms, reason)
    return [PutReclaim(files), *topics_to_reclaim(version, fabric, due_ms, reason)]


def all_of(context: Context, store: Store) -> list[PutReclaim | PutFlag]:
    """The notes that all files and topics of a deleted store are to go after the grace."""
    name, due_ms = store.name, context.reclaim_due_ms()
    files = [
        Reclaim(f"{store.uid}/files/{f}", "tree", f, store_path(store.uid), due_ms, f"{name} was deleted")
        for f in store.fabrics
    ]
    topics = [
        Reclaim(f"{store.uid}/{x.id}", "topic", x.fabric, f"{x.topic}\n{x.topic_uid}", due_ms, f"{name} deleted")
        for x in store.feeds
    ]
    left = [*topics_left(store, due_ms, f"{name} deleted"), *dead_letters_left(store, due_ms, f"{name} deleted")]
    return [*map(PutReclaim, files + topics), *left]


def _delete_tree(context: Context, reclaim: Reclaim) -> None:
    deep_store = context.fabrics[reclaim.fabric].deep_store
    uid, _, number = reclaim.target.partition("\n")
    if not number:
        if not _owned(context, reclaim.target):
            deep_store.delete_tree(reclaim.target)
        return
    store = context.catalog.store_by_uid(uid)
    version = None if store is None else store.version(int(number))
    if store is None or version is None:
        return
    if version.status_in(reclaim.fabric) is not VersionStatus.RETIRED:
        return
    deep_store.delete_tree(version.path)
    _sweep_repairs(deep_store, store.uid, context.clock())
    operation = context.operation(
        "reclaim version", store.name, "controller", version=version.number, fabric=reclaim.fabric
    )
    now_ms, fabric = context.clock(), reclaim.fabric
    change_store(context, uid, operation, lambda s: (lifecycle.reclaimed(s, int(number), fabric, now_ms), ()))


def _owned(context: Context, directory: str) -> bool:
    """Whether a live store's version lies below a directory that was noted as nobody's (rule R15)."""
    stores = context.catalog.stores()
    return any(
        f"{version.path}/".startswith(f"{directory}/") and not version.reclaimed
        for s in stores
        for version in s.versions
    )


def _delete_orphans(context: Context, reclaim: Reclaim) -> None:
    """Delete what lies beside a sealed version's files and its manifest does not name."""
    deep_store = context.fabrics[reclaim.fabric].deep_store
    uid, _, number = reclaim.target.partition("\n")
    store = context.catalog.store_by_uid(uid)
    version = None if store is None else store.version(int(number))
    if version is None or version.manifest is None or deep_store.stat(version.manifest.path) is None:
        return
    manifest = parse_manifest(deep_store.get(version.manifest.path), version.manifest)
    owned = manifest.owned | {version.manifest.path}
    for stored in list(deep_store.list(version.path)):
        if stored.path not in owned:
            deep_store.delete(stored.path)


def _sweep_repairs(deep_store: DeepStore, store_uid: str, now_ms: int) -> None:
    """Delete what repairs of a store left that were killed: whoever is at work has written within the day."""
    written = defaultdict[str, int](int)
    for stored in deep_store.list(repairs_path(store_uid)):
        attempt = stored.path.removeprefix(f"{repairs_path(store_uid)}/").partition("/")[0]
        written[attempt] = max(written[attempt], stored.modified_ms)
    for attempt, at_ms in written.items():
        if now_ms - at_ms > _REPAIR_MS:
            deep_store.delete_tree(repair_path(store_uid, attempt))


def _delete_topic(context: Context, reclaim: Reclaim) -> None:
    topic, _, uid = reclaim.target.partition("\n")
    context.fabrics[reclaim.fabric].log.delete_topic(topic, uid)


def _truncate(context: Context, reclaim: Reclaim) -> None:
    topic, uid, partition, offset = reclaim.target.split("\n")
    log = context.fabrics[reclaim.fabric].log
    try:
        log.truncate_below(TopicPartition(topic, uid, int(partition)), int(offset))
    except Failed as error:
        # A topic that is gone holds nothing to forget; its store was deleted.
        if error.code != "topic_lost":
            raise


RECLAIMS: dict[str, Callable[[Context, Reclaim], None]] = {
    "tree": _delete_tree,
    "orphans": _delete_orphans,
    "topic": _delete_topic,
    "truncate": _truncate,
}
"""Kind of note → how what it names is removed."""
