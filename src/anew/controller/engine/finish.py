"""The good end of a rebuild, where its driver is who ends it."""

from __future__ import annotations

from anew.api.models import FinishRebuild
from anew.controller.engine.context import Context
from anew.controller.engine.records import change_rebuild, check_driver, find
from anew.controller.engine.subjects import Step
from anew.core.rebuild import Rebuild


def finish(context: Context, rebuild_id: str, request: FinishRebuild) -> Rebuild:
    """End a rebuild whose driver is done; the same again is the same.

    Raises:
        Refused: ``epoch_outdated``, and what the subject refuses: it is not done.
    """
    rebuild = find(context, rebuild_id)
    subject = context.subjects.of(rebuild)

    def step(newest: Rebuild) -> Step[Rebuild] | None:
        if newest.ended:
            return None
        check_driver(newest, request.epoch)
        finished: Step[Rebuild] = subject.finished(
            context, newest.model_copy(update={"records_per_s": request.records_per_s})
        )
        return finished

    operation = context.operation(f"{rebuild.kind} done", rebuild.subject.name, "driver", rebuild=rebuild.id)
    return change_rebuild(context, rebuild, operation, step)
