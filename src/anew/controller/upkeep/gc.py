"""``gc``: what goes, what stays, and why; the same as the reconciler's rounds do, and a look for orphans besides."""

from __future__ import annotations

import re

from anew.api.upkeep import Collected, CollectedItem
from anew.catalog.change import PutReclaim, Reclaim
from anew.controller.engine.apart import Apart
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.controller.engine.pause import cluster_paused
from anew.controller.stores.reclaim import collect
from anew.controller.stores.records import store_named
from anew.controller.upkeep.forgetting import Due, counted, forget_all
from anew.controller.upkeep.reclaim import reclaim_due
from anew.core.errors import Refused
from anew.core.stores.retention import keeping, retirable
from anew.core.stores.store import Store
from anew.segments.layout import store_path

_ATTEMPT = re.compile(r"v(?P<version>\d+)/(?P<rebuild>.+)-e(?P<epoch>\d+)")


def gc(context: Context, name: str | None, actor: str, *, dry_run: bool) -> Collected:
    """What goes and what stays; unless it is a dry run, what may go is retired and what is due is reclaimed.

    A store with a version in the making, or a paused one, is left alone and named.

    Raises:
        NotFound: ``unknown_store``.
        Refused: ``rebuild_running``, ``paused``: nothing could be looked at.
    """
    stores = context.catalog.stores() if name is None else [store_named(context, name)]
    skipped = {store.name: why for store in stores if (why := _why_not(context, store)) is not None}
    free = [store for store in stores if store.name not in skipped]
    items = [item for store in stores for item in (*_versions(context, store), *_orphans(context, store))]
    items += _waiting(context, stores, everything=name is None)
    # What is forgotten is of all stores.
    items += map(_rows, counted(context)) if name is None else ()
    if not dry_run:
        if skipped and not free:
            running = any(store.in_the_making() is not None for store in stores)
            raise Refused(
                "rebuild_running" if running else "paused",
                "nothing can be collected now",
                found=skipped,
                expected="a store without a version in the making that is not paused",
                hint="see what would go: anew gc --dry-run",
            )
        operation = context.operation("gc", name if name is not None else "cluster", actor, skipped=sorted(skipped))
        commit(context, operation)
        for store in free:
            collect(context, store, actor)
            _note_orphans(context, store, actor)
        apart = Apart()
        reclaim_due(context, apart)
        apart.end()
        if name is None and cluster_paused(context) is None:
            forget_all(context, actor)
    return Collected(dry_run=dry_run, items=tuple(items), skipped=skipped)


def _why_not(context: Context, store: Store) -> str | None:
    making = store.in_the_making()
    if making is not None:
        return f"{making.name_in(store.name)} is made by {making.rebuild}"
    return cluster_paused(context) or store.paused


def _versions(context: Context, store: Store) -> list[CollectedItem]:
    now_ms = context.clock()
    wait_seconds = context.limits.repush_source_wait_seconds
    goes, stays = retirable(store, now_ms, wait_seconds), keeping(store, now_ms, wait_seconds)
    return [
        *(_of_version(store, number, "retire", why) for number, why in goes.items()),
        *(_of_version(store, number, "keep", why) for number, why in stays.items()),
    ]


def _of_version(store: Store, number: int, act: str, why: str) -> CollectedItem:
    return CollectedItem(store=store.name, what="version", name=str(number), act=act, why=why)


def _rows(due: Due) -> CollectedItem:
    rows = f"{due.count} row" + ("" if due.count == 1 else "s")
    act = "forget" if due.puts else "wait"
    return CollectedItem(store=due.subject, what=due.what, name=rows, act=act, why=due.why, count=due.count)


def _waiting(context: Context, stores: list[Store], *, everything: bool) -> list[CollectedItem]:
    now_ms = context.clock()
    names = {key: store.name for store in stores for key in (store.uid, *(feed.topic_uid for feed in store.feeds))}
    items = []
    for reclaim in context.catalog.reclaims(None):
        owner = next((name for key, name in names.items() if key in reclaim.id or key in reclaim.target), None)
        if owner is None and not everything:
            continue
        due = reclaim.not_before_ms <= now_ms
        what = {"topic": "topic", "truncate": "log"}.get(reclaim.kind, "files")
        items.append(
            CollectedItem(
                store=owner or "",
                what=what,
                name=reclaim.id,
                act="reclaim" if due else "wait",
                why=reclaim.reason,
                not_before_ms=None if due else reclaim.not_before_ms,
            )
        )
    return items


def _orphans(context: Context, store: Store) -> list[CollectedItem]:
    """Directories of rebuilds that ended and that no version names; an unknown owner's are kept (rule R15)."""
    return [
        CollectedItem(store=store.name, what="files", name=path, act="reclaim" if known else "keep", why=why)
        for fabric in store.fabrics
        for path, (known, why) in _attempts(context, store, fabric).items()
    ]


def _note_orphans(context: Context, store: Store, actor: str) -> None:
    due_ms = context.reclaim_due_ms()
    for fabric in store.fabrics:
        for path, (known, why) in _attempts(context, store, fabric).items():
            if known:
                reclaim = Reclaim(f"orphan/{path}@{fabric}", "tree", fabric, path, due_ms, why)
                operation = context.operation("orphan found", store.name, actor, path=path)
                commit(context, operation, PutReclaim(reclaim))


def _attempts(context: Context, store: Store, fabric: str) -> dict[str, tuple[bool, str]]:
    """Attempt directories that no version that is kept owns → (whether they may go, why)."""
    root = store_path(store.uid)
    paths = {"/".join(stored.path.split("/")[:4]) for stored in context.fabrics[fabric].deep_store.list(root)}
    # Read after the files were listed: whatever was listed, its owner is known by now.
    present = context.catalog.store_by_uid(store.uid)
    kept = set() if present is None else {version.path for version in present.versions if not version.reclaimed}
    found: dict[str, tuple[bool, str]] = {}
    for path in sorted(paths - kept):
        matched = _ATTEMPT.fullmatch(path.removeprefix(f"{root}/"))
        rebuild = None if matched is None else context.catalog.rebuild(matched["rebuild"])
        if rebuild is None:
            found[path] = (False, "its owner is unknown")
        elif rebuild.ended or rebuild.epoch > int(matched["epoch"] if matched else 0):
            found[path] = (True, f"left by an ended attempt of {rebuild.id}")
    return found
