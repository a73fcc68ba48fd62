"""The bad end of a rebuild: its record, what it changes of its subject, and what is told of it, in one commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anew.catalog.change import PutFlag
from anew.controller.engine.context import Context
from anew.controller.engine.drivers import first_line, note_failure
from anew.controller.engine.records import change_rebuild
from anew.controller.engine.subjects import R, Step
from anew.core.rebuild import Rebuild, RebuildStatus, end


@dataclass(frozen=True, slots=True)
class Ending:
    """How a rebuild is to end, and whether that still holds once its newest record is known."""

    status: RebuildStatus
    error: str
    actor: str
    holds: Callable[[Rebuild], bool] = lambda _rebuild: True


def end_badly(context: Context, rebuild: R, ending: Ending) -> R:
    """End a rebuild that is not done; ending it again changes nothing.

    Raises:
        Refused: What the subject refuses: it cannot be ended any more.
    """

    def step(newest: R) -> Step[R] | None:
        if newest.ended or not ending.holds(newest):
            return None
        ended = end(newest, ending.status, ending.error, context.clock())
        puts = context.subjects.of(newest).ended(context, newest, ended)
        return ended, (*puts, *_told(context, ended))

    of = context.subjects.of(rebuild).detail(rebuild)
    detail = {"rebuild": rebuild.id, **of, "error": first_line(ending.error)}
    operation = context.operation(f"rebuild {ending.status.value}", rebuild.subject.name, ending.actor, **detail)
    return change_rebuild(context, rebuild, operation, step)


def _told(context: Context, ended: Rebuild) -> tuple[PutFlag, ...]:
    if ended.status is not RebuildStatus.FAILED:
        return ()
    return (note_failure(ended, ended.error or "", context.clock()),)
