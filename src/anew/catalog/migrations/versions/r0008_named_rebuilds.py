"""What names a rebuild is found by an index: the segments that it made, and the requests that began it."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "r0008"
down_revision = "r0007"

_AT_ONCE = 500


def upgrade() -> None:
    """Segments that do not say which load they belong to name the rebuild that made their build."""
    op.add_column("segments", sa.Column("made_by", sa.String(64), nullable=True))
    _fill()
    op.create_index("ix_segments_made_by", "segments", ["made_by"])
    op.create_index("ix_requests_result", "requests", ["result"])
    # Those that have ended are looked at by their age.
    op.drop_index("ix_rebuilds_running", "rebuilds")
    op.create_index("ix_rebuilds_running", "rebuilds", ["running", "created_at_ms", "id"])


def _fill() -> None:
    connection, after = op.get_bind(), ("", "")
    segments = sa.table("segments", *map(sa.column, ("table_uid", "name", "document", "made_by")))
    key = sa.tuple_(segments.c.table_uid, segments.c.name)
    query = sa.select(segments.c.table_uid, segments.c.name, segments.c.document).order_by(*key.clauses)
    same = (segments.c.table_uid == sa.bindparam("of_table"), segments.c.name == sa.bindparam("of_name"))
    while page := connection.execute(query.where(key > after).limit(_AT_ONCE)).all():
        named = [{"of_table": uid, "of_name": name, "made_by": _made_by(text)} for uid, name, text in page]
        connection.execute(sa.update(segments).where(*same).values(made_by=sa.bindparam("made_by")), named)
        after = (page[-1].table_uid, page[-1].name)


def _made_by(text: str) -> str | None:
    segment = json.loads(text)
    return None if segment.get("prefix") is not None else segment["build"].get("rebuild") or None
