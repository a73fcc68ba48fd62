"""A version's life in a fabric is one object of its document."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

from anew.core.stores.oldversions import by_fabric

revision = "r0009"
down_revision = "r0008"

_AT_ONCE = 500
_STORES = sa.table("stores", sa.column("uid", sa.String), sa.column("document", sa.Text))
_PAST = sa.table(
    "past_versions", sa.column("store_uid", sa.String), sa.column("number", sa.Integer), sa.column("document", sa.Text)
)


def upgrade() -> None:
    """Rewrite the documents of stores and of past versions."""
    _rewrite(_STORES, ("uid",), lambda store: {**store, "versions": [by_fabric(each) for each in store["versions"]]})
    _rewrite(_PAST, ("store_uid", "number"), by_fabric)


def _rewrite(table: sa.TableClause, key: tuple[str, ...], change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    connection = op.get_bind()
    columns = [table.c[name] for name in key]
    rows = connection.execute(sa.select(*columns)).all()
    update = (
        sa.update(table)
        .where(*(column == sa.bindparam(f"of_{column.name}") for column in columns))
        .values(document=sa.bindparam("changed"))
    )
    for first in range(0, len(rows), _AT_ONCE):
        changed = []
        for row in rows[first : first + _AT_ONCE]:
            found = sa.select(table.c.document).where(*(c == value for c, value in zip(columns, row, strict=True)))
            document = json.loads(connection.execute(found).scalar_one())
            named = {f"of_{name}": value for name, value in zip(key, row, strict=True)}
            changed.append({**named, "changed": json.dumps(change(document), ensure_ascii=False)})
        connection.execute(update, changed)
