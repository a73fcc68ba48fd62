"""Rows that a retention lets go: what `anew.catalog.database` removes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from anew.catalog.conflicts import check_swapped
from anew.catalog.forget import (
    DropStore,
    DropTable,
    Forget,
    ForgetDeadLetters,
    ForgetHistory,
    ForgetPastVersions,
    ForgetRebuilds,
    ForgetRebuildsOf,
    ForgetRequests,
    ForgetSegments,
)
from anew.catalog.parts import in_parts
from anew.catalog.tables import (
    COUNTERS,
    DEAD_LETTERS,
    HISTORY,
    PAST_VERSIONS,
    REBUILDS,
    REQUESTS,
    SEGMENT_OUTCOMES,
    SEGMENT_SLOTS,
    SEGMENTS,
    STORES,
    TABLES,
)

_TABLES: dict[type, sa.Table] = {
    ForgetHistory: HISTORY,
    ForgetRequests: REQUESTS,
    ForgetPastVersions: PAST_VERSIONS,
    ForgetDeadLetters: DEAD_LETTERS,
    ForgetSegments: SEGMENTS,
    ForgetRebuilds: REBUILDS,
    ForgetRebuildsOf: REBUILDS,
}
ForgetPut = Forget | DropStore | DropTable
PAGE_ROWS = 20_000
_NO_TIME_MS = -1


def apply(connection: sa.Connection, put: ForgetPut) -> None:
    """Carry out one part of a change.

    Raises:
        Refused: ``revision_conflict``.
    """
    match put:
        case DropStore():
            _drop_store(connection, put)
        case DropTable():
            _drop_table(connection, put)
        case _:
            _forget(connection, put)


def count(connection: sa.Connection, forget: Forget) -> int:
    """How many rows there are to forget, at most as many as may be forgotten at once."""
    counts = (sa.select(sa.func.count()).select_from(query.subquery()) for query in _keys(forget))
    return sum(connection.execute(query).scalar() or 0 for query in counts)


def unnamed_rebuilds(
    connection: sa.Connection, before_ms: int, named_from_ms: int, after: tuple[int, str]
) -> list[tuple[int, str]]:
    """When some ended rebuilds were begun, and their ids: the next ones that no request and no segment names."""
    row, (after_ms, after_id) = REBUILDS.c, after
    segments = sa.exists().where(SEGMENTS.c.made_by == row.id)
    query = sa.select(row.created_at_ms, row.id).where(
        row.created_at_ms < before_ms,
        row.created_at_ms >= after_ms,
        (row.created_at_ms > after_ms) | (row.id > after_id),
        ~row.running,
        ~_requested(named_from_ms),
        ~segments,
    )
    found = connection.execute(query.order_by(row.created_at_ms, row.id).limit(PAGE_ROWS))
    return [(int(at_ms), str(rebuild_id)) for at_ms, rebuild_id in found]


def unnamed_pages(read: Any, before_ms: int, named_from_ms: int) -> Iterator[str]:
    """All such rebuilds by their ids, page by page; ``read`` runs a query in a transaction of its own."""
    after = (_NO_TIME_MS, "")
    while page := read(lambda connection, after=after: unnamed_rebuilds(connection, before_ms, named_from_ms, after)):
        yield from (rebuild_id for _, rebuild_id in page)
        after = page[-1]


def used_numbers(name: str) -> str:
    """The counter that keeps the version numbers of a store's name when no store of it is there any more."""
    return f"next_version/{name}"


def _forget(connection: sa.Connection, forget: Forget) -> None:
    table = _TABLES[type(forget)]
    for query in _keys(forget):
        names = [column.name for column in query.selected_columns]
        found = connection.execute(query)
        keys = [{f"key_{name}": value for name, value in zip(names, row, strict=True)} for row in found]
        if not keys:
            continue
        same = (table.c[name] == sa.bindparam(f"key_{name}") for name in names)
        connection.execute(sa.delete(table).where(*same), keys)
        if table is REBUILDS:
            parts = SEGMENT_OUTCOMES.c.rebuild == sa.bindparam("key_id")
            connection.execute(sa.delete(SEGMENT_OUTCOMES).where(parts), keys)


def _keys(forget: Forget) -> list[sa.Select[Any]]:
    """The primary keys of what is to be forgotten, the oldest first; many rebuilds in several queries."""
    if isinstance(forget, ForgetRebuilds):
        row = REBUILDS.c
        ended = sa.select(row.id).where(~row.running, ~_requested(0))
        return [ended.where(row.id.in_(some)) for some in in_parts(forget.ids)]
    return [_keys_by_age(forget)]


def _requested(from_ms: int) -> sa.ColumnElement[bool]:
    """Whether a request of that time or later names a rebuild."""
    return sa.exists().where(REQUESTS.c.result == REBUILDS.c.id, REQUESTS.c.at_ms >= from_ms)


def _keys_by_age(
    forget: ForgetHistory | ForgetRequests | ForgetPastVersions | ForgetDeadLetters | ForgetSegments | ForgetRebuildsOf,
) -> sa.Select[Any]:
    match forget:
        case ForgetHistory(before_ms=before_ms, most=most):
            # The lines are as old as their order says: only the first ones are looked at.
            row = HISTORY.c
            first = sa.select(row.sequence).order_by(row.sequence).limit(most)
            return sa.select(row.sequence).where(row.sequence.in_(first), row.at_ms < before_ms)
        case ForgetRequests(before_ms=before_ms, most=most):
            row = REQUESTS.c
            running = sa.select(REBUILDS.c.id).where(REBUILDS.c.running)
            old = sa.select(row.request_id).where(row.at_ms < before_ms, row.result.not_in(running))
            return old.order_by(row.at_ms).limit(most)
        case ForgetPastVersions(before_ms=before_ms, most=most, store_uid=uid):
            row = PAST_VERSIONS.c
            old = sa.select(row.store_uid, row.number).where(row.left_at_ms < before_ms)
            return (old if uid is None else old.where(row.store_uid == uid)).order_by(row.left_at_ms).limit(most)
        case ForgetDeadLetters():
            return _letters(forget)
        case ForgetRebuildsOf(subject_uid=uid, most=most, named_from_ms=named_from_ms):
            row = REBUILDS.c
            old = sa.select(row.id).where(row.subject_uid == uid, ~row.running, ~_requested(named_from_ms))
            return old.order_by(row.created_at_ms, row.id).limit(most)
        case ForgetSegments(table_uid=uid, most=most):
            row = SEGMENTS.c
            return sa.select(row.table_uid, row.name).where(row.table_uid == uid).order_by(row.name).limit(most)


def _letters(forget: ForgetDeadLetters) -> sa.Select[Any]:
    row = DEAD_LETTERS.c
    old = sa.select(row.feed, row.partition, row.offset).where(
        row.store_uid == forget.store_uid, row.set_aside, row.at_ms < forget.before_ms
    )
    if forget.below is not None:
        places = (
            (row.feed == feed) & (row.partition == partition) & (row.offset < offset)
            for (feed, partition), offset in forget.below.items()
        )
        old = old.where(sa.or_(sa.false(), *places))
    return old.order_by(row.feed, row.partition, row.offset).limit(forget.most)


def _drop_table(connection: sa.Connection, put: DropTable) -> None:
    row = TABLES.c
    gone = sa.delete(TABLES).where(row.uid == put.uid, row.revision == put.fence, row.live_name.is_(None))
    check_swapped(connection.execute(gone).rowcount, f"the deleted table {put.uid}", put.fence)
    connection.execute(sa.delete(SEGMENT_SLOTS).where(SEGMENT_SLOTS.c.table_uid == put.uid))


def _drop_store(connection: sa.Connection, put: DropStore) -> None:
    row = STORES.c
    gone = sa.delete(STORES).where(row.uid == put.uid, row.revision == put.fence, row.live_name.is_(None))
    dropped = connection.execute(gone.returning(row.name, row.next_version)).all()
    check_swapped(len(dropped), f"the deleted store {put.uid}", put.fence)
    ((name, next_version),) = dropped
    counter = used_numbers(name)
    known = connection.execute(sa.select(COUNTERS.c.value).where(COUNTERS.c.name == counter)).scalar()
    if known is None:
        connection.execute(sa.insert(COUNTERS).values(name=counter, value=next_version))
    elif known < next_version:
        connection.execute(sa.update(COUNTERS).where(COUNTERS.c.name == counter).values(value=next_version))
