"""Stores and their past versions as rows: what `anew.catalog.database` reads and writes of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from anew.catalog.change import PutPastVersions, PutRestored, PutStore
from anew.catalog.conflicts import check_swapped
from anew.catalog.forgetrows import used_numbers
from anew.catalog.parts import rows_named
from anew.catalog.tables import COUNTERS, PAST_VERSIONS, STORES
from anew.core.errors import Refused
from anew.core.stores.store import Store, Version

_DOCUMENTS_KEPT = 4_096

StorePut = PutStore | PutRestored | PutPastVersions


def apply(connection: sa.Connection, put: StorePut) -> None:
    """Carry out one part of a change.

    Raises:
        Refused: ``revision_conflict``, ``store_exists``.
    """
    match put:
        case PutStore():
            _put_store(connection, put)
        case PutRestored(store=store):
            _insert_store(connection, store)
        case PutPastVersions():
            _put_past(connection, put)


def find_live(connection: sa.Connection, known: Mapping[str, Store]) -> list[Store]:
    """All live stores by name; of those that are known (uid → store) at their revision nothing is read again."""
    row = STORES.c
    revisions = {
        str(uid): int(revision)
        for uid, revision in connection.execute(sa.select(row.uid, row.revision).where(row.live_name.is_not(None)))
    }
    same = {uid: known[uid] for uid, revision in revisions.items() if uid in known and known[uid].revision == revision}
    changed = rows_named(connection, sa.select(row.document, row.revision), row.uid, revisions.keys() - same.keys())
    same.update((store.uid, store) for store in (parsed(*each) for each in changed))
    # Sorted here: databases differ in how they compare texts.
    return sorted(same.values(), key=lambda store: store.name)


@lru_cache(_DOCUMENTS_KEPT)
def parsed(text: str, revision: int) -> Store:
    """A store's document; most of what is read was read a request ago, and nobody changes what was read."""
    return Store.model_validate_json(text).model_copy(update={"revision": revision})


def find_past(connection: sa.Connection, *conditions: sa.ColumnElement[bool], limit: int) -> list[Version]:
    """Past versions, the greatest numbers first, at most so many."""
    row = PAST_VERSIONS.c
    query = sa.select(row.document).where(*conditions).order_by(row.number.desc()).limit(limit)
    return [Version.model_validate_json(document) for document in connection.execute(query).scalars()]


def next_version(connection: sa.Connection, name: str) -> int:
    """The first version number that no store of a name has used, also none that is not there any more."""
    of_stores = connection.execute(sa.select(sa.func.max(STORES.c.next_version)).where(STORES.c.name == name)).scalar()
    of_dropped = connection.execute(sa.select(COUNTERS.c.value).where(COUNTERS.c.name == used_numbers(name))).scalar()
    return max(of_stores or 1, of_dropped or 1)


def _put_store(connection: sa.Connection, put: PutStore) -> None:
    store = put.store
    if put.fence is None:
        taken = sa.select(STORES.c.uid).where(STORES.c.live_name == store.name)
        if connection.execute(taken).first() is not None:
            raise Refused("store_exists", f"there is a store {store.name} already", found=store.name)
        _insert_store(connection, store.model_copy(update={"revision": 1}))
        return
    row = _store_row(store.model_copy(update={"revision": put.fence + 1}))
    update = sa.update(STORES).where(STORES.c.uid == store.uid, STORES.c.revision == put.fence)
    changed = connection.execute(update.values(**row))
    check_swapped(changed.rowcount, f"the store {store.name}", put.fence)


def _insert_store(connection: sa.Connection, store: Store) -> None:
    connection.execute(sa.insert(STORES).values(uid=store.uid, **_store_row(store)))


def _store_row(store: Store) -> dict[str, Any]:
    return {
        "name": store.name,
        "live_name": None if store.deleted_at_ms is not None else store.name,
        "next_version": store.next_version,
        "revision": store.revision,
        "document": store.model_dump_json(),
    }


def _put_past(connection: sa.Connection, put: PutPastVersions) -> None:
    row = PAST_VERSIONS.c
    numbers = [version.number for version in put.versions]
    query = sa.select(row.number).where(row.store_uid == put.store_uid, row.number.in_(numbers))
    known = set(connection.execute(query).scalars())
    rows = [
        {
            "store_uid": put.store_uid,
            "number": version.number,
            "left_at_ms": put.left_at_ms,
            "document": version.model_dump_json(),
        }
        for version in put.versions
        if version.number not in known
    ]
    if rows:
        connection.execute(sa.insert(PAST_VERSIONS), rows)
