"""Rewinds as intents: begun once, by one person, each with settings of its own, and none in the live one's way."""

from __future__ import annotations

import pytest

from anew.api.jobs.requests import CreateJob, CutOver, DropGeneration, RunGeneration
from anew.api.models import BeginRebuild
from anew.api.rebuilds import JobStart
from anew.core.errors import NotFound, Refused
from anew.core.jobs.plan import JobPlan
from tests.component.controller.harness import refused
from tests.component.controller.jobs.jobs_harness import JOB, Jobs


def _begin(jobs: Jobs, plan: JobPlan, request_id: str, actor: str = "one") -> int:
    client = jobs.cluster.acting(actor)
    return client.begin_rebuild(BeginRebuild(plan=plan, request_id=request_id, driver=""), JobStart).rebuild.generation


@pytest.mark.case("streams:A7", "streams:B2")
def test_a_rewind_is_begun_once_and_later_drivers_go_on(jobs: Jobs) -> None:
    """The request that is sent again finds what it began; a driver that follows begins behind the last batch."""
    jobs.write(5)
    jobs.running()
    plan = jobs.plan(code=None)
    assert [_begin(jobs, plan, "rewind") for _ in range(2)] == [2, 2]
    jobs.cluster.start_over()
    assert _begin(jobs, plan, "rewind") == 2
    jobs.cluster.round()
    client = jobs.cluster.client
    client.run_job(JOB, RunGeneration(generation=2))
    first = jobs.take(2)
    assert client.run_order(jobs.view(2).rebuild, first).batches == ()
    record = jobs.record(first, {0: 3, 1: 0}, number=2)
    jobs.cluster.pass_seconds(400)
    second = jobs.take(2, driver="two")
    assert client.run_order(jobs.view(2).rebuild, second).batches == (record,)
    assert [each.number for each in client.job(JOB).generations] == [1, 2]


@pytest.mark.case("streams:A8")
def test_of_two_people_who_rewind_one_wins(jobs: Jobs) -> None:
    """The other one's plan is of a job that has moved on; the history says who began what, and when."""
    jobs.running()
    plans = [jobs.plan(code=None), jobs.plan(code=None, start="newest")]
    assert _begin(jobs, plans[0], "of one") == 2
    assert refused(Refused, lambda: _begin(jobs, plans[1], "of two", "two")).code == "plan_outdated"
    lines = [line for line in jobs.cluster.context.catalog.history(JOB, 100) if line.what == "begin rewind"]
    assert [(line.detail["generation"], line.actor) for line in lines] == [(2, "one"), (1, "tester")]
    assert lines[0].at_ms == jobs.cluster.clock()


@pytest.mark.case("streams:E8")
def test_a_rewind_has_resources_of_its_own(jobs: Jobs) -> None:
    """Its master, its settings and the size of its batches are its own; the live one keeps what it has."""
    jobs.running()
    given = {"master": "spark://elsewhere:7077", "conf": {"spark.executor.memory": "4g"}, "max_records": 500_000}
    jobs.running(jobs.plan(code=None, **given))
    first, second = jobs.job().generations
    assert (second.master, second.conf, second.max_records) == tuple(given.values())
    assert (first.master, first.conf, first.max_records) == (None, {}, 100_000)


@pytest.mark.case("streams:E10")
def test_a_rewind_that_fails_leaves_the_live_one_alone(jobs: Jobs) -> None:
    """That one goes on; the failed one goes on from its last batch once it is told to, or is dropped."""
    jobs.write(5)
    jobs.running()
    live = jobs.take()
    jobs.running(jobs.plan(code=None))
    epoch = jobs.take(2)
    record = jobs.record(epoch, {0: 2, 1: 0}, number=2)
    jobs.end(epoch, "no such column", 2, for_good=True)
    jobs.record(live, {0: 5, 1: 0})
    client = jobs.cluster.client
    assert (jobs.job().live, jobs.view(1).status, jobs.view(1).lag_records) == (1, "running", 0)
    assert (jobs.view(2).status, jobs.view(2).error) == ("failed", "no such column")
    client.run_job(JOB, RunGeneration(generation=2))
    jobs.cluster.round()
    assert client.run_order(jobs.view(2).rebuild, jobs.take(2)).batches == (record,)
    client.drop_generation(JOB, DropGeneration(generation=2))
    assert (jobs.view(2).status, jobs.view(1).status, jobs.job().live) == ("retired", "running", 1)


@pytest.mark.case("streams:F3")
def test_an_input_that_is_gone_is_named(jobs: Jobs) -> None:
    """A job that reads a topic that is not there is not made: the error names the nearest one that is."""
    request = CreateJob(name="other", output="topic:classes", inputs={"events": "event"})
    error = refused(NotFound, lambda: jobs.cluster.client.create_job(request))
    assert (error.code, error.found) == ("unknown_topic", "event")
    assert "events" in str(error.hint)


@pytest.mark.case("streams:E9")
def test_what_goes_with_a_generation_is_listed_and_what_readers_can_go_back_to_stays(jobs: Jobs) -> None:
    """Its checkpoint and its topic, with sizes, and nothing of the others; by force also what could be cut back to."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 5, 1: 0})
    jobs.running(jobs.plan(code=None))
    jobs.record(jobs.take(2), {0: 5, 1: 0}, number=2)
    jobs.cluster.settle(4)
    client, deep, uid = jobs.cluster.client, jobs.cluster.deep, jobs.job().uid
    for number in (1, 2):
        deep.put(f"jobs/{uid}/g{number}/checkpoint/offsets/0", b"v1" * number)
    parts = client.owned_by_generation(JOB, 1)
    assert [(part.what, part.name, part.bytes, part.records) for part in parts.owned] == [
        ("checkpoint", f"jobs/{uid}/g1", 2, None),
        ("topic", "classes_g1", None, 0),
    ]
    assert str(parts.stays).startswith("generation_live: ")
    client.cut_over(JOB, CutOver())
    drop = DropGeneration(generation=1)
    assert refused(Refused, lambda: client.drop_generation(JOB, drop)).code == "can_be_cut_back_to"
    assert str(client.owned_by_generation(JOB, 1).stays).startswith("can_be_cut_back_to: ")
    client.drop_generation(JOB, drop.model_copy(update={"force": True}))
    assert client.owned_by_generation(JOB, 1).stays is None
    jobs.cluster.settle(1)
    jobs.cluster.pass_seconds(601)
    jobs.cluster.round()
    assert (jobs.view(1).status, client.owned_by_generation(JOB, 1).owned) == ("reclaimed", ())
    assert deep.stat(f"jobs/{uid}/g2/checkpoint/offsets/0") is not None
    assert client.topic("classes_g2").ready
