"""The controller's routes for stores."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query

from anew.api.pages import DEFAULT_ITEMS, MAX_ITEMS, Page
from anew.api.rebuilds import RebuildView, StoreRebuildView
from anew.api.rights import OPERATE, OPERATE_NAME, READ, READ_ALL, REBUILD, takes
from anew.api.stores.requests import CreateStore, HoldVersion, RollBack, Seal, Swap, UpdateStore
from anew.api.stores.routing import Routing, SnapshotView
from anew.api.stores.views import Deleted, PositionAnswer, StoreDetail, StoreView, SwapAnswer
from anew.controller.engine.context import Context
from anew.controller.engine.fabrics import fabric_named
from anew.controller.engine.listing import rebuild_view
from anew.controller.engine.parameters import Actor, After, Limit, VersionNumber
from anew.controller.stores import changing, swaps, views
from anew.controller.stores import routing as routing_of
from anew.controller.stores.records import store_named
from anew.controller.stores.replicas import reached_position
from anew.controller.stores.seal import seal as seal_version

Below = Annotated[
    VersionNumber,
    Query(description="Of reclaimed versions only those below this number: the field next of the page before."),
]


def add_stores(app: FastAPI, context: Context) -> None:
    """Stores themselves."""

    @app.post("/v1/stores", status_code=201, tags=["stores"])
    @takes(OPERATE_NAME)
    def create(request: CreateStore, actor: Actor = "anonymous") -> StoreDetail:
        """Make a store."""
        store = changing.create_store(context, request, actor)
        return views.store_view(context, store)

    @app.get("/v1/stores", tags=["stores"])
    @takes(READ_ALL)
    def list_stores(limit: Limit = DEFAULT_ITEMS, after: After = None) -> Page[StoreView]:
        """All stores, by name."""
        return views.store_page(context, after or "", limit)

    @app.get("/v1/stores/{name}", tags=["stores"])
    @takes(READ)
    def show(name: str, version: VersionNumber = None, limit: Limit = MAX_ITEMS, after: Below = None) -> StoreDetail:
        """One store: configuration, versions per fabric, pending changes, lag."""
        past = views.Past(number=version, below=after, limit=limit)
        return views.store_view(context, store_named(context, name), past)

    @app.patch("/v1/stores/{name}", tags=["stores"])
    @takes(OPERATE)
    def update(name: str, request: UpdateStore, actor: Actor = "anonymous") -> StoreDetail:
        """Change settings or add a value schema."""
        store = changing.update_store(context, name, request, actor)
        return views.store_view(context, store)

    @app.delete("/v1/stores/{name}", tags=["stores"])
    @takes(OPERATE)
    def delete(name: str, actor: Actor = "anonymous") -> Deleted:
        """Delete a store; its files and topics go after the grace."""
        changing.delete_store(context, name, actor)
        return Deleted(deleted=name)

    _add_reading(app, context)
    _add_versions(app, context)


def _add_reading(app: FastAPI, context: Context) -> None:
    """What planners and clients need of one."""

    @app.get("/v1/stores/{name}/snapshot", tags=["stores"])
    @takes(READ)
    def snapshot(name: str, at_ms: int | None = None) -> SnapshotView:
        """What a planner needs."""
        return routing_of.snapshot(context, name, at_ms)

    @app.get("/v1/stores/{name}/routing", tags=["stores"])
    @takes(READ)
    def routing(name: str, fabric: str | None = None) -> Routing:
        """What a client needs."""
        return routing_of.routing(context, name, fabric)

    @app.get("/v1/stores/{name}/position", tags=["stores"])
    @takes(READ)
    def position(name: str, fabric: str | None = None) -> PositionAnswer:
        """Up to where every replica of the current version has applied each feed partition."""
        chosen = fabric_named(context, fabric)
        return PositionAnswer(reached_position(context, store_named(context, name), chosen.name))

    @app.post("/v1/stores/{name}/hold", status_code=204, tags=["stores"])
    @takes(READ)
    def hold(name: str, request: HoldVersion, actor: Actor = "anonymous") -> None:
        """Keep a version while a long read goes through it."""
        changing.hold_version(context, name, request, actor)


def _add_versions(app: FastAPI, context: Context) -> None:
    """What becomes of its versions."""

    @app.post("/v1/stores/{name}/swap", tags=["stores"])
    @takes(OPERATE)
    def swap(name: str, request: Swap, actor: Actor = "anonymous") -> SwapAnswer:
        """Make a version current."""
        return swaps.swap(context, name, request, actor)

    @app.post("/v1/stores/{name}/rollback", tags=["stores"])
    @takes(OPERATE)
    def roll_back(name: str, request: RollBack, actor: Actor = "anonymous") -> SwapAnswer:
        """Go back to a version."""
        return swaps.roll_back(context, name, request, actor)

    @app.post("/v1/rebuilds/{rebuild_id}/seal", tags=["rebuilds"], response_model=StoreRebuildView)
    @takes(REBUILD)
    def seal(rebuild_id: str, request: Seal) -> RebuildView:
        """Commit the base of a version."""
        sealed = seal_version(context, rebuild_id, request)
        return rebuild_view(context, sealed)
