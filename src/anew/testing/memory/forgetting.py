"""What a catalog in memory forgets."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Any

from anew.catalog.change import Operation
from anew.catalog.conflicts import check_swapped
from anew.catalog.forget import (
    DropStore,
    DropTable,
    Forget,
    ForgetDeadLetters,
    ForgetHistory,
    ForgetPastVersions,
    ForgetRebuilds,
    ForgetRequests,
)
from anew.testing.memory.catalogtables import Tables


def keys(tables: Tables, history: Sequence[Operation], forget: Forget) -> list[Hashable]:
    """The keys of the rows that are to be forgotten; of history, their places."""
    return list(islice(_found(tables, history, forget), forget.most))


def remove(tables: Tables, history: list[Operation], forget: Forget) -> None:
    """Forget rows."""
    found = keys(tables, history, forget)
    match forget:
        case ForgetHistory():
            gone = set(found)
            history[:] = [operation for place, operation in enumerate(history) if place not in gone]
        case _:
            for of in _rows_of(tables, forget):
                for key in found:
                    of.pop(key, None)
            if isinstance(forget, ForgetRebuilds):
                for part in [part for part in tables.done if part[0] in found]:
                    del tables.done[part]


def drop_store(tables: Tables, put: DropStore) -> None:
    """Take out a deleted store; its name keeps its numbers."""
    store = tables.stores.get(put.uid)
    is_there = store is not None and store.deleted_at_ms is not None and store.revision == put.fence
    check_swapped(int(is_there), f"the deleted store {put.uid}", put.fence)
    if store is not None:
        del tables.stores[put.uid]
        tables.used_numbers[store.name] = max(store.next_version, tables.used_numbers.get(store.name, 1))


def drop_table(tables: Tables, put: DropTable) -> None:
    """Take out a deleted table."""
    table = tables.tables.get(put.uid)
    is_there = table is not None and table.deleted_at_ms is not None and table.revision == put.fence
    check_swapped(int(is_there), f"the deleted table {put.uid}", put.fence)
    del tables.tables[put.uid]
    for of in [of for of in tables.slots if of[0] == put.uid]:
        del tables.slots[of]


def _rows_of(tables: Tables, forget: Forget) -> tuple[dict[Any, Any], ...]:
    match forget:
        case ForgetRequests():
            return tables.requests, tables.request_times
        case ForgetPastVersions():
            return (tables.past_versions,)
        case ForgetRebuilds():
            return (tables.rebuilds,)
        case ForgetDeadLetters():
            return tables.dead_letters, tables.set_aside, tables.letter_times
        case _:
            return (tables.segments,)


def _found(tables: Tables, history: Sequence[Operation], forget: Forget) -> Iterator[Hashable]:
    match forget:
        case ForgetHistory(before_ms=before_ms, most=most):
            yield from (place for place, operation in enumerate(history[:most]) if operation.at_ms < before_ms)
        case ForgetRequests(before_ms=before_ms):
            rebuilds = tables.rebuilds.values()
            running = {rebuild.id for rebuild in rebuilds if not rebuild.ended}
            old = sorted((at_ms, key) for key, at_ms in tables.request_times.items() if at_ms < before_ms)
            yield from (key for _, key in old if tables.requests[key].result not in running)
        case ForgetPastVersions(before_ms=before_ms, store_uid=uid):
            left = sorted((at_ms, of) for of, (at_ms, _) in tables.past_versions.items() if at_ms < before_ms)
            yield from (of for _, of in left if uid in (None, of[0]))
        case ForgetRebuilds(before_ms=before_ms, subject_uid=uid, kept=kept):
            of_it = (r for r in tables.rebuilds.values() if r.subject.uid == uid and r.ended and r.id not in kept)
            old = sorted((rebuild.created_at_ms, rebuild.id) for rebuild in of_it if rebuild.created_at_ms < before_ms)
            yield from (rebuild_id for _, rebuild_id in old)
        case ForgetDeadLetters():
            yield from _letters(tables, forget)
        case _:
            yield from (of for of in sorted(tables.segments) if of[0] == forget.table_uid)


def _letters(tables: Tables, forget: ForgetDeadLetters) -> Iterator[Hashable]:
    for at, (uid, _) in sorted(tables.dead_letters.items()):
        is_old = tables.letter_times[at] < forget.before_ms
        is_read = forget.below is not None and at[2] >= forget.below.get(at[:2], 0)
        if uid == forget.store_uid and at in tables.set_aside and is_old and not is_read:
            yield at
