"""The last rewind of a job, and how it is taken back, which loses nothing while the generation before is there."""

from __future__ import annotations

from enum import StrEnum

from anew.core.errors import Refused
from anew.core.jobs.generation import Generation
from anew.core.jobs.job import Job
from anew.core.plan import Value


class Undoing(StrEnum):
    """How a rewind is taken back: its generation is dropped, or readers go back to the one before."""

    DROP = "dropped"
    CUT_BACK = "cut_back"


class Undo(Value):
    """What takes the last rewind back.

    Attributes:
        how: What is done.
        undone: The generation that the rewind has made.
        live: The generation that serves afterwards.
    """

    how: Undoing
    undone: int
    live: int


def last_rewind(job: Job) -> Undo:
    """What takes the last rewind of a job back (case A9).

    Raises:
        Refused: ``nothing_to_undo``, with the reason.
    """
    waiting = job.in_work
    live = None if job.live is None else job.generation(job.live)
    if live is None:
        raise _nothing(job, "no generation serves yet: a rewind takes the place of one that does")
    if waiting is not None:
        return Undo(how=Undoing.DROP, undone=waiting.number, live=live.number)
    before = None if live.replaces is None else job.find(live.replaces)
    if before is None:
        raise _nothing(job, f"generation {live.number} took the place of none")
    if before.over:
        raise _nothing(job, f"generation {before.number}, which served before, is {before.status.value}", before)
    return Undo(how=Undoing.CUT_BACK, undone=live.number, live=before.number)


def _nothing(job: Job, found: str, before: Generation | None = None) -> Refused:
    again = f"; its code is deployed or rewound with again: {before.code.entry}" if before is not None else ""
    return Refused(
        "nothing_to_undo",
        f"no rewind of {job.name} can be taken back",
        found=found,
        expected="a rewind that was not cut over to, or one whose generation before is still there",
        hint=f"anew job show {job.name}{again}",
    )
