"""Finding stores, and the one way to change one."""

from __future__ import annotations

from collections.abc import Callable

from anew.catalog.change import Operation, Put, PutStore
from anew.controller.engine.commit import change_document, found_by_name
from anew.controller.engine.context import Context
from anew.core.errors import NotFound
from anew.core.stores.rebuild import STORE, StoreRebuild
from anew.core.stores.store import Store


def store_named(context: Context, name: str) -> Store:
    """The live store of that name.

    Raises:
        NotFound: ``unknown_store``, with the nearest name.
    """
    catalog = context.catalog
    return found_by_name(STORE, name, catalog.store(name), lambda: [other.name for other in catalog.stores()])


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
    """Change a store, see `change_document`.

    Raises:
        Refused: What ``change`` refuses; ``revision_conflict`` after many losses.
        NotFound: ``unknown_store``: it is gone.
    """

    def load() -> Store:
        store = context.catalog.store_by_uid(uid)
        if store is None:
            raise NotFound("unknown_store", "the store is gone", found=uid)
        return store

    return change_document(context, operation, load, PutStore, change)
