"""The controller's routes for tables."""

from __future__ import annotations

from fastapi import FastAPI

from anew.api.pages import DEFAULT_ITEMS, Page, page_of
from anew.api.rebuilds import RebuildView, TableRebuildView
from anew.api.rights import OPERATE, OPERATE_NAME, READ, READ_ALL, READ_ANY, REBUILD, takes
from anew.api.stores.views import Deleted
from anew.api.tables.requests import (
    CommitLoad,
    CommitSegment,
    CreateTable,
    DropSegments,
    PlanRefresh,
    ReadSegments,
    ReloadTable,
    TableSnapshot,
    UpdateTable,
)
from anew.api.tables.views import SegmentView, TableView
from anew.controller.engine.context import Context
from anew.controller.engine.listing import rebuild_view
from anew.controller.engine.parameters import Actor, After, Limit
from anew.controller.tables import changing, commits, views
from anew.controller.tables.planning import plan_refresh
from anew.controller.tables.records import config_named, table_named
from anew.core.tables.config import SegmentConfig
from anew.core.tables.plan import TablePlan
from anew.core.tables.rebuild import Done
from anew.core.tables.segment import Segment


def add_tables(app: FastAPI, context: Context) -> None:
    """Tables themselves."""

    @app.post("/v1/tables", status_code=201, tags=["tables"])
    @takes(OPERATE_NAME)
    def create(request: CreateTable, actor: Actor = "anonymous") -> TableView:
        """Make a table."""
        table = changing.create_table(context, request, actor)
        return views.table_view(context, table)

    @app.get("/v1/tables", tags=["tables"])
    @takes(READ_ALL)
    def list_tables(limit: Limit = DEFAULT_ITEMS, after: After = None) -> Page[TableView]:
        """All tables, by name."""
        found = page_of(context.catalog.tables_page(after or "", limit + 1), limit, lambda table: table.name)
        return Page(items=tuple(views.table_view(context, table) for table in found.items), next=found.next)

    @app.get("/v1/tables/{name}", tags=["tables"])
    @takes(READ)
    def show(name: str) -> TableView:
        """One table: columns, settings, how much of it is stale."""
        return views.table_view(context, table_named(context, name))

    @app.patch("/v1/tables/{name}", tags=["tables"])
    @takes(OPERATE)
    def update(name: str, request: UpdateTable, actor: Actor = "anonymous") -> TableView:
        """Change columns or settings."""
        table = changing.update_table(context, name, request, actor)
        return views.table_view(context, table)

    @app.delete("/v1/tables/{name}", tags=["tables"])
    @takes(OPERATE)
    def delete(name: str, actor: Actor = "anonymous") -> Deleted:
        """Delete a table; its files go after the grace."""
        changing.delete_table(context, name, actor)
        return Deleted(deleted=name)

    _add_segments(app, context)
    _add_commits(app, context)


def _add_segments(app: FastAPI, context: Context) -> None:
    """What a table consists of, and how it is to be."""

    @app.get("/v1/tables/{name}/segments", tags=["tables"])
    @takes(READ)
    def segments(
        name: str,
        stale: bool = False,  # noqa: FBT001, FBT002
        limit: Limit = DEFAULT_ITEMS,
        after: After = None,
    ) -> Page[SegmentView]:
        """The segments of a table, by name: why they are stale, and who serves them."""
        return views.segment_page(context, table_named(context, name), after or "", limit, stale_only=stale)

    @app.post("/v1/tables/{name}/segments:delete", tags=["tables"])
    @takes(OPERATE)
    def drop(name: str, request: DropSegments, actor: Actor = "anonymous") -> TableView:
        """Take segments out of a table; their files go after the grace."""
        table = changing.drop_segments(context, name, request, actor)
        return views.table_view(context, table)

    @app.get("/v1/tables/{name}/snapshot", tags=["tables"])
    @takes(READ)
    def snapshot(name: str, segments: bool = False) -> TableSnapshot:  # noqa: FBT001, FBT002
        """What planners of loads and readers need."""
        table = table_named(context, name)
        found = tuple(context.catalog.segments(table.uid)) if segments else ()
        deep_store = context.fabrics[table.fabric].deep_store.root_uri
        return TableSnapshot(table=table, segments=found, deep_store=deep_store, now_ms=context.clock())

    @app.post("/v1/tables/{name}/reload", tags=["tables"])
    @takes(OPERATE)
    def reload(name: str, request: ReloadTable, actor: Actor = "anonymous") -> TableView:
        """Let nodes make their copies again with the newest configuration; the deep store stays as it is."""
        table = changing.reload_table(context, name, request.segment, actor)
        return views.table_view(context, table)

    @app.get("/v1/table-configs/{config_hash}", tags=["tables"])
    @takes(READ_ANY)
    def config(config_hash: str) -> SegmentConfig:
        """The configuration of a hash, as long as anybody may ask why something is stale."""
        return config_named(context, config_hash)

    @app.post("/v1/tables/{name}/refresh:plan", tags=["tables"])
    @takes(READ)
    def plan(name: str, request: PlanRefresh) -> TablePlan:
        """What a refresh would do now, and why."""
        return plan_refresh(context, table_named(context, name), request)


def _add_commits(app: FastAPI, context: Context) -> None:
    """What drivers of refreshes and loads commit."""

    @app.post("/v1/rebuilds/{rebuild_id}/segments:read", tags=["rebuilds"])
    @takes(REBUILD)
    def read(rebuild_id: str, request: ReadSegments) -> list[Segment]:
        """What is there now of some segments of the rebuild's table."""
        return commits.read_segments(context, rebuild_id, request)

    @app.post("/v1/rebuilds/{rebuild_id}/segments:commit", tags=["rebuilds"])
    @takes(REBUILD)
    def commit(rebuild_id: str, request: CommitSegment) -> Done:
        """Put a build in the place of the one that was read, or note why not."""
        return commits.commit_segment(context, rebuild_id, request)

    @app.post("/v1/rebuilds/{rebuild_id}/load", tags=["rebuilds"], response_model=TableRebuildView)
    @takes(REBUILD)
    def load(rebuild_id: str, request: CommitLoad) -> RebuildView:
        """Make all segments of a load visible."""
        loaded = commits.commit_load(context, rebuild_id, request)
        return rebuild_view(context, loaded)
