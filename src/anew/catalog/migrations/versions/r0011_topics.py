"""Topics of our own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0011"
down_revision = "r0010"


def upgrade() -> None:
    """A table like those of stores and tables: a name is unique among the topics that are not deleted."""
    op.create_table(
        "topics",
        sa.Column("uid", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("live_name", sa.String(64), nullable=True, unique=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
