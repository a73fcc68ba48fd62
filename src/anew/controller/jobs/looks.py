"""How often in a row a generation was found caught up; counted by each controller for itself."""

from __future__ import annotations

from anew.controller.engine.context import Context
from anew.controller.jobs.planning import held_of
from anew.controller.jobs.records import position_of
from anew.core.jobs.catchup import looked_at
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.inputs import Offsets
from anew.core.jobs.job import Job

LAG_LIMIT_RECORDS = 10_000
"""So many records may be left of what arrives all the time."""


def looks_of(context: Context, job: Job, number: int) -> int:
    """How many looks in a row found a generation caught up, up to `LOOKS_TO_CATCH_UP`."""
    found = context.catching_up.get((job.uid, number))
    return 0 if found is None else found.looks


def look(context: Context, job: Job) -> None:
    """Look once at each running generation that is not live, or that could be cut back to.

    Raises:
        AnewError: A log does not answer: nothing is counted.
    """
    for generation in job.generations:
        at = job.uid, generation.number
        if generation.status is not GenerationStatus.RUNNING or generation.number == job.live:
            context.catching_up.pop(at, None)
            continue
        # The last looks count until this one is over: somebody may cut over meanwhile. Unanswered is not there.
        found = None
        try:
            live = {} if job.live is None else position_of(context, job, job.generation(job.live))
            ends = ends_of(context, generation)
            position = position_of(context, job, generation)
            found = looked_at(context.catching_up.get(at), job.live, live, position, ends, LAG_LIMIT_RECORDS)
        finally:
            if found is None:
                context.catching_up.pop(at, None)
            else:
                context.catching_up[at] = found


def ends_of(context: Context, generation: Generation) -> dict[str, Offsets]:
    """Input → partition → the next offset to be written.

    Raises:
        AnewError: A log does not answer, or lost the topic.
    """
    return {of.name: {p: held.end for p, held in held_of(context, of).items()} for of in generation.inputs}
