"""The last rewind is taken back: before it serves by a drop, afterwards by a cut back."""

from __future__ import annotations

import pytest

from anew.api.jobs.requests import CutOver, DropGeneration, OfGeneration, UndoRewind
from anew.core.errors import NotFound, Refused
from tests.component.controller.harness import refused
from tests.component.controller.jobs.jobs_harness import JOB, Jobs

_UNDO, _BY_FORCE = UndoRewind(), UndoRewind(force=True)


@pytest.fixture
def caught_up(jobs: Jobs) -> Jobs:
    """Generation 1 serves, 2 has caught up with it."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 5, 1: 0})
    jobs.running(jobs.plan(code=None))
    jobs.record(jobs.take(2), {0: 5, 1: 0}, number=2)
    jobs.cluster.settle(4)
    return jobs


@pytest.mark.case("streams:A9")
def test_a_rewind_in_work_is_dropped(caught_up: Jobs) -> None:
    """It will not run again, and another one can begin; the live one serves on. The history says what was undone."""
    client = caught_up.cluster.client
    answer = client.undo_rewind(JOB, _UNDO)
    assert (answer.how, answer.undone, answer.live) == ("dropped", 2, 1)
    assert (caught_up.view(2).status, caught_up.view(1).status, caught_up.job().live) == ("retired", "running", 1)
    line = caught_up.cluster.context.catalog.history(JOB, 1)[0]
    assert (line.what, line.actor, line.detail["generation"], line.detail["how"]) == (
        "undo rewind",
        "tester",
        2,
        "dropped",
    )
    assert refused(Refused, lambda: client.undo_rewind(JOB, _UNDO)).code == "nothing_to_undo"
    assert caught_up.plan(code=None).generation == 3


@pytest.mark.case("streams:A8")
def test_asked_twice_it_does_not_do_the_next_thing(caught_up: Jobs) -> None:
    """Two people, or one who got no answer: what was seen when it was decided is no more when it was done."""
    client = caught_up.cluster.client
    client.cut_over(JOB, CutOver())
    caught_up.cluster.settle(4)
    seen = UndoRewind(seen=(2, 2))
    assert client.undo_rewind(JOB, seen).how == "cut_back"
    assert refused(Refused, lambda: client.undo_rewind(JOB, seen)).code == "plan_outdated"
    assert (caught_up.view(2).status, caught_up.job().live) == ("running", 1)
    assert client.undo_rewind(JOB, UndoRewind(seen=(1, 2))).how == "dropped"


@pytest.mark.case("streams:A9")
def test_a_rewind_that_serves_is_cut_back_from(caught_up: Jobs) -> None:
    """Readers find the generation before; the undone one goes on beside, and is dropped by another undo."""
    client = caught_up.cluster.client
    client.cut_over(JOB, CutOver())
    caught_up.cluster.settle(4)
    answer = client.undo_rewind(JOB, _UNDO)
    assert (answer.how, answer.undone, answer.live) == ("cut_back", 2, 1)
    assert (caught_up.job().live, caught_up.view(2).status) == (1, "running")
    assert client.undo_rewind(JOB, _UNDO).how == "dropped"


@pytest.mark.case("streams:A9")
def test_an_undo_goes_back_under_the_conditions_of_a_cut_back(caught_up: Jobs) -> None:
    """To a generation that was stopped by force alone; to one that was dropped not at all."""
    client = caught_up.cluster.client
    client.cut_over(JOB, CutOver())
    client.stop_job(JOB, OfGeneration(generation=1))
    caught_up.cluster.settle(4)
    assert refused(Refused, lambda: client.undo_rewind(JOB, _UNDO)).code == "not_caught_up"
    assert client.undo_rewind(JOB, _BY_FORCE).live == 1
    client.cut_over(JOB, CutOver(force=True))
    client.drop_generation(JOB, DropGeneration(generation=1, force=True))
    error = refused(Refused, lambda: client.undo_rewind(JOB, _BY_FORCE))
    assert error.code == "nothing_to_undo"
    assert "generation 1, which served before, is retired" in str(error.found)


@pytest.mark.case("streams:A9")
def test_nothing_is_undone_where_nothing_was_rewound(jobs: Jobs) -> None:
    """A job that is not there, one without a generation, the first one."""
    client = jobs.cluster.client
    assert refused(NotFound, lambda: client.undo_rewind("other", _UNDO)).code == "unknown_job"
    assert refused(Refused, lambda: client.undo_rewind(JOB, _UNDO)).code == "nothing_to_undo"
    jobs.running()
    assert refused(Refused, lambda: client.undo_rewind(JOB, _BY_FORCE)).code == "nothing_to_undo"
