"""The end of a rebuild from outside."""

from __future__ import annotations

from anew.controller.engine.context import Context
from anew.controller.engine.ending import Ending, end_badly
from anew.controller.engine.records import find
from anew.core.errors import Refused
from anew.core.rebuild import Rebuild, RebuildStatus


def kill(context: Context, rebuild_id: str, actor: str) -> Rebuild:
    """End a rebuild; its driver stops at its next sign of life. Also gives up what an ended one made and nobody uses.

    Raises:
        Refused: ``rebuild_ended``, and what the subject refuses.
    """
    rebuild = find(context, rebuild_id)
    if rebuild.ended and context.subjects.of(rebuild).give_up(context, rebuild, actor):
        return find(context, rebuild_id)
    if rebuild.ended:
        raise Refused("rebuild_ended", f"the rebuild {rebuild_id} has ended", found=rebuild.status.value)
    return end_badly(context, rebuild, Ending(RebuildStatus.KILLED, f"killed by {actor}", actor))
