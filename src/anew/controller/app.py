"""The controller's HTTP face, put together. Handlers are thin: parse, call, shape.

FastAPI runs them in its few dozen threads, except those that wait for something: they keep none meanwhile.
"""

from __future__ import annotations

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool

from anew.api.gate import Gate
from anew.api.models import ClusterInfo, RestoreCatalog, StatusView
from anew.api.pages import DEFAULT_ITEMS, Page, page_of
from anew.api.reach import Reach
from anew.api.rights import OPEN, OPERATE_ALL, READ_ALL, READ_ANY, READ_STORE, takes
from anew.api.security import OPEN_SERVER, ServerSecurity
from anew.api.upkeep import Alive, Events, HistoryLine, Ready, RestoredCatalog
from anew.controller.engine.context import Context
from anew.controller.engine.events import events_after, shown
from anew.controller.engine.fabrics import fabric_named
from anew.controller.engine.parameters import Actor, After, Limit, Revision, WaitSeconds
from anew.controller.engine.routes import add_rebuilds
from anew.controller.http.admission import Admission, guarded
from anew.controller.http.doorstep import Doorstep
from anew.controller.http.errors import answer_errors
from anew.controller.jobs.routes import add_jobs
from anew.controller.metrics import registry_of
from anew.controller.nodes.routes import add_nodes
from anew.controller.restore.restore import restore as restore_catalog
from anew.controller.status import status_view
from anew.controller.stores.records import store_named
from anew.controller.stores.routes import add_stores
from anew.controller.tables.routes import add_tables
from anew.controller.topics.routes import add_topics
from anew.controller.upkeep.routes import add_upkeep

_LOOPBACK = "127.0.0.1"


def make_app(context: Context, security: ServerSecurity = OPEN_SERVER, bind: str = _LOOPBACK) -> FastAPI:
    """The application over the controller's collaborators.

    Args:
        context: They.
        security: Whom it lets in.
        bind: The address on which it is to listen: requests for others are refused.
    """
    app = FastAPI(title="anew controller", version=context.release, docs_url="/docs", redoc_url=None)
    gate = Gate(security.tokens, context.clock)
    app.router.route_class = guarded(Admission(context, gate, security.limits))
    app.add_middleware(Doorstep, reach=Reach(bind, security.names))
    answer_errors(app)
    wings = (add_rebuilds, add_stores, add_tables, add_topics, add_jobs)
    for add in (*wings, add_nodes, add_upkeep, _add_restore, _add_health):
        add(app, context)
    return app


def _add_restore(app: FastAPI, context: Context) -> None:
    @app.post("/v1/catalog/restore", tags=["catalog"])
    @takes(OPERATE_ALL)
    def restore(request: RestoreCatalog, actor: Actor = "anonymous") -> RestoredCatalog:
        """Make a lost catalog again from the deep stores; refused where the catalog holds something."""
        return restore_catalog(context, request, actor)


def _add_health(app: FastAPI, context: Context) -> None:
    @app.get("/v1/status", tags=["cluster"])
    @takes(READ_ALL)
    def status() -> StatusView:
        """What is unhealthy, since when, which command next."""
        return status_view(context)

    @app.get("/v1/cluster", tags=["cluster"])
    @takes(READ_ANY)
    def cluster(fabric: str | None = None) -> ClusterInfo:
        """Where the parts of a fabric are."""
        chosen = fabric_named(context, fabric)
        root = chosen.deep_store.root_uri
        return ClusterInfo(fabric=chosen.name, log=chosen.log_location, deep_store=root, release=context.release)

    @app.get("/v1/history", tags=["cluster"])
    @takes(READ_STORE)
    def history(store: str | None = None, limit: Limit = DEFAULT_ITEMS, after: After = None) -> Page[HistoryLine]:
        """Who did what when, newest first; of what was deleted too."""
        found = context.catalog.history(store, limit + 1, after=after)
        if not found and after is None:
            _check_known(context, store)
        return page_of([HistoryLine(**shown(operation)) for operation in found], limit, lambda line: line.id)

    @app.get("/v1/events", tags=["cluster"])
    @takes(READ_STORE)
    async def events(
        store: str | None = None, after: Revision = 0, limit: Limit = DEFAULT_ITEMS, wait_seconds: WaitSeconds = 0.0
    ) -> Events:
        """What was done since a revision of the catalog, the oldest first; as soon as there is something newer.

        Where the catalog is behind that revision, because an older copy took its place, the answer comes at once, and
        its ``next`` is below it.
        """
        await run_in_threadpool(_check_known, context, store)
        if await run_in_threadpool(context.catalog.revision) >= after:
            await context.watch.wait_beyond(after, wait_seconds)
        return await run_in_threadpool(events_after, context, after, limit, store)

    @app.get("/healthz", tags=["cluster"])
    @takes(OPEN)
    def healthz() -> Alive:
        """The process is alive."""
        return Alive(status="alive")

    @app.get("/readyz", tags=["cluster"])
    @takes(OPEN)
    def readyz() -> Ready:
        """The catalog answers."""
        return Ready(status="ready", revision=context.catalog.revision())

    @app.get("/metrics", tags=["cluster"], response_class=PlainTextResponse)
    @takes(READ_ALL)
    def metrics() -> Response:
        """Prometheus metrics."""
        return Response(generate_latest(registry_of(context)), media_type=CONTENT_TYPE_LATEST)


def _check_known(context: Context, name: str | None) -> None:
    """Raise where no store, table or topic has, or had, a name: lines of what was deleted are kept.

    Raises:
        NotFound: ``unknown_store``, with the nearest name.
    """
    catalog = context.catalog
    if name is None or catalog.table(name) is not None or catalog.topic(name) is not None:
        return
    if not catalog.history(name, 1):
        store_named(context, name)
