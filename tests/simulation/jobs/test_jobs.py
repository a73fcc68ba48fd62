"""Jobs in the simulation: seeds in which everything holds, and planted bugs that they find."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.simulation.history import History, Step
from tests.simulation.jobs.bugs import JOB_BUGS, JobBug
from tests.simulation.jobs.history import job_history
from tests.simulation.jobs.oracle import Record
from tests.simulation.jobs.search import report_jobs, search_jobs
from tests.simulation.jobs.story import run_job

SEEDS = 120
MOST_SEEDS = 50

# What a killed process had open is not closed but forgotten, which Arrow's writers complain of.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.timeout(1_200)
@pytest.mark.case(
    *("streams:B2", "streams:B7", "streams:C7", "streams:D2", "streams:E1", "streams:E7", "streams:N1", "streams:N8"),
    *("rules:R9", "rules:R12", "rules:R20"),
)
def test_what_must_hold_of_jobs_holds_in_histories() -> None:
    """In histories of batches, kills, stalls, rewinds, cut-overs and repushes no invariant is broken."""
    found = search_jobs(range(SEEDS))
    assert found.seed is None, report_jobs(found)[-20_000:]
    did = ("batches that ran again", "attempts that do not count", "cut over to what was reprocessed")
    for what in (*did, "partitions added"):
        assert found.counts[what] > 5, what
    # Most functions are not rewound in place, and few jobs come to rest.
    for what in ("simple in place", "deploy in place"):
        assert found.counts[what] > 1, what


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", JOB_BUGS, ids=lambda bug: bug.plant.__name__.strip("_"))
def test_a_planted_bug_of_jobs_is_found(bug: JobBug) -> None:
    """Each bug that is planted is found within 50 seeds, by an invariant that is about it."""
    with bug.plant():
        found = search_jobs(range(MOST_SEEDS), bug.often, pushed=bug.pushed)
    assert found.outcome is not None, f"{MOST_SEEDS} seeds, and nobody noticed: {bug.name}"
    names = {name for name, _ in found.outcome.breaches}
    assert not bug.found_by.isdisjoint(names), (found.seed, found.outcome.breaches)


def test_every_invariant_of_jobs_has_a_planted_bug() -> None:
    """What no bug was ever found by may be an invariant that holds of anything."""
    folder = Path(__file__).parent
    sources = "".join((folder / name).read_text(encoding="utf-8") for name in ("checks.py", "inplace.py", "story.py"))
    checked = set(re.findall(r'\.breach\(\s*"([^"]+)"', sources))
    assert len(checked) > 15
    assert checked - _OF_ALL_HISTORIES == frozenset().union(*(bug.found_by for bug in JOB_BUGS)) - _OF_ALL_HISTORIES


_OF_ALL_HISTORIES = frozenset(
    {
        "everything arrives",
        "files are there",
        "frozen",
        "history is kept",
        "low water",
        "nothing is left behind",
        "one current version",
        "reads do not fail",
        "reads see what was",
        "readers see it",
        "replicas",
        "truncation",
        "a read is of one version",
        "a swap gives nothing up",
    }
)
"""Invariants that `tests.simulation.bugs` has bugs for."""


def test_a_history_of_a_job_runs_the_same_way_again() -> None:
    """The same history gives the same outcome, also when it was written down and read again."""
    history = job_history(3)
    first, second = run_job(history), run_job(History.from_json(history.to_json()))
    assert first == second


def test_a_batch_runs_again_unless_it_was_recorded() -> None:
    """Who dies behind an append is followed by one that appends again; behind the record, by one that does not."""
    for point, again in (("3: appended", 1), ("5: commit", 0)):
        steps = (Step("die_in_batch", (point, 0, 0), 8_000),)
        outcome = run_job(History(seed=1, settings=dict(job_history(0, pushed=False).settings), steps=steps))
        assert not outcome.breaches
        assert outcome.counts["batches that ran again"] == again


def test_the_oracle_imports_nothing_of_the_product() -> None:
    """What says how things must be shares nothing with what makes them so."""
    for module in ("oracle.py", "functions.py"):
        source = (Path(__file__).parent / module).read_text(encoding="utf-8")
        assert not re.search(r"^\s*(from|import) anew\b", source, re.MULTILINE)
    assert Record.__module__ == "tests.simulation.jobs.oracle"
