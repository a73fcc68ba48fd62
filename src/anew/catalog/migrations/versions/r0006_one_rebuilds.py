"""Rebuilds of stores and of tables in one table, by kind and subject; the plan beside the rest of the record."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "r0006"
down_revision = "r0005"

_AT_ONCE = 500


def upgrade() -> None:
    """Every record moves as it is."""
    for column in ("store_uid", "running"):
        op.drop_index(f"ix_rebuilds_{column}", "rebuilds")
    op.rename_table("rebuilds", "store_rebuilds")
    rebuilds = op.create_table(
        "rebuilds",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("subject_uid", sa.String(64), nullable=False, index=True),
        sa.Column("running", sa.Boolean, nullable=False, index=True),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
    )
    for name, uid in (("store_rebuilds", "store_uid"), ("table_rebuilds", "table_uid")):
        kept = ("id", uid, "running", "created_at_ms", "revision", "document")
        columns = [*kept, "plan"] if name == "table_rebuilds" else [*kept]
        _move(sa.table(name, *map(sa.column, columns)), rebuilds)
        op.drop_table(name)


def _move(old: sa.TableClause, rebuilds: sa.Table) -> None:
    connection, after = op.get_bind(), ""
    while page := connection.execute(sa.select(old).where(old.c.id > after).order_by(old.c.id).limit(_AT_ONCE)).all():
        connection.execute(sa.insert(rebuilds), [_row(tuple(each)) for each in page])
        after = page[-1].id


def _row(old: tuple[Any, ...]) -> dict[str, Any]:
    rebuild_id, uid, running, created_at_ms, revision, text, *plan = old
    document = json.loads(text)
    # A store's record held its plan, and was told its revision beside it.
    document["revision"] = revision
    within = document.pop("plan", None)
    return {
        "id": rebuild_id,
        "kind": document["kind"],
        "subject_uid": uid,
        "running": bool(running),
        "created_at_ms": created_at_ms,
        "revision": revision,
        "document": json.dumps(document),
        "plan": plan[0] if plan else json.dumps(within),
    }
