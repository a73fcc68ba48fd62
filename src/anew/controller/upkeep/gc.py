"""``gc``: what goes, what stays, and why; the same as the reconciler's rounds do, and a look for orphans besides."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

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
from anew.core.retention import keeping, retirable
from anew.core.store import Store
from anew.segments.layout import store_path

_ATTEMPT = re.compile(r"v(?P<version>\d+)/(?P<rebuild>.+)-e(?P<epoch>\d+)")


@dataclass(frozen=True, slots=True)
class Item:
    """Something that may go.

    Attributes:
        store: Whose it is.
        what: ``version``, ``files``, ``topic`` or ``log``; or rows of the catalog: ``history``, ``requests``,
            ``past versions``, ``dead letters``, ``segments``, ``deleted store`` or ``deleted table``.
        name: Which one; of rows, how many.
        act: ``retire``, ``reclaim`` or ``forget`` now, ``wait`` for its time, or ``keep``.
        why: The reason.
        not_before_ms: When its grace ends, where it waits for that.
        count: How many rows, of rows.
    """

    store: str
    what: str
    name: str
    act: str
    why: str
    not_before_ms: int | None = None
    count: int | None = None


def gc(context: Context, name: str | None, actor: str, *, dry_run: bool) -> dict[str, Any]:
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
    return {"dry_run": dry_run, "items": [asdict(item) for item in items], "skipped": skipped}


def _why_not(context: Context, store: Store) -> str | None:
    making = store.in_the_making()
    if making is not None:
        return f"{making.name_in(store.name)} is made by {making.rebuild}"
    return cluster_paused(context) or store.paused


def _versions(context: Context, store: Store) -> list[Item]:
    now_ms = context.clock()
    wait_seconds = context.limits.repush_source_wait_seconds
    goes, stays = retirable(store, now_ms, wait_seconds), keeping(store, now_ms, wait_seconds)
    return [
        *(Item(store.name, "version", str(number), "retire", why) for number, why in goes.items()),
        *(Item(store.name, "version", str(number), "keep", why) for number, why in stays.items()),
    ]


def _rows(due: Due) -> Item:
    rows = f"{due.count} row" + ("" if due.count == 1 else "s")
    return Item(due.subject, due.what, rows, "forget" if due.puts else "wait", due.why, count=due.count)


def _waiting(context: Context, stores: list[Store], *, everything: bool) -> list[Item]:
    now_ms = context.clock()
    names = {key: store.name for store in stores for key in (store.uid, *(feed.topic_uid for feed in store.feeds))}
    items = []
    for reclaim in context.catalog.reclaims(None):
        owner = next((name for key, name in names.items() if key in reclaim.id or key in reclaim.target), None)
        if owner is None and not everything:
            continue
        due = reclaim.not_before_ms <= now_ms
        what = {"topic": "topic", "truncate": "log"}.get(reclaim.kind, "files")
        act = "reclaim" if due else "wait"
        items.append(Item(owner or "", what, reclaim.id, act, reclaim.reason, None if due else reclaim.not_before_ms))
    return items


def _orphans(context: Context, store: Store) -> list[Item]:
    """Directories of rebuilds that ended and that no version names; an unknown owner's are kept (rule R15)."""
    return [
        Item(store.name, "files", path, "reclaim" if known else "keep", why)
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
