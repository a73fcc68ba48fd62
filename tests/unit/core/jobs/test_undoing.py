"""What takes the last rewind of a job back, and when there is nothing to take back."""

from __future__ import annotations

import pytest

from anew.core.errors import Refused
from anew.core.jobs.generation import GenerationStatus
from anew.core.jobs.job import Job
from anew.core.jobs.undoing import Undo, Undoing, last_rewind
from anew.testing.job_builders import a_generation, a_job


def _job(live: int | None, **statuses: GenerationStatus) -> Job:
    """Two generations, the second a rewind of the first."""
    values = {"first": GenerationStatus.RUNNING, "second": GenerationStatus.RUNNING, **statuses}
    return a_job(a_generation(1, status=values["first"]), a_generation(2, 1, status=values["second"]), live=live)


@pytest.mark.case("streams:A9")
def test_a_rewind_that_does_not_serve_is_dropped_and_one_that_does_is_cut_back_from() -> None:
    """Also one that failed; the generation before serves afterwards."""
    assert last_rewind(_job(1)) == Undo(how=Undoing.DROP, undone=2, live=1)
    assert last_rewind(_job(1, second=GenerationStatus.FAILED)) == Undo(how=Undoing.DROP, undone=2, live=1)
    assert last_rewind(_job(2)) == Undo(how=Undoing.CUT_BACK, undone=2, live=1)


@pytest.mark.case("streams:A9")
@pytest.mark.parametrize(
    ("job", "why"),
    [
        (_job(None), "no generation serves yet"),
        (_job(1, second=GenerationStatus.RETIRED), "generation 1 took the place of none"),
        (_job(2, first=GenerationStatus.RETIRED), "is retired"),
        (_job(2, first=GenerationStatus.RECLAIMED), "is reclaimed"),
    ],
)
def test_what_cannot_be_taken_back_says_why(job: Job, why: str) -> None:
    """The first generation, and one whose generation before has gone, as after a deployment."""
    with pytest.raises(Refused) as caught:
        last_rewind(job)
    assert caught.value.code == "nothing_to_undo"
    assert why in str(caught.value.found)
