"""Finding tables and their rebuilds, and the one way to change each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anew.catalog.change import Change, Operation, Put, PutTable, PutTableRebuild
from anew.controller.context import Context
from anew.core.errors import NotFound, Refused
from anew.core.rebuild import DRIVEN_STAGES
from anew.core.suggest import did_you_mean
from anew.core.tables.config import SegmentConfig
from anew.core.tables.rebuild import TableRebuild
from anew.core.tables.table import Table

_Result = TypeVar("_Result")
_ATTEMPTS = 20


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


def table_rebuild_of(context: Context, rebuild_id: str) -> TableRebuild:
    """The table's rebuild of that id.

    Raises:
        NotFound: ``unknown_rebuild``.
    """
    rebuild = context.catalog.table_rebuild(rebuild_id)
    if rebuild is None:
        raise NotFound(
            "unknown_rebuild", f"there is no rebuild {rebuild_id}", found=rebuild_id, hint="anew rebuild list"
        )
    return rebuild


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

    def attempt() -> Table:
        table = context.catalog.table_by_uid(uid)
        if table is None or table.deleted_at_ms is not None:
            raise NotFound("unknown_table", "the table is gone", found=uid)
        after, puts = change(table)
        if after == table and not puts:
            return table
        context.catalog.commit(Change(operation, (PutTable(after, table.revision), *puts)))
        return after.model_copy(update={"revision": table.revision + 1})

    return tried(attempt)


def change_rebuild(
    context: Context,
    rebuild_id: str,
    operation: Operation,
    change: Callable[[TableRebuild], tuple[TableRebuild, tuple[Put, ...]] | None],
) -> TableRebuild:
    """The same for a table's rebuild; ``change`` returns None where there is nothing to do.

    Raises:
        Refused, NotFound: What ``change`` raises; ``revision_conflict``, ``unknown_rebuild``.
    """

    def attempt() -> TableRebuild:
        rebuild = table_rebuild_of(context, rebuild_id)
        changed = change(rebuild)
        if changed is None:
            return rebuild
        after, puts = changed
        context.catalog.commit(Change(operation, (PutTableRebuild(after, rebuild.revision), *puts)))
        return after.model_copy(update={"revision": rebuild.revision + 1})

    return tried(attempt)


def check_driver(rebuild: TableRebuild, epoch: int) -> None:
    """Raise unless a driver of that epoch may still work on it.

    Raises:
        Refused: ``rebuild_ended``, ``epoch_outdated``.
    """
    if rebuild.ended or rebuild.stage not in DRIVEN_STAGES:
        raise Refused(
            "rebuild_ended",
            f"the rebuild {rebuild.id} has ended",
            found=f"{rebuild.status.value}: {rebuild.error}",
            expected="a rebuild that runs",
            hint=f"anew rebuild show {rebuild.id}",
        )
    check_epoch(rebuild, epoch)


def check_epoch(rebuild: TableRebuild, epoch: int) -> None:
    """Raise unless no other driver took over.

    Raises:
        Refused: ``epoch_outdated``.
    """
    if rebuild.epoch != epoch:
        raise Refused(
            "epoch_outdated",
            f"another driver took over the rebuild {rebuild.id}",
            found=f"epoch {epoch}",
            expected=f"epoch {rebuild.epoch}",
        )


def tried(attempt: Callable[[], _Result]) -> _Result:
    """Attempt, again when somebody else was faster.

    Raises:
        Refused: ``revision_conflict`` after many losses.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            return attempt()
        except Refused as error:
            if error.code != "revision_conflict" or not left:
                raise
    raise AssertionError("unreachable: the last attempt raises or returns")
