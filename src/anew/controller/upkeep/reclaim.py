"""The second step of every reclaim: what was noted is removed once its grace is over (rules R15, R22)."""

from __future__ import annotations

import structlog

from anew.catalog.change import DropReclaim, Reclaim
from anew.controller.engine.apart import Apart
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.controller.engine.pause import cluster_paused
from anew.controller.upkeep.pause import held_back

_OF_THE_LOG = ("topic", "truncate")
_LOG = structlog.get_logger("anew.controller")


def reclaim_due(context: Context, apart: Apart) -> None:
    """Second step: do what is noted and due; what fails is tried again in the next round, what is paused later."""
    due = context.catalog.reclaims(context.clock())
    if not due or cluster_paused(context) is not None:
        return
    stores = context.catalog.stores()
    for reclaim in due:
        where = "reclaims", reclaim.fabric, reclaim.kind in _OF_THE_LOG
        if where in apart.away or held_back(stores, reclaim):
            continue
        is_done = False
        with apart.step(f"reclaim {reclaim.id}", needs=(where,)):
            _remove(context, reclaim)
            is_done = True
        if is_done:
            operation = context.operation("reclaimed", reclaim.id, "controller", kind=reclaim.kind, why=reclaim.reason)
            commit(context, operation, DropReclaim(reclaim.id))
            _LOG.info("reclaimed", id=reclaim.id, kind=reclaim.kind, reason=reclaim.reason)


def _remove(context: Context, reclaim: Reclaim) -> None:
    """Do what the subject does whose note it is."""
    context.subjects.reclaims()[reclaim.kind](context, reclaim)
