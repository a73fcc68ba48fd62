"""Stream jobs, and the records of their batches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0012"
down_revision = "r0011"


def upgrade() -> None:
    """Nothing is there yet."""
    op.create_table(
        "jobs",
        sa.Column("uid", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("live_name", sa.String(64), nullable=True, unique=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "batches",
        sa.Column("job_uid", sa.String(64), primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("batch", sa.BigInteger, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
