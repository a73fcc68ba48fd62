"""Each line of history says at which revision of the catalog it was committed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0010"
down_revision = "r0009"


def upgrade() -> None:
    """Lines from before are of no revision: who waits for what comes has no use for them."""
    op.add_column("history", sa.Column("revision", sa.BigInteger, nullable=False, server_default=sa.text("0")))
    op.create_index("ix_history_revision", "history", ["revision"])
    # Lists of rebuilds are read page by page, the newest first.
    op.create_index("ix_rebuilds_created", "rebuilds", ["created_at_ms"])
