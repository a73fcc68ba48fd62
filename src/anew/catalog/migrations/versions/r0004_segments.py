"""Tables with their configurations, segments and rebuilds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0004"
down_revision = "r0003"


def upgrade() -> None:
    """All of them are new."""
    op.create_table(
        "tables",
        sa.Column("uid", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("live_name", sa.String(64), nullable=True, unique=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "table_configs",
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "segments",
        sa.Column("table_uid", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("build", sa.String(64), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("config_hash", sa.String(64), nullable=True),
        sa.Column("slot", sa.Integer, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("failed_hash", sa.String(64), nullable=True),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "table_rebuilds",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("table_uid", sa.String(64), nullable=False, index=True),
        sa.Column("running", sa.Boolean, nullable=False, index=True),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
    )
    op.create_table(
        "segment_outcomes",
        sa.Column("rebuild", sa.String(64), primary_key=True),
        sa.Column("segment", sa.String(200), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
