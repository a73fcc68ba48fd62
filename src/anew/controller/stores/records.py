"""Finding stores, and the one way to change one."""

from __future__ import annotations

from collections.abc import Callable

from anew.catalog.change import Operation, Put, PutStore
from anew.controller.engine.commit import again_on_conflict, commit
from anew.controller.engine.context import Context
from anew.core.errors import NotFound
from anew.core.store import Store
from anew.core.stores.rebuild import StoreRebuild
from anew.core.suggest import did_you_mean


def store_named(context: Context, name: str) -> Store:
    """The live store of that name.

    Raises:
        NotFound: ``unknown_store``, with the nearest name.
    """
    store = context.catalog.store(name)
    if store is None:
        known = [other.name for other in context.catalog.stores()]
        raise NotFound(
            "unknown_store",
            f"there is no store {name}",
            found=name,
            expected=", ".join(known) if known else "none is there yet",
            hint=did_you_mean(name, known),
        )
    return store


def store_of(context: Context, rebuild: StoreRebuild) -> Store:
    """The store that a rebuild is of, deleted or not.

    Raises:
        NotFound: ``unknown_store``.
    """
    store = context.catalog.store_by_uid(rebuild.store_uid)
    if store is None:
        raise NotFound("unknown_store", "the store is gone", found=rebuild.store)
    return store


def change_store(
    context: Context, uid: str, operation: Operation, change: Callable[[Store], tuple[Store, tuple[Put, ...]]]
) -> Store:
    """Load, change by a pure function, commit by compare-and-swap; again when somebody else was faster.

    ``change`` returns the next store and what is to be committed with it; returning the very same store and nothing
    else commits nothing.

    Raises:
        Refused: What ``change`` refuses; ``revision_conflict`` after many losses.
        NotFound: ``unknown_store``: it was deleted meanwhile.
    """

    def changed() -> Store:
        store = context.catalog.store_by_uid(uid)
        if store is None:
            raise NotFound("unknown_store", "the store is gone", found=uid)
        after, puts = change(store)
        if after == store and not puts:
            return store
        commit(context, operation, PutStore(after, store.revision), *puts)
        return after.model_copy(update={"revision": store.revision + 1})

    return again_on_conflict(changed)
