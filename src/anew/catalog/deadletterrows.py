"""Dead letters as rows: what `anew.catalog.database` writes of them."""

from __future__ import annotations

import sqlalchemy as sa

from anew.catalog.change import PutDeadLetters, PutSetAside
from anew.catalog.tables import DEAD_LETTERS
from anew.core.admission import Rejection


def apply(connection: sa.Connection, put: PutDeadLetters | PutSetAside, at_ms: int) -> None:
    """Carry out one part of a change."""
    match put:
        case PutDeadLetters():
            _put(connection, put, at_ms)
        case PutSetAside(rejections=rejections):
            for rejection in rejections:
                update = sa.update(DEAD_LETTERS).where(_is_of(rejection)).values(set_aside=True)
                connection.execute(update)


def _is_of(rejection: Rejection) -> sa.ColumnElement[bool]:
    row = DEAD_LETTERS.c
    return (row.feed == rejection.feed) & (row.partition == rejection.partition) & (row.offset == rejection.offset)


def _put(connection: sa.Connection, put: PutDeadLetters, at_ms: int) -> None:
    for rejection in put.rejections:
        if connection.execute(sa.select(DEAD_LETTERS.c.offset).where(_is_of(rejection))).first() is None:
            row = {
                "feed": rejection.feed,
                "partition": rejection.partition,
                "offset": rejection.offset,
                "store_uid": put.store_uid,
                "reason": rejection.reason,
                "at_ms": at_ms,
            }
            connection.execute(sa.insert(DEAD_LETTERS).values(**row))
