"""What a catalog in memory forgets."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from anew.catalog.change import Operation
from anew.catalog.conflicts import check_swapped
from anew.catalog.forget import (
    DropStore,
    DropTable,
    DropTopic,
    Forget,
    ForgetDeadLetters,
    ForgetHistory,
    ForgetPastVersions,
    ForgetRebuilds,
    ForgetRebuildsOf,
    ForgetRequests,
    ForgetSegments,
)
from anew.core.rebuild import Rebuild
from anew.testing.memory.catalogtables import Tables


def keys(tables: Tables, history: Sequence[Operation], forget: Forget) -> list[Hashable]:
    """The keys of the rows that are to be forgotten; of history, their places."""
    most = None if isinstance(forget, ForgetRebuilds) else forget.most
    return list(islice(_found(tables, history, forget), most))


def unnamed(tables: Tables, before_ms: int, named_from_ms: int) -> Iterator[str]:
    """The ended rebuilds from before a time that no version, no segment and no request names, the oldest first."""
    made = {version.rebuild for store in tables.stores.values() for version in store.versions}
    made |= {segment.made_by for segment in tables.segments.values() if segment.made_by is not None}
    ended = (rebuild for rebuild in tables.rebuilds.values() if rebuild.created_at_ms < before_ms)
    return (rebuild_id for rebuild_id in _ended(tables, ended, named_from_ms) if rebuild_id not in made)


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
            if isinstance(forget, ForgetRebuilds | ForgetRebuildsOf):
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


def drop_topic(tables: Tables, put: DropTopic) -> None:
    """Take out a deleted topic."""
    topic = tables.topics.get(put.uid)
    is_there = topic is not None and topic.deleted_at_ms is not None and topic.revision == put.fence
    check_swapped(int(is_there), f"the deleted topic {put.uid}", put.fence)
    del tables.topics[put.uid]


def _rows_of(tables: Tables, forget: Forget) -> tuple[dict[Any, Any], ...]:
    match forget:
        case ForgetRequests():
            return tables.requests, tables.request_times
        case ForgetPastVersions():
            return (tables.past_versions,)
        case ForgetRebuilds() | ForgetRebuildsOf():
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
        case ForgetRebuilds(ids=ids):
            yield from _ended(tables, (tables.rebuilds[each] for each in ids if each in tables.rebuilds), 0)
        case ForgetRebuildsOf(subject_uid=uid, named_from_ms=named_from_ms):
            of_it = (rebuild for rebuild in tables.rebuilds.values() if rebuild.subject.uid == uid)
            yield from _ended(tables, of_it, named_from_ms)
        case ForgetDeadLetters():
            yield from _letters(tables, forget)
        case ForgetSegments(table_uid=uid):
            yield from (of for of in sorted(tables.segments) if of[0] == uid)


def _ended(tables: Tables, rebuilds: Iterable[Rebuild], named_from_ms: int) -> Iterator[str]:
    """Those that have ended and that no request of that time or later names, the oldest first."""
    times = tables.request_times
    named = {known.result for key, known in tables.requests.items() if times[key] >= named_from_ms}
    ended = sorted((rebuild.created_at_ms, rebuild.id) for rebuild in rebuilds if rebuild.ended)
    yield from (rebuild_id for _, rebuild_id in ended if rebuild_id not in named)


def _letters(tables: Tables, forget: ForgetDeadLetters) -> Iterator[Hashable]:
    for at, (uid, _) in sorted(tables.dead_letters.items()):
        is_old = tables.letter_times[at] < forget.before_ms
        is_read = forget.below is not None and at[2] >= forget.below.get(at[:2], 0)
        if uid == forget.store_uid and at in tables.set_aside and is_old and not is_read:
            yield at
