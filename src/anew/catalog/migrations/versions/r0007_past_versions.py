"""Versions that were reclaimed have rows of their own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0007"
down_revision = "r0006"


def upgrade() -> None:
    """The table is empty at first: those that are in their store's document leave it in the controller's rounds."""
    op.create_table(
        "past_versions",
        sa.Column("store_uid", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("left_at_ms", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
