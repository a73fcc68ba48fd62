"""Rebuilds whose drivers are lost: they fail when their leases are over."""

from __future__ import annotations

from collections.abc import Iterable

from anew.controller.engine.apart import Apart
from anew.controller.engine.context import Context
from anew.controller.engine.ending import Ending, end_badly
from anew.core.rebuild import Rebuild, RebuildStatus


def expire_lost(context: Context, running: Iterable[Rebuild], apart: Apart) -> None:
    """Fail each rebuild whose lease is over, once this controller has listened for as long as a lease holds."""
    if not context.attention.listened_for(context.limits.lease_seconds, context.clock()):
        return
    for rebuild in running:
        if _is_lost(context, rebuild):
            with apart.step(f"rebuild {rebuild.id} of {rebuild.subject.name}"):
                if not context.subjects.of(rebuild).lost(context, rebuild):
                    expire(context, rebuild)


def expire(context: Context, rebuild: Rebuild) -> Rebuild:
    """Fail a rebuild whose driver gave no sign of life, unless it gave one, or needs none any more, in this moment."""
    ending = Ending(RebuildStatus.FAILED, rebuild.why_expired, "controller", lambda newest: _is_lost(context, newest))
    return end_badly(context, rebuild, ending)


def _is_lost(context: Context, rebuild: Rebuild) -> bool:
    return rebuild.driven and context.clock() > rebuild.lease_until_ms
