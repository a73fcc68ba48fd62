"""Versions that were reclaimed have rows of their own; requests and dead letters say when they came."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0007"
down_revision = "r0006"


def upgrade() -> None:
    """Versions leave their stores in the controller's rounds; what is there counts as of the last operation."""
    op.create_table(
        "past_versions",
        sa.Column("store_uid", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("left_at_ms", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_index("ix_past_versions_left", "past_versions", ["left_at_ms"])
    for table in ("requests", "dead_letters"):
        op.add_column(table, sa.Column("at_ms", sa.BigInteger, nullable=False, server_default=sa.text("0")))
    op.execute("UPDATE requests SET at_ms = (SELECT COALESCE(MAX(history.at_ms), 0) FROM history)")
    op.execute("UPDATE dead_letters SET at_ms = (SELECT COALESCE(MAX(history.at_ms), 0) FROM history)")
    op.create_index("ix_requests_at", "requests", ["at_ms"])
