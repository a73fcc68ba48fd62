"""Records that generations of stream jobs left out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0013"
down_revision = "r0012"


def upgrade() -> None:
    """No generation has left out any yet."""
    op.create_table(
        "job_dead_letters",
        sa.Column("job_uid", sa.String(64), primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("input", sa.String(200), primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True),
        sa.Column("offset", sa.BigInteger, primary_key=True),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("replayed_at_ms", sa.BigInteger, nullable=True),
    )
