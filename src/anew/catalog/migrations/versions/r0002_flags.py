"""Flags: what somebody has switched on for the cluster or for a node."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = "r0001"


def upgrade() -> None:
    """Make the table of flags."""
    op.create_table(
        "flags",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
