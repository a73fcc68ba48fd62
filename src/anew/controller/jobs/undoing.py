"""Taking the last rewind of a job back, in one commit."""

from __future__ import annotations

from anew.api.jobs.requests import DropGeneration, UndoRewind
from anew.api.jobs.views import UndoAnswer
from anew.catalog.change import Put
from anew.controller.engine.context import Context
from anew.controller.jobs.changing import dropped
from anew.controller.jobs.cutting import serving
from anew.controller.jobs.records import change_job, job_named
from anew.core.errors import Refused
from anew.core.jobs.job import Job
from anew.core.jobs.undoing import Undoing, last_rewind


def undo(context: Context, name: str, request: UndoRewind, actor: str) -> UndoAnswer:
    """Drop the generation of the last rewind, or go back to the one before where it was cut over to (case A9).

    Raises:
        NotFound: ``unknown_job``.
        Refused: ``nothing_to_undo``; ``plan_outdated``: something else was done meanwhile; what a drop or a cut back
            refuses, ``not_caught_up`` for one.
    """
    job = job_named(context, name)
    found = last_rewind(job)
    newest = max(each.number for each in job.generations if not each.over)
    if request.seen not in (None, (job.live, newest)):
        raise _another(job, f"live {job.live}, newest {newest}", f"live, newest {request.seen}")
    detail = {"generation": found.undone, "how": found.how.value, "live": found.live, "forced": request.force}
    operation = context.operation("undo rewind", name, actor, **detail)

    def change(present: Job) -> tuple[Job, tuple[Put, ...]]:
        now = last_rewind(present)
        if now != found:
            raise _another(
                job, f"generation {now.undone} would be {now.how.value}", f"{found.undone}, {found.how.value}"
            )
        if found.how is Undoing.DROP:
            return dropped(context, present, DropGeneration(generation=found.undone))
        return serving(context, present, found.live, force=request.force)

    change_job(context, job.uid, operation, change)
    return UndoAnswer(job=name, **found.model_dump())


def _another(job: Job, found: str, expected: str) -> Refused:
    return Refused(
        "plan_outdated",
        f"what takes the last rewind of {job.name} back is another thing by now",
        found=found,
        expected=expected,
        hint=f"anew job show {job.name}",
    )
