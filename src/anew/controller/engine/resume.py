"""Taking a rebuild over from a driver that is gone (case H11)."""

from __future__ import annotations

from anew.api.models import ResumeRebuild
from anew.controller.engine.context import Context
from anew.controller.engine.drivers import heard_at_ms
from anew.controller.engine.records import change_rebuild, find
from anew.controller.engine.subjects import Step
from anew.core.errors import Refused
from anew.core.rebuild import DRIVEN_STAGES, Rebuild, Stage, rebuild_ended


def resume(context: Context, rebuild_id: str, request: ResumeRebuild, actor: str) -> Rebuild:
    """Give a rebuild a new driver: its epoch grows, so that the one before is turned away wherever it knocks (R22).

    A rebuild that needs no driver any more is returned as it is.

    Raises:
        NotFound: ``unknown_rebuild``.
        Refused: ``rebuild_ended``, ``driver_alive``.
    """
    rebuild = find(context, rebuild_id)
    subject = context.subjects.of(rebuild)

    def step(newest: Rebuild) -> Step[Rebuild] | None:
        _check_free(context, newest)
        if newest.stage not in DRIVEN_STAGES:
            return None
        # The new driver's signs of life begin with the first stage.
        taken = {
            "epoch": newest.epoch + 1,
            "driver": request.driver,
            "lease_until_ms": context.lease_until_ms(),
            "stage": Stage.BEGIN,
            "stage_since_ms": context.clock(),
        }
        taken_over: Step[Rebuild] = subject.taken_over(context, newest, newest.model_copy(update=taken))
        return taken_over

    operation = context.operation(
        "resume rebuild", rebuild.subject.name, actor, rebuild=rebuild.id, **subject.detail(rebuild)
    )
    return change_rebuild(context, rebuild, operation, step)


def _check_free(context: Context, rebuild: Rebuild) -> None:
    """Raise unless the rebuild runs and its driver, where it needs one, has been silent for a while."""
    if rebuild.ended:
        raise rebuild_ended(rebuild, hint=context.subjects.of(rebuild).again(rebuild))
    silent_ms = context.clock() - heard_at_ms(context, rebuild)
    least_ms = int(context.limits.takeover_seconds * 1000)
    if rebuild.driven and silent_ms < least_ms:
        raise Refused(
            "driver_alive",
            f"the rebuild {rebuild.id} has a driver",
            found=f"{rebuild.driver} gave a sign of life {silent_ms} ms ago",
            expected=f"none for {least_ms} ms",
            hint=f"wait a moment, or end it: anew rebuild kill {rebuild.id}",
        )
