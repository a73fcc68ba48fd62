"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0001"
down_revision = None


def upgrade() -> None:
    """Make all tables of the first release."""
    op.create_table(
        "counters",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "stores",
        sa.Column("uid", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("live_name", sa.String(64), nullable=True, unique=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("next_version", sa.Integer, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "rebuilds",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("store_uid", sa.String(64), nullable=False, index=True),
        sa.Column("running", sa.Boolean, nullable=False, index=True),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "requests",
        sa.Column("request_id", sa.String(200), primary_key=True),
        sa.Column("body_hash", sa.String(64), nullable=False),
        sa.Column("result", sa.Text, nullable=False),
    )
    op.create_table(
        "history",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("operation_id", sa.String(64), nullable=False, unique=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("what", sa.String(200), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False, index=True),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(100), primary_key=True),
        sa.Column("fabric", sa.String(100), nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("last_seen_ms", sa.BigInteger, nullable=False),
        sa.Column("removed", sa.Boolean, nullable=False),
        sa.Column("report", sa.Text, nullable=False),
    )
    op.create_table(
        "reclaims",
        sa.Column("id", sa.String(200), primary_key=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("fabric", sa.String(100), nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("not_before_ms", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_table(
        "dead_letters",
        sa.Column("feed", sa.String(300), primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True),
        sa.Column("offset", sa.BigInteger, primary_key=True),
        sa.Column("store_uid", sa.String(64), nullable=False, index=True),
        sa.Column("reason", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Remove all tables."""
    for name in ("dead_letters", "reclaims", "nodes", "history", "requests", "rebuilds", "stores", "counters"):
        op.drop_table(name)
