"""Rows that a retention lets go: what `anew.catalog.database` removes."""

from __future__ import annotations

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
    ForgetRequests,
    ForgetSegments,
)
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
}
ForgetPut = Forget | DropStore | DropTable


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
    return connection.execute(sa.select(sa.func.count()).select_from(_keys(forget).subquery())).scalar() or 0


def used_numbers(name: str) -> str:
    """The counter that keeps the version numbers of a store's name when no store of it is there any more."""
    return f"next_version/{name}"


def _forget(connection: sa.Connection, forget: Forget) -> None:
    table, query = _TABLES[type(forget)], _keys(forget)
    names = [column.name for column in query.selected_columns]
    keys = [{f"key_{name}": value for name, value in zip(names, row, strict=True)} for row in connection.execute(query)]
    if keys:
        same = (table.c[name] == sa.bindparam(f"key_{name}") for name in names)
        connection.execute(sa.delete(table).where(*same), keys)
    if keys and isinstance(forget, ForgetRebuilds):
        connection.execute(
            sa.delete(SEGMENT_OUTCOMES).where(SEGMENT_OUTCOMES.c.rebuild == sa.bindparam("key_id")), keys
        )


def _keys(forget: Forget) -> sa.Select[Any]:
    """The primary keys of what is to be forgotten, the oldest first."""
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
        case ForgetRebuilds(before_ms=before_ms, most=most, subject_uid=uid, kept=kept):
            row = REBUILDS.c
            old = sa.select(row.id).where(row.subject_uid == uid, ~row.running, row.created_at_ms < before_ms)
            # Most of those that are kept are young: the few old ones among the first are passed over here.
            return old.where(row.id.not_in(sorted(kept))).order_by(row.created_at_ms).limit(most)
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
