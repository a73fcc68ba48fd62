"""The controller's routes for upkeep."""

from __future__ import annotations

from fastapi import FastAPI

from anew.api.models import Collect, Pause
from anew.api.pages import DEFAULT_ITEMS, Page, page_of, parse_timed_key, timed_key
from anew.api.rights import OPERATE_STORE, READ_ALL, takes
from anew.api.upkeep import Collected, Paused, ReclaimView, Unpaused
from anew.catalog.interface import TimedKey
from anew.controller.engine.context import Context
from anew.controller.engine.parameters import Actor, After, Limit
from anew.controller.upkeep import gc as collecting
from anew.controller.upkeep import pause as pausing


def add_upkeep(app: FastAPI, context: Context) -> None:
    """Pausing, collecting, and what waits to go."""

    @app.post("/v1/pause", tags=["cluster"])
    @takes(OPERATE_STORE)
    def pause(request: Pause, actor: Actor = "anonymous") -> Paused:
        """No scheduled rebuild, reclaim or gc starts from now on."""
        return pausing.pause(context, request.store, actor)

    @app.post("/v1/unpause", tags=["cluster"])
    @takes(OPERATE_STORE)
    def unpause(request: Pause, actor: Actor = "anonymous") -> Unpaused:
        """Scheduled rebuilds, reclaim and gc go on."""
        return pausing.unpause(context, request.store, actor)

    @app.post("/v1/gc", tags=["cluster"])
    @takes(OPERATE_STORE)
    def gc(request: Collect, actor: Actor = "anonymous") -> Collected:
        """What nobody needs goes; a dry run says what and why."""
        return collecting.gc(context, request.store, actor, dry_run=request.dry_run)

    @app.get("/v1/reclaims", tags=["cluster"])
    @takes(READ_ALL)
    def reclaims(limit: Limit = DEFAULT_ITEMS, after: After = None) -> Page[ReclaimView]:
        """What waits to be reclaimed, and why, what is due first."""
        behind = None if after is None else TimedKey(*parse_timed_key(after))
        found = [
            ReclaimView(id=r.id, kind=r.kind, fabric=r.fabric, not_before_ms=r.not_before_ms, reason=r.reason)
            for r in context.catalog.reclaims_page(behind, limit + 1)
        ]
        return page_of(found, limit, lambda reclaim: timed_key(reclaim.not_before_ms, reclaim.id))
