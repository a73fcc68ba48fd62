"""Reclaim of segments' files: what no segment names, of a rebuild that has ended, goes after the grace (rule R15)."""

from __future__ import annotations

from collections.abc import Callable

from anew.catalog.change import PutReclaim, Reclaim
from anew.controller.engine.context import Context
from anew.core.tables.rebuild import TableRebuild
from anew.segments.layout import builds_path


def attempt_left(context: Context, rebuild: TableRebuild) -> tuple[PutReclaim, ...]:
    """The note that what a driver left in its directory, and no segment names, is to go after the grace."""
    path = builds_path(rebuild.table_uid, rebuild.id, rebuild.epoch)
    fabric, target = rebuild.plan.target.fabric, f"{rebuild.table_uid}\n{path}"
    why = f"files of {rebuild.id} that no segment names"
    return (PutReclaim(Reclaim(f"{path}@{fabric}", "attempt", fabric, target, context.reclaim_due_ms(), why)),)


def delete_build(context: Context, reclaim: Reclaim) -> None:
    """Delete the file of a build that was replaced or dropped, unless a segment names it again."""
    uid, _, path = reclaim.target.partition("\n")
    if path not in _named(context, uid):
        context.fabrics[reclaim.fabric].deep_store.delete(path)


def delete_attempt(context: Context, reclaim: Reclaim) -> None:
    """Delete what a driver left in its own directory and no segment names."""
    uid, _, directory = reclaim.target.partition("\n")
    deep_store = context.fabrics[reclaim.fabric].deep_store
    left = [stored.path for stored in deep_store.list(directory)]
    # Read after the files were listed: whatever was listed, its segment is known by now.
    named = _named(context, uid) | _waiting(context)
    for path in left:
        if path not in named:
            deep_store.delete(path)


def delete_table_files(context: Context, reclaim: Reclaim) -> None:
    """Delete everything of a table that was deleted."""
    uid, _, directory = reclaim.target.partition("\n")
    table = context.catalog.table_by_uid(uid)
    if table is not None and table.deleted_at_ms is not None:
        context.fabrics[reclaim.fabric].deep_store.delete_tree(directory)


def _named(context: Context, uid: str) -> set[str]:
    # Of a deleted table too: its files have a grace of their own.
    return {segment.build.path for segment in context.catalog.segments(uid)}


def _waiting(context: Context) -> set[str]:
    """Files of builds that were replaced: they have a grace of their own."""
    notes = (reclaim for reclaim in context.catalog.reclaims(None) if reclaim.kind == "build")
    return {note.target.partition("\n")[2] for note in notes}


RECLAIMS: dict[str, Callable[[Context, Reclaim], None]] = {
    "build": delete_build,
    "attempt": delete_attempt,
    "table": delete_table_files,
}
"""Kind of note → how what it names is removed."""
