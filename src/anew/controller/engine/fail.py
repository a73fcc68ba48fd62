"""A driver that gives up."""

from __future__ import annotations

from anew.api.models import EndRebuild
from anew.controller.engine.context import Context
from anew.controller.engine.ending import Ending, end_badly
from anew.controller.engine.records import find
from anew.core.rebuild import Rebuild, RebuildStatus, check_epoch


def fail(context: Context, rebuild_id: str, request: EndRebuild) -> Rebuild:
    """The driver gives up; what it committed stays.

    Raises:
        Refused: ``epoch_outdated``, and what the subject refuses.
    """
    rebuild = find(context, rebuild_id)
    epoch = rebuild.epoch if request.epoch is None else request.epoch
    check_epoch(rebuild, epoch)
    error = "the driver gave up" if request.error is None else request.error
    ended = end_badly(
        context, rebuild, Ending(RebuildStatus.FAILED, error, "driver", lambda newest: newest.epoch == epoch)
    )
    check_epoch(ended, epoch)
    return ended
