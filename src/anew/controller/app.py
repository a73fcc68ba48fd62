"""The controller's HTTP face. Handlers are thin: parse, call, shape.

FastAPI runs them in its few dozen threads, except those that wait for something: they keep none meanwhile.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from anew.api.gate import Gate
from anew.api.models import (
    BeginRebuild,
    ClusterInfo,
    Collect,
    CreateStore,
    DesiredState,
    DrainNode,
    EndRebuild,
    Heartbeat,
    HeartbeatAnswer,
    HoldVersion,
    NodeReport,
    NodeView,
    Pause,
    RestoreCatalog,
    ResumeRebuild,
    RollBack,
    Routing,
    Seal,
    SnapshotView,
    StatusView,
    Swap,
    UpdateStore,
)
from anew.api.reach import Reach
from anew.api.security import OPEN_SERVER, ServerSecurity
from anew.controller import (
    collecting,
    draining,
    drivers,
    pausing,
    rebuilding,
    rebuilds,
    restoring,
    stores,
    swaps,
    views,
)
from anew.controller.admission import Admission, guarded
from anew.controller.context import Context, store_named
from anew.controller.doorstep import Doorstep, error_response
from anew.controller.metrics import registry_of
from anew.controller.nodes import desired_state, node_views, reached_position, take_report
from anew.controller.tables.routes import add_table_rebuilds, add_tables
from anew.controller.watch import Watch
from anew.core.errors import AnewError, InvalidRequest, shown_lines
from anew.core.rebuild import Rebuild, Stage
from anew.core.tables.rebuild import TableRebuild

Actor = Annotated[str, Header(alias="anew-actor")]
_LOOPBACK = "127.0.0.1"
AtLeastOne = Annotated[int, Query(ge=1)]
WaitSeconds = Annotated[float, Query(ge=0, le=30, allow_inf_nan=False)]


def make_app(context: Context, watch: Watch, security: ServerSecurity = OPEN_SERVER, bind: str = _LOOPBACK) -> FastAPI:
    """The application over the controller's collaborators.

    Args:
        context: They.
        watch: Tells of changes.
        security: Whom it lets in.
        bind: The address on which it is to listen: requests for others are refused.
    """
    app = FastAPI(title="anew controller", version=context.release, docs_url="/docs", redoc_url=None)
    gate = Gate(security.tokens, context.clock)
    app.router.route_class = guarded(Admission(context, gate, security.limits))
    app.add_middleware(Doorstep, reach=Reach(bind, security.names))
    app.add_exception_handler(AnewError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_no_route)
    _add_stores(app, context, watch)
    add_tables(app, context, watch)
    add_table_rebuilds(app, context, watch)
    _add_rebuilds(app, context, watch)
    _add_nodes(app, context, watch)
    _add_upkeep(app, context, watch)
    _add_health(app, context)
    return app


def _add_stores(app: FastAPI, context: Context, watch: Watch) -> None:
    @app.post("/v1/stores", status_code=201, tags=["stores"])
    def create(request: CreateStore, actor: Actor = "anonymous") -> dict[str, Any]:
        """Make a store."""
        store = stores.create_store(context, request, actor)
        watch.notify()
        return views.store_view(context, store, None)

    @app.get("/v1/stores", tags=["stores"])
    def list_stores() -> list[dict[str, Any]]:
        """All stores."""
        return views.store_views(context)

    @app.get("/v1/stores/{name}", tags=["stores"])
    def show(name: str, version: int | None = None) -> dict[str, Any]:
        """One store: configuration, versions per fabric, pending changes, lag."""
        return views.store_view(context, store_named(context, name), version)

    @app.patch("/v1/stores/{name}", tags=["stores"])
    def update(name: str, request: UpdateStore, actor: Actor = "anonymous") -> dict[str, Any]:
        """Change settings or add a value schema."""
        store = stores.update_store(context, name, request, actor)
        watch.notify()
        return views.store_view(context, store, None)

    @app.delete("/v1/stores/{name}", tags=["stores"])
    def delete(name: str, actor: Actor = "anonymous") -> dict[str, Any]:
        """Delete a store; its files and topics go after the grace."""
        stores.delete_store(context, name, actor)
        watch.notify()
        return {"deleted": name}

    @app.get("/v1/stores/{name}/snapshot", tags=["stores"])
    def snapshot(name: str, at_ms: int | None = None) -> SnapshotView:
        """What a planner needs."""
        return stores.snapshot(context, name, at_ms)

    @app.get("/v1/stores/{name}/routing", tags=["stores"])
    def routing(name: str, fabric: str | None = None) -> Routing:
        """What a client needs."""
        return stores.routing(context, name, fabric)

    @app.get("/v1/stores/{name}/position", tags=["stores"])
    def position(name: str, fabric: str | None = None) -> dict[str, dict[str, int]]:
        """Up to where every replica of the current version has applied each feed partition."""
        chosen = stores.fabric_named(context, fabric)
        return reached_position(context, store_named(context, name), chosen.name).to_json()

    @app.post("/v1/stores/{name}/hold", status_code=204, tags=["stores"])
    def hold(name: str, request: HoldVersion, actor: Actor = "anonymous") -> None:
        """Keep a version while a long read goes through it."""
        stores.hold_version(context, name, request, actor)

    @app.post("/v1/stores/{name}/swap", tags=["stores"])
    def swap(name: str, request: Swap, actor: Actor = "anonymous") -> dict[str, Any]:
        """Make a version current."""
        answer = swaps.swap(context, name, request, actor)
        watch.notify()
        return answer

    @app.post("/v1/stores/{name}/rollback", tags=["stores"])
    def roll_back(name: str, request: RollBack, actor: Actor = "anonymous") -> dict[str, Any]:
        """Go back to a version."""
        answer = swaps.roll_back(context, name, request, actor)
        watch.notify()
        return answer


def _add_rebuilds(app: FastAPI, context: Context, watch: Watch) -> None:
    @app.post("/v1/rebuilds", status_code=201, tags=["rebuilds"])
    def begin(request: BeginRebuild, actor: Actor = "anonymous") -> Rebuild:
        """Begin what a plan says."""
        return rebuilds.begin(context, request, actor)

    @app.get("/v1/rebuilds", tags=["rebuilds"])
    def list_rebuilds(
        store: str | None = None,
        table: str | None = None,
        running: bool = False,  # noqa: FBT001, FBT002
        request_id: str | None = None,
    ) -> list[dict[str, Any]]:
        """Rebuilds of a store, of a table, or all, newest first; or the one that a request began."""
        if request_id is not None:
            return rebuilding.begun_by(context, request_id)
        return rebuilding.listed(context, store, table, running_only=running)

    @app.get("/v1/rebuilds/{rebuild_id}", tags=["rebuilds"], response_model=dict[str, Any])
    async def show(rebuild_id: str, after: Stage | None = None, wait_seconds: WaitSeconds = 0.0) -> Response:
        """One rebuild; as soon as it is in another stage than ``after``, or has ended, or the wait is over."""
        deadline, waits = time.monotonic() + wait_seconds, True
        while True:
            # Before the record is read: what becomes of it afterwards ends the wait.
            revision = await run_in_threadpool(context.catalog.revision)
            view = await run_in_threadpool(rebuilding.view, context, rebuild_id)
            if view["stage"] != after or view["ended_at_ms"] is not None or not waits:
                return await run_in_threadpool(JSONResponse, view)
            # Progress moves without the catalog's revision, so that the record is read once more in the end.
            waits = await watch.wait_beyond(revision, deadline - time.monotonic())

    @app.post("/v1/rebuilds/{rebuild_id}/heartbeat", tags=["rebuilds"])
    def heartbeat(rebuild_id: str, request: Heartbeat) -> HeartbeatAnswer:
        """A driver's sign of life."""
        return rebuilding.heartbeat(context, rebuild_id, request)

    @app.post("/v1/rebuilds/{rebuild_id}/seal", tags=["rebuilds"])
    def seal(rebuild_id: str, request: Seal) -> dict[str, Any]:
        """Commit the base of a version."""
        sealed = rebuilds.seal(context, rebuild_id, request)
        watch.notify()
        return views.rebuild_view(context, sealed)

    @app.post("/v1/rebuilds/{rebuild_id}/fail", tags=["rebuilds"])
    def fail(rebuild_id: str, request: EndRebuild) -> dict[str, Any]:
        """The driver gives up."""
        return rebuilding.fail(context, rebuild_id, request)

    @app.post("/v1/rebuilds/{rebuild_id}/resume", tags=["rebuilds"])
    def resume(rebuild_id: str, request: ResumeRebuild, actor: Actor = "anonymous") -> Rebuild | TableRebuild:
        """Take a rebuild over whose driver is gone."""
        return rebuilding.resume(context, rebuild_id, request, actor)

    @app.post("/v1/rebuilds/{rebuild_id}/seen", tags=["rebuilds"])
    def seen(rebuild_id: str, actor: Actor = "anonymous") -> dict[str, Any]:
        """Somebody knows that the rebuild failed: the status does not tell it any more."""
        return drivers.see_failure(context, rebuild_id, actor)

    @app.post("/v1/rebuilds/{rebuild_id}/kill", tags=["rebuilds"])
    def kill(rebuild_id: str, actor: Actor = "anonymous") -> dict[str, Any]:
        """End a rebuild from outside, or give up its deferred version."""
        return rebuilding.kill(context, rebuild_id, actor)


def _add_nodes(app: FastAPI, context: Context, watch: Watch) -> None:
    @app.get("/v1/nodes", tags=["nodes"])
    def list_nodes() -> list[NodeView]:
        """All nodes."""
        return list(node_views(context))

    @app.get(
        "/v1/nodes/{node}/desired",
        tags=["nodes"],
        response_model=DesiredState,
        responses={204: {"description": "Nothing is newer."}},
    )
    async def desired(node: str, fabric: str, after: int = -1, wait_seconds: WaitSeconds = 0.0) -> Response:
        """What a node should hold; 204 when nothing is newer than ``after`` within the wait."""
        if not await watch.wait_beyond(after, wait_seconds):
            return Response(status_code=204)

        def text() -> str:
            return desired_state(context, node, stores.fabric_named(context, fabric)).model_dump_json()

        return Response(await run_in_threadpool(text), media_type="application/json")

    @app.post("/v1/nodes/{node}/report", status_code=204, tags=["nodes"])
    def report(node: str, request: NodeReport) -> None:
        """What a node holds."""
        if request.node != node:
            raise InvalidRequest(
                "other_node", "the report is of another node than the path names", found=request.node, expected=node
            )
        if take_report(context, request):
            watch.notify()


def _add_upkeep(app: FastAPI, context: Context, watch: Watch) -> None:
    @app.post("/v1/catalog/restore", tags=["catalog"])
    def restore(request: RestoreCatalog, actor: Actor = "anonymous") -> dict[str, Any]:
        """Make a lost catalog again from the deep stores; refused where the catalog holds something."""
        answer = restoring.restore(context, request, actor)
        watch.notify()
        return answer

    @app.post("/v1/nodes/{node}/drain", tags=["nodes"])
    def drain(node: str, request: DrainNode, actor: Actor = "anonymous") -> dict[str, Any]:
        """Let a node's replicas move to others, or let it be used again."""
        answer = draining.drain(context, node, request, actor)
        watch.notify()
        return answer

    @app.post("/v1/nodes/{node}/remove", tags=["nodes"])
    def remove(node: str, actor: Actor = "anonymous") -> dict[str, Any]:
        """Forget a node that holds nothing any more."""
        answer = draining.remove(context, node, actor)
        watch.notify()
        return answer

    @app.post("/v1/pause", tags=["cluster"])
    def pause(request: Pause, actor: Actor = "anonymous") -> dict[str, Any]:
        """No scheduled rebuild, reclaim or gc starts from now on."""
        return dict(pausing.pause(context, request.store, actor))

    @app.post("/v1/unpause", tags=["cluster"])
    def unpause(request: Pause, actor: Actor = "anonymous") -> dict[str, Any]:
        """Scheduled rebuilds, reclaim and gc go on."""
        return dict(pausing.unpause(context, request.store, actor))

    @app.post("/v1/gc", tags=["cluster"])
    def gc(request: Collect, actor: Actor = "anonymous") -> dict[str, Any]:
        """What nobody needs goes; a dry run says what and why."""
        return collecting.gc(context, request.store, actor, dry_run=request.dry_run)


def _add_health(app: FastAPI, context: Context) -> None:
    @app.get("/v1/status", tags=["cluster"])
    def status() -> StatusView:
        """What is unhealthy, since when, which command next."""
        return views.status_view(context)

    @app.get("/v1/cluster", tags=["cluster"])
    def cluster(fabric: str | None = None) -> ClusterInfo:
        """Where the parts of a fabric are."""
        chosen = stores.fabric_named(context, fabric)
        root = chosen.deep_store.root_uri
        return ClusterInfo(fabric=chosen.name, log=chosen.log_location, deep_store=root, release=context.release)

    @app.get("/v1/history", tags=["cluster"])
    def history(store: str | None = None, limit: AtLeastOne = 100) -> list[dict[str, Any]]:
        """Who did what when, newest first; of what was deleted too."""
        found = context.catalog.history(store, min(limit, 1_000))
        if store is not None and not found and context.catalog.table(store) is None:
            store_named(context, store)
        return [
            {"at_ms": o.at_ms, "actor": o.actor, "what": o.what, "subject": o.subject, "detail": o.detail}
            for o in found
        ]

    @app.get("/v1/reclaims", tags=["cluster"])
    def reclaims() -> list[dict[str, Any]]:
        """What waits to be reclaimed, and why."""
        return [
            {"id": r.id, "kind": r.kind, "fabric": r.fabric, "not_before_ms": r.not_before_ms, "reason": r.reason}
            for r in context.catalog.reclaims(None)
        ]

    @app.get("/healthz", tags=["cluster"])
    def healthz() -> dict[str, str]:
        """The process is alive."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["cluster"])
    def readyz() -> dict[str, Any]:
        """The catalog answers."""
        return {"status": "ready", "revision": context.catalog.revision()}

    @app.get("/metrics", tags=["cluster"], response_class=PlainTextResponse)
    def metrics() -> Response:
        """Prometheus metrics."""
        return Response(generate_latest(registry_of(context)), media_type=CONTENT_TYPE_LATEST)


def _on_error(_request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, AnewError):
        raise error
    return error_response(error)


def _on_no_route(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "unknown_path", 405: "bad_method"}.get(error.status_code, "bad_request")
    found = f"{request.method} {request.url.path}"
    body = InvalidRequest(code, f"there is nothing here: {error.detail}", found=found, expected="see /docs").to_json()
    return JSONResponse({"error": body}, status_code=error.status_code, headers=error.headers)


def _on_invalid(_request: Request, error: Exception) -> JSONResponse:
    details = error.errors() if isinstance(error, RequestValidationError) else []
    first = details[0] if details else {"loc": (), "msg": str(error)}
    where = ".".join(str(part) for part in first["loc"])
    body = {
        "code": "bad_request",
        "message": f"the request does not fit: {where}: {first['msg']}",
        "found": ", ".join(shown_lines(first.get("input"))),
        "expected": "see /docs",
        "hint": None,
    }
    return JSONResponse({"error": body}, status_code=422)
