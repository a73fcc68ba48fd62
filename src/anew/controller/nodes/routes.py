"""The controller's routes for nodes."""

from __future__ import annotations

from fastapi import FastAPI, Response
from starlette.concurrency import run_in_threadpool

from anew.api.models import DesiredState, DrainNode, NodeReport, NodeView
from anew.api.pages import DEFAULT_ITEMS, Page
from anew.api.rights import OPERATE_ALL, READ_ANY, takes
from anew.api.upkeep import DrainAnswer, NodeRemoved
from anew.controller.engine.context import Context
from anew.controller.engine.fabrics import fabric_named
from anew.controller.engine.nodes import node_page
from anew.controller.engine.parameters import Actor, After, Limit, WaitSeconds
from anew.controller.nodes import draining
from anew.controller.nodes.reports import desired_state, take_report
from anew.core.errors import InvalidRequest


def add_nodes(app: FastAPI, context: Context) -> None:
    """What nodes ask, and what is asked about them."""

    @app.get("/v1/nodes", tags=["nodes"])
    @takes(READ_ANY)
    def list_nodes(limit: Limit = DEFAULT_ITEMS, after: After = None) -> Page[NodeView]:
        """All nodes, by id."""
        return node_page(context, after or "", limit)

    @app.get(
        "/v1/nodes/{node}/desired",
        tags=["nodes"],
        response_model=DesiredState,
        responses={204: {"description": "Nothing is newer."}},
    )
    @takes(OPERATE_ALL)
    async def desired(node: str, fabric: str, after: int = -1, wait_seconds: WaitSeconds = 0.0) -> Response:
        """What a node should hold; 204 when nothing is newer than ``after`` within the wait."""
        if not await context.watch.wait_beyond(after, wait_seconds):
            return Response(status_code=204)

        def text() -> str:
            return desired_state(context, node, fabric_named(context, fabric)).model_dump_json()

        return Response(await run_in_threadpool(text), media_type="application/json")

    @app.post("/v1/nodes/{node}/report", status_code=204, tags=["nodes"])
    @takes(OPERATE_ALL)
    def report(node: str, request: NodeReport) -> None:
        """What a node holds."""
        if request.node != node:
            raise InvalidRequest(
                "other_node", "the report is of another node than the path names", found=request.node, expected=node
            )
        take_report(context, request)

    @app.post("/v1/nodes/{node}/drain", tags=["nodes"])
    @takes(OPERATE_ALL)
    def drain(node: str, request: DrainNode, actor: Actor = "anonymous") -> DrainAnswer:
        """Let a node's replicas move to others, or let it be used again."""
        return draining.drain(context, node, request, actor)

    @app.post("/v1/nodes/{node}/remove", tags=["nodes"])
    @takes(OPERATE_ALL)
    def remove(node: str, actor: Actor = "anonymous") -> NodeRemoved:
        """Forget a node that holds nothing any more."""
        return draining.remove(context, node, actor)
