"""Running the histories of jobs seed by seed, until one of them is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.history import History
from tests.simulation.jobs.history import job_history, shortened
from tests.simulation.jobs.story import run_job
from tests.simulation.story import Outcome


@dataclass(slots=True)
class JobsFound:
    """What a search found.

    Attributes:
        seed: The first one whose history is broken; None: none is.
        history, outcome: Its history, and what that came to.
        counts: How often what was done, over all; ``histories`` among them.
    """

    seed: int | None = None
    history: History | None = None
    outcome: Outcome | None = None
    counts: Counter[str] = field(default_factory=Counter)


def search_jobs(seeds: Iterable[int], often: str | None = None, *, pushed: bool | None = None) -> JobsFound:
    """Run the histories of seeds, in their order, up to the first that is broken; see `job_history`."""
    found = JobsFound()
    for seed in seeds:
        history = job_history(seed, often, pushed=pushed)
        outcome = run_job(history)
        found.counts.update({**outcome.counts, "histories": 1})
        if outcome.breaches:
            found.seed, found.history, found.outcome = seed, history, outcome
            break
    return found


def report_jobs(found: JobsFound) -> str:
    """What was found, for people: as few steps as it takes, how to run them again, what happened, what did not hold."""
    if found.history is None or found.outcome is None:
        return f"{found.counts['histories']} histories of jobs, nothing broken; {dict(found.counts.most_common())}"
    names = {name for name, _ in found.outcome.breaches}
    short = shortened(found.history, lambda less: not names.isdisjoint(name for name, _ in run_job(less).breaches))
    outcome = run_job(short)
    breaches = [f"BROKEN {name}: {seen}" for name, seen in outcome.breaches]
    again = f"python -m tests.simulation --jobs --history '{short.to_json()}'"
    return "\n".join([*outcome.log, *breaches, f"seed {found.seed}; run it again:", again])
