"""Finding tables and their configurations, and the one way to change a table."""

from __future__ import annotations

from collections.abc import Callable

from anew.catalog.change import Operation, Put, PutTable
from anew.controller.engine.commit import again_on_conflict, commit
from anew.controller.engine.context import Context
from anew.core.errors import NotFound
from anew.core.suggest import did_you_mean
from anew.core.tables.config import SegmentConfig
from anew.core.tables.table import Table


def table_named(context: Context, name: str) -> Table:
    """The live table of that name.

    Raises:
        NotFound: ``unknown_table``, with the nearest name.
    """
    table = context.catalog.table(name)
    if table is None:
        known = [other.name for other in context.catalog.tables()]
        raise NotFound(
            "unknown_table",
            f"there is no table {name}",
            found=name,
            expected=", ".join(known) if known else "none is there yet",
            hint=did_you_mean(name, known),
        )
    return table


def config_named(context: Context, config_hash: str) -> SegmentConfig:
    """The configuration of a hash (case A9).

    Raises:
        NotFound: ``unknown_config``.
    """
    config = context.catalog.table_config(config_hash)
    if config is None:
        raise NotFound("unknown_config", "no segment was ever made with this configuration", found=config_hash)
    return config


def change_table(
    context: Context, uid: str, operation: Operation, change: Callable[[Table], tuple[Table, tuple[Put, ...]]]
) -> Table:
    """Load, change by a pure function, commit by compare-and-swap; again when somebody else was faster.

    ``change`` returns the next table and what is to be committed with it; the very same table and nothing else commits
    nothing.

    Raises:
        Refused: What ``change`` refuses; ``revision_conflict`` after many losses.
        NotFound: ``unknown_table``: it was deleted meanwhile.
    """

    def changed() -> Table:
        table = context.catalog.table_by_uid(uid)
        if table is None or table.deleted_at_ms is not None:
            raise NotFound("unknown_table", "the table is gone", found=uid)
        after, puts = change(table)
        if after == table and not puts:
            return table
        commit(context, operation, PutTable(after, table.revision), *puts)
        return after.model_copy(update={"revision": table.revision + 1})

    return again_on_conflict(changed)
