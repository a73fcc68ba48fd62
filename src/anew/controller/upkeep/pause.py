"""Pausing: while a store, or the cluster, is paused no scheduled rebuild, reclaim or gc starts."""

from __future__ import annotations

from anew.api.upkeep import Paused, Unpaused
from anew.catalog.change import PutFlag, Reclaim
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.controller.engine.pause import PAUSED
from anew.controller.stores.records import change_store, store_named
from anew.core.stores.store import Store


def pause(context: Context, name: str | None, actor: str) -> Paused:
    """Pause a store, or everything for None; pausing twice is pausing once.

    Raises:
        NotFound: ``unknown_store``.
    """
    why = f"paused by {actor}"
    if name is None:
        commit(context, context.operation("pause", "cluster", actor), PutFlag(PAUSED, why))
    else:
        operation = context.operation("pause", name, actor)
        change_store(context, store_named(context, name).uid, operation, lambda s: (_with_pause(s, why), ()))
    return Paused(store=name, paused=why)


def unpause(context: Context, name: str | None, actor: str) -> Unpaused:
    """Let a store go on, or the cluster for None; a store's scheduled repushes that a rollback held go on as well.

    Returns:
        Why the cluster is still paused, and for each store that is still paused or held by itself, why.

    Raises:
        NotFound: ``unknown_store``.
    """
    if name is None:
        commit(context, context.operation("unpause", "cluster", actor), PutFlag(PAUSED, None))
    else:
        operation = context.operation("unpause", name, actor)
        change_store(context, store_named(context, name).uid, operation, lambda s: (_with_pause(s, None), ()))
    still = {s.name: _why_still(s) for s in context.catalog.stores()} if name is None else {}
    stores = {store: why for store, why in still.items() if why is not None}
    return Unpaused(store=name, paused=context.catalog.flags().get(PAUSED), stores=stores)


def held_back(stores: list[Store], reclaim: Reclaim) -> bool:
    """Whether what is to be reclaimed belongs to a store that is paused."""
    owned = (name for s in stores if s.paused for name in (s.uid, *(feed.topic_uid for feed in s.feeds)))
    return any(name in reclaim.id or name in reclaim.target for name in owned)


def _why_still(store: Store) -> str | None:
    """Why a store does not go on with the cluster, None when it does."""
    if store.paused is not None or store.schedule_held is None:
        return store.paused
    return f"its scheduled repushes are held: {store.schedule_held}"


def _with_pause(store: Store, why: str | None) -> Store:
    if why is not None:
        return store.model_copy(update={"paused": why})
    return store.model_copy(update={"paused": None, "schedule_held": None})
