"""Versions that were reclaimed become rows of the catalog, so that a store's document holds what lives."""

from __future__ import annotations

from anew.catalog.change import PutPastVersions
from anew.controller.engine.context import Context
from anew.controller.stores.records import change_store
from anew.core.stores.leaving import leavers, left, past
from anew.core.stores.store import Store, Version

_MOST_AT_ONCE = 500
"""A catalog of an earlier release may hold thousands: they leave in as many commits as it takes, one in each round."""


def let_leave(context: Context, store: Store) -> None:
    """Let versions leave whose files are gone in every fabric, unless their rebuild has still to end."""
    if not _ready(context, store):
        return
    now_ms = context.clock()

    def change(present: Store) -> tuple[Store, tuple[PutPastVersions, ...]]:
        leaving = _ready(context, present)
        if not leaving:
            return present, ()
        after = left(present, {version.number for version in leaving})
        return after, (PutPastVersions(present.uid, tuple(map(past, leaving)), now_ms),)

    operation = context.operation("past versions", store.name, "controller")
    change_store(context, store.uid, operation, change)


def _ready(context: Context, store: Store) -> list[Version]:
    found = leavers(store, _MOST_AT_ONCE)
    if not found:
        return []
    running = {rebuild.id for rebuild in context.catalog.rebuilds(subject_uid=store.uid, running_only=True)}
    return [version for version in found if version.rebuild not in running]
