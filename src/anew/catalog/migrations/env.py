"""Runs migrations over the connection that the caller hands in."""

from __future__ import annotations

from alembic import context

from anew.catalog.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
