"""Finding tables and their configurations, and the one way to change a table."""

from __future__ import annotations

from collections.abc import Callable

from anew.catalog.change import Operation, Put, PutTable
from anew.controller.engine.commit import change_document, found_by_name
from anew.controller.engine.context import Context
from anew.core.errors import NotFound
from anew.core.tables.config import SegmentConfig
from anew.core.tables.rebuild import TABLE, TableRebuild
from anew.core.tables.table import Table


def table_named(context: Context, name: str) -> Table:
    """The live table of that name.

    Raises:
        NotFound: ``unknown_table``, with the nearest name.
    """
    catalog = context.catalog
    return found_by_name(TABLE, name, catalog.table(name), lambda: [other.name for other in catalog.tables()])


def config_named(context: Context, config_hash: str) -> SegmentConfig:
    """The configuration of a hash (case A9).

    Raises:
        NotFound: ``unknown_config``.
    """
    config = context.catalog.table_config(config_hash)
    if config is None:
        raise NotFound("unknown_config", "no segment was ever made with this configuration", found=config_hash)
    return config


def table_of(context: Context, rebuild: TableRebuild) -> Table:
    """The table that a rebuild is of, deleted or not.

    Raises:
        NotFound: ``unknown_table``.
    """
    table = context.catalog.table_by_uid(rebuild.table_uid)
    if table is None:
        raise _gone(rebuild.table)
    return table


def change_table(
    context: Context, uid: str, operation: Operation, change: Callable[[Table], tuple[Table, tuple[Put, ...]]]
) -> Table:
    """Change a table, see `change_document`.

    Raises:
        Refused: What ``change`` refuses; ``revision_conflict`` after many losses.
        NotFound: ``unknown_table``: it was deleted meanwhile.
    """

    def load() -> Table:
        table = context.catalog.table_by_uid(uid)
        if table is None or table.deleted_at_ms is not None:
            raise _gone(uid)
        return table

    return change_document(context, operation, load, PutTable, change)


def _gone(which: str) -> NotFound:
    return NotFound("unknown_table", "the table is gone", found=which)
