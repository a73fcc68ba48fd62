"""How often in a row a generation was found at the ends of its inputs; counted by each controller for itself."""

from __future__ import annotations

from collections.abc import Mapping

from anew.controller.engine.context import Context
from anew.controller.jobs.planning import held_of
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.inputs import Offsets
from anew.core.jobs.job import LOOKS_TO_CATCH_UP, Job, at_ends

LAG_LIMIT_RECORDS = 10_000
"""So many records may be left of what arrives all the time."""


def looks_of(context: Context, job: Job, number: int) -> int:
    """How many looks in a row found a generation at the ends, up to `LOOKS_TO_CATCH_UP`."""
    return context.looks.get((job.uid, number), 0)


def look(context: Context, job: Job) -> None:
    """Look once at each running generation that is not live, or that could be cut back to.

    Raises:
        AnewError: A log does not answer: nothing is counted.
    """
    for generation in job.generations:
        at = job.uid, generation.number
        if generation.status is not GenerationStatus.RUNNING or generation.number == job.live:
            context.looks.pop(at, None)
            continue
        # The last looks count until this one is over: somebody may cut over meanwhile. Unanswered is not there.
        found = False
        try:
            live = {} if job.live is None else position_of(context, job, job.generation(job.live))
            ends = ends_of(context, generation)
            found = at_ends(position_of(context, job, generation), live, ends, LAG_LIMIT_RECORDS)
        finally:
            context.looks[at] = min(context.looks.get(at, 0) + 1, LOOKS_TO_CATCH_UP) if found else 0


def position_of(context: Context, job: Job, generation: Generation) -> Mapping[str, Offsets]:
    """Input → partition → next offset behind the last batch, its start before the first."""
    last = context.catalog.batches(job.uid, generation.number, 1)
    return last[-1].end if last else generation.start


def ends_of(context: Context, generation: Generation) -> dict[str, Offsets]:
    """Input → partition → the next offset to be written.

    Raises:
        AnewError: A log does not answer, or lost the topic.
    """
    return {of.name: {p: held.end for p, held in held_of(context, of).items()} for of in generation.inputs}
