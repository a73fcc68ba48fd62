"""What must hold of generations that take the place of others, and write into their outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from anew.core.jobs.generation import Generation
from anew.core.jobs.job import Job
from anew.core.jobs.plan import SIMPLE
from anew.core.jobs.rebuild import JobRebuild
from anew.core.stores.store import Version
from tests.simulation.jobs.oracle import Code, Record, left_over, passed_over

if TYPE_CHECKING:
    from tests.simulation.jobs.checks import JobChecks

INPUT = "events"


def code_of(generation: Generation) -> Code:
    """What a generation makes of the input, and from where."""
    return Code(generation.code.function, generation.code.params["tag"], generation.start[INPUT])


def given_up(serving: Version | None, generations: Iterable[Generation]) -> set[str]:
    """The feeds of generations in the places of others that went with the version that they wrote into.

    Another one's version took its place; a push from then on has nothing of them.
    """
    feeds = frozenset() if serving is None else serving.feeds
    return {g.writes_to for g in generations if g.in_place and feeds and g.writes_to not in feeds}


def check_place(checks: JobChecks, job: Job, generation: Generation) -> None:
    """A generation that has taken another one's place begins where that one came to, or before."""
    replaced = job.find(generation.replaces or 0)
    if replaced is None or job.live != generation.number or not replaced.over:
        return
    if passed_over(generation.start[INPUT], code_of(replaced), checks.batches(job.uid, replaced.number)):
        checks.breach("nothing is passed over", f"{job.name}@{generation.number} begins too late (D1)")


def check_taken_back(checks: JobChecks, version: Version, winners: Iterable[Record]) -> None:
    """What a rewind in place has read again is served as it has written it, and not as it was written before."""
    tables, won = checks.machines.database.tables, list(winners)
    for (uid, number), generation in checks.generations.items():
        rebuild = tables.rebuilds.get(generation.rebuild)
        is_simple = isinstance(rebuild, JobRebuild) and rebuild.plan.mode == SIMPLE
        if not is_simple or generation.writes_to not in version.feeds:
            continue
        after = code_of(generation), checks.batches(uid, number)
        for (other, earlier), before in checks.generations.items():
            if other != uid or earlier >= number or before.writes_to not in version.feeds:
                continue
            left = left_over(won, tables.jobs[uid].name, (earlier, checks.batches(uid, earlier)), after)
            if left:
                checks.breach("what is written again takes its place", f"generation {number}: {left[:3]} (R26)")
