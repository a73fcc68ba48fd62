"""What is done to rebuilds of stores and of tables alike: each goes to the one whose record has the id."""

from __future__ import annotations

from typing import Any

from anew.api.models import EndRebuild, Heartbeat, HeartbeatAnswer, ResumeRebuild
from anew.controller import rebuilds, resuming, views
from anew.controller.context import Context, store_named
from anew.controller.tables import rebuilds as table_rebuilds
from anew.controller.tables.records import table_named
from anew.controller.tables.views import table_rebuild_view
from anew.core.errors import NotFound, Refused
from anew.core.rebuild import Rebuild
from anew.core.tables.rebuild import TableRebuild

_ATTEMPTS = 10


def find(context: Context, rebuild_id: str) -> Rebuild | TableRebuild:
    """The rebuild of that id.

    Raises:
        NotFound: ``unknown_rebuild``.
    """
    found = context.catalog.table_rebuild(rebuild_id)
    return rebuilds.rebuild_of(context, rebuild_id) if found is None else found


def listed(context: Context, store: str | None, table: str | None, *, running_only: bool) -> list[dict[str, Any]]:
    """The ``rebuild`` shapes of a store's, a table's or all rebuilds, newest first.

    Raises:
        NotFound: ``unknown_store``, ``unknown_table``.
    """
    shown = []
    if table is None:
        uid = None if store is None else store_named(context, store).uid
        found = context.catalog.rebuilds(store_uid=uid, running_only=running_only)
        shown += [views.rebuild_view(context, rebuild) for rebuild in found]
    if store is None:
        table_uid = None if table is None else table_named(context, table).uid
        of_tables = context.catalog.table_rebuilds(table_uid=table_uid, running_only=running_only)
        shown += [table_rebuild_view(context, rebuild) for rebuild in of_tables]
    return sorted(shown, key=lambda view: (-view["created_at_ms"], view["id"]))


def begun_by(context: Context, request_id: str) -> list[dict[str, Any]]:
    """The ``rebuild`` shape of the rebuild that a request began (rule R22); none where it began none."""
    known = context.catalog.request(request_id)
    if known is None:
        return []
    try:
        return [view(context, known.result)]
    except NotFound:
        # It made something else, or its record is gone.
        return []


def view(context: Context, rebuild_id: str) -> dict[str, Any]:
    """The ``rebuild`` shape."""
    return _shown(context, find(context, rebuild_id))


def heartbeat(context: Context, rebuild_id: str, request: Heartbeat) -> HeartbeatAnswer:
    """Renew a driver's lease; see `rebuilds.heartbeat`."""
    for left in reversed(range(_ATTEMPTS)):
        rebuild = find(context, rebuild_id)
        if isinstance(rebuild, Rebuild):
            return rebuilds.heartbeat(context, rebuild_id, request)
        try:
            return table_rebuilds.heartbeat(context, rebuild, request)
        except Refused as error:
            # A commit of a segment came between.
            if error.code != "revision_conflict" or not left:
                raise
    raise AssertionError("unreachable: the last attempt raises or returns")


def fail(context: Context, rebuild_id: str, request: EndRebuild) -> dict[str, Any]:
    """The driver gives up."""
    rebuild = find(context, rebuild_id)
    if isinstance(rebuild, Rebuild):
        return _shown(context, rebuilds.fail(context, rebuild_id, request))
    return _shown(context, table_rebuilds.fail(context, rebuild, request))


def kill(context: Context, rebuild_id: str, actor: str) -> dict[str, Any]:
    """End a rebuild from outside."""
    rebuild = find(context, rebuild_id)
    if isinstance(rebuild, Rebuild):
        return _shown(context, rebuilds.kill(context, rebuild_id, actor))
    return _shown(context, table_rebuilds.kill(context, rebuild, actor))


def resume(context: Context, rebuild_id: str, request: ResumeRebuild, actor: str) -> Rebuild | TableRebuild:
    """Give a rebuild a new driver."""
    rebuild = find(context, rebuild_id)
    if isinstance(rebuild, Rebuild):
        return resuming.resume(context, rebuild_id, request, actor)
    return table_rebuilds.resume(context, rebuild, request, actor)


def _shown(context: Context, rebuild: Rebuild | TableRebuild) -> dict[str, Any]:
    if isinstance(rebuild, Rebuild):
        return views.rebuild_view(context, rebuild)
    return table_rebuild_view(context, rebuild)
