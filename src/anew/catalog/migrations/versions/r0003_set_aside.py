"""Which dead letters were copied to their store's dead-letter topic."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0003"
down_revision = "r0002"


def upgrade() -> None:
    """Those that are known already are copied now, as far as the log still has them."""
    op.add_column("dead_letters", sa.Column("set_aside", sa.Boolean, nullable=False, server_default=sa.false()))
    # Every round asks which are not: they are few, whatever there was before.
    op.create_index("ix_dead_letters_waiting", "dead_letters", ["set_aside", "store_uid"])
