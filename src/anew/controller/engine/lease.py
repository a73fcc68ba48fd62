"""Signs of life: a driver renews its lease, tells how far it is, and hears whether it is to stop."""

from __future__ import annotations

from anew.api.models import Heartbeat, HeartbeatAnswer
from anew.controller.engine.commit import again_on_conflict
from anew.controller.engine.context import Context
from anew.controller.engine.records import check_driven, find
from anew.core.rebuild import advance, check_epoch


def heartbeat(context: Context, rebuild_id: str, request: Heartbeat) -> HeartbeatAnswer:
    """Renew the driver's lease; an ended rebuild is answered with "stop". It leaves no line of history.

    Raises:
        InvalidRequest: ``bad_stage``: the stage is not one that a driver works on.
        Refused: ``epoch_outdated``: another driver took over.
    """

    def attempt() -> HeartbeatAnswer:
        rebuild = find(context, rebuild_id)
        subject = context.subjects.of(rebuild)
        if rebuild.ended:
            return HeartbeatAnswer(kill_asked=True, lease_until_ms=rebuild.lease_until_ms)
        check_epoch(rebuild, request.epoch)
        if subject.turns_away(rebuild):
            return HeartbeatAnswer(kill_asked=True, lease_until_ms=rebuild.lease_until_ms)
        check_driven(request.stage)
        until_ms = context.lease_until_ms()
        renewed = rebuild.model_copy(update={"lease_until_ms": until_ms, "troubles": request.troubles})
        if rebuild.driven:
            advanced = advance(renewed, request.stage, context.clock())
            renewed = subject.progressed(advanced, request.progress)
        context.catalog.put_rebuild(renewed, rebuild.revision)
        return HeartbeatAnswer(kill_asked=False, stop_asked=subject.stops(rebuild), lease_until_ms=until_ms)

    # Whoever commits part of the rebuild's work changes its record beside the signs of life.
    return again_on_conflict(attempt)
