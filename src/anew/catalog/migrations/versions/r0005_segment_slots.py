"""When each slot of a table last changed, so that what changed is written down without reading what did not."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0005"
down_revision = "r0004"


def upgrade() -> None:
    """Every slot that has segments counts as changed."""
    op.create_table(
        "segment_slots",
        sa.Column("table_uid", sa.String(64), primary_key=True),
        sa.Column("slot", sa.Integer, primary_key=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO segment_slots (table_uid, slot, revision) SELECT DISTINCT table_uid, slot, 1 FROM segments")
    op.create_index("ix_segments_slot", "segments", ["table_uid", "slot", "name"])
