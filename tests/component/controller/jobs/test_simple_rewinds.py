"""A rewind in the live generation's place: into its output, and refused where it could not take everything back."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from anew.api.jobs.requests import CreateJob, CutOver, OfGeneration
from anew.api.topics import CreateTopic
from anew.core.errors import Refused
from anew.core.jobs.code import Shape
from anew.core.jobs.plan import JobPlan
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA
from anew.testing.job_builders import a_code
from tests.component.controller.harness import Cluster, refused
from tests.component.controller.jobs.jobs_harness import EVENTS, JOB, Jobs

_STORE = "flights"
_KEEPS = Shape(rows=True, key=True, time=True)
_OLD, _NEW = a_code(shape=_KEEPS), a_code(archive="cc", shape=_KEEPS)


def _at_rest(jobs: Jobs, offset: int, plan: JobPlan | None = None) -> None:
    """The first generation has read so many records, and its driver has ended."""
    jobs.running(plan)
    jobs.cluster.settle(4)
    epoch = jobs.take()
    jobs.record(epoch, {0: offset, 1: 0})
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    jobs.end(epoch)


def _into_store(cluster: Cluster, **config: Any) -> Jobs:
    jobs = Jobs(cluster)
    jobs.topics()
    cluster.create(_STORE, **{"hybrid": False, **config})
    cluster.client.create_job(CreateJob(name=JOB, output=f"store:{_STORE}", inputs={"events": EVENTS}))
    return jobs


@pytest.mark.case("streams:D1")
def test_it_reads_the_history_again_and_writes_into_the_same_output(jobs: Jobs) -> None:
    """It begins where it was told, takes the live one's place at once, and that one will not run again."""
    jobs.write(5)
    _at_rest(jobs, 5)
    plan = jobs.plan(mode="simple", code=_NEW, start="oldest")
    assert (plan.mode, plan.start, plan.base, plan.estimate.records) == (
        "simple",
        {"events": {0: 0, 1: 0}},
        "present",
        5,
    )
    assert any("what was written stays until it is written again" in line for line in plan.why)
    assert any("gets the results again" in line for line in plan.why)
    assert jobs.running(plan) == 2
    first, second = (jobs.job().generation(number) for number in (1, 2))
    assert (jobs.job().live, first.status.value, second.writes_to) == (2, "retired", first.writes_to)


def test_no_record_is_passed_over(jobs: Jobs) -> None:
    """A start behind what the live generation has read is refused: nobody would read what lies between."""
    jobs.write(5)
    _at_rest(jobs, 3)
    for start in ("newest", {"events": {0: 4, 1: 0}}):
        error = refused(Refused, partial(jobs.plan, mode="simple", code=_NEW, start=start))
        assert (error.code, "at most 3" in str(error.expected)) == ("start_behind_live", True)
    plan = jobs.plan(mode="simple", code=_NEW, start={"events": {0: 3, 1: 0}})
    altered = plan.model_copy(update={"start": {"events": {0: 5, 1: 0}}}).sealed()
    assert refused(Refused, lambda: jobs.begin(altered)).code == "start_behind_live"
    assert jobs.begin(plan) == 2


@pytest.mark.case("streams:D4")
def test_what_arrives_meanwhile_waits_behind_the_history(jobs: Jobs) -> None:
    """Nothing of it is passed over: it is lag of the one generation there is, and the pace says how long it waits."""
    jobs.write(40)
    _at_rest(jobs, 40)
    jobs.running(jobs.plan(mode="simple", code=_NEW, start="oldest"))
    epoch = jobs.take(2)
    jobs.write(10)
    assert (jobs.view(2).lag_records, jobs.view(2).positions) == (50, {"events": {0: 0, 1: 0}})
    jobs.cluster.pass_seconds(120)
    for end in (10, 20, 30):
        jobs.record(epoch, {0: end, 1: 0}, number=2)
        jobs.cluster.pass_seconds(1)
        jobs.beat(epoch, 2)
    view = jobs.view(2)
    assert (view.lag_records, view.records_per_s, view.seconds_left) == (20, 10.0, 2.0)


def test_nothing_is_deployed_over_a_rewind_that_has_not_come_back(jobs: Jobs) -> None:
    """What the generation before it wrote of the records in between would stay, and nobody would have looked."""
    jobs.write(40)
    _at_rest(jobs, 40)
    jobs.running(jobs.plan(mode="simple", code=_NEW, start="oldest"))
    epoch = jobs.take(2)
    jobs.record(epoch, {0: 10, 1: 0}, number=2)
    jobs.cluster.client.stop_job(JOB, OfGeneration(generation=2))
    jobs.end(epoch, number=2)
    error = refused(Refused, lambda: jobs.plan(mode="deploy", code=None))
    assert (error.code, error.expected) == ("rewind_unfinished", "offset 40, to which that one had come")
    assert jobs.plan(mode="simple", code=_NEW, start={"events": {0: 10, 1: 0}}).mode == "simple"


def test_one_that_was_begun_and_not_run_is_a_problem(jobs: Jobs) -> None:
    """It serves, and nothing new is written: whoever began it may have gone."""
    jobs.write(5)
    _at_rest(jobs, 5)
    jobs.begin(jobs.plan(mode="simple", code=_NEW, start="oldest"))
    (problem,) = jobs.cluster.client.status().problems
    assert (f"{JOB}@2" in problem.what, problem.hint) == (True, f"anew job run {JOB}@2")


def test_who_can_never_serve_again_does_not_run_on(jobs: Jobs) -> None:
    """One is cut over to, and another one is deployed in its place: nobody gets back to the first."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 5, 1: 0})
    jobs.running(jobs.plan(code=None))
    epoch = jobs.take(2)
    jobs.record(epoch, {0: 5, 1: 0}, number=2)
    jobs.cluster.settle(3)
    jobs.cluster.client.cut_over(JOB, CutOver())
    jobs.cluster.settle(2)
    assert jobs.view(1).status == "running"
    jobs.cluster.client.stop_job(JOB, OfGeneration(generation=2))
    jobs.end(epoch, number=2)
    jobs.running(jobs.plan(mode="deploy", code=None))
    jobs.cluster.settle(2)
    assert [jobs.view(number).status for number in (1, 2, 3)] == ["reclaimed", "retired", "running"]


@pytest.mark.case("streams:D5")
def test_batches_that_have_the_numbers_of_those_before_are_not_taken_for_them(jobs: Jobs) -> None:
    """The generation in the place of another begins with batch 0 again, in the same topic: readers get both."""
    jobs.write(2)
    jobs.running()
    epoch = jobs.take()
    jobs.append(0, epoch, 0, "a", "b")
    jobs.record(epoch, {0: 2, 1: 0}, attempts=(0,), rows=2)
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    jobs.end(epoch)
    jobs.running(jobs.plan(mode="simple", code=_NEW, start="oldest"))
    again = jobs.take(2)
    assert again == epoch
    jobs.append(0, again, 0, "a", "b", number=2)
    assert jobs.read() == (["a", "b"], [(2, 0)])
    jobs.record(again, {0: 2, 1: 0}, number=2, attempts=(0,), rows=2)
    assert jobs.read() == (["a", "b", "a", "b"], [])


def test_what_runs_is_not_rewound_in_its_place(jobs: Jobs) -> None:
    """It can be planned; to begin it needs a live generation that is stopped, and whose driver has ended."""
    jobs.write(5)
    jobs.running()
    epoch = jobs.take()
    plan = jobs.plan(mode="simple", code=_NEW, start="oldest")
    assert refused(Refused, lambda: jobs.begin(plan)).code == "generation_runs"
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    assert refused(Refused, lambda: jobs.begin(plan)).code == "driver_alive"
    jobs.end(epoch)
    assert jobs.begin(plan) == 2


@pytest.mark.case("rules:R9")
def test_every_version_of_a_store_applies_it(cluster: Cluster) -> None:
    """Its feed is added to all versions that live: no rebuild of one leaves its records out."""
    jobs = _into_store(cluster)
    jobs.write(5)
    _at_rest(jobs, 5, jobs.plan(code=_OLD))
    jobs.running(jobs.plan(mode="simple", code=_NEW, start="oldest"))
    cluster.settle(4)
    (served,) = cluster.store(_STORE).versions
    assert list(served.feeds) == [jobs.job().generation(number).writes_to for number in (1, 2)]


@pytest.mark.case("rules:R26")
@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (_KEEPS, None, "was not tried"),
        (None, _KEEPS, "was not tried"),
        (_KEEPS, Shape(rows=False, key=False, time=False), "leave records out"),
        (_KEEPS, Shape(rows=True, key=False, time=True), "other keys"),
        (Shape(rows=False, key=False, time=False), _KEEPS, "the live generation's function gives rows other keys"),
        (_KEEPS, Shape(rows=True, key=True, time=False), "other times"),
    ],
)
def test_what_it_would_not_write_again_asks_for_a_parallel_rewind(
    cluster: Cluster, before: Shape | None, after: Shape | None, why: str
) -> None:
    """A row that the new code leaves out, or has under another key, would stay in the store for ever."""
    jobs = _into_store(cluster)
    jobs.write(5)
    _at_rest(jobs, 5, jobs.plan(code=a_code(shape=before)))
    other = a_code(archive="cc", shape=after)
    error = refused(Refused, lambda: jobs.plan(mode="simple", code=other, start="oldest"))
    assert (error.code, why in str(error.found), "--parallel" in str(error.hint)) == ("must_be_parallel", True, True)
    parallel = jobs.plan(mode="parallel", code=other, start="oldest")
    altered = parallel.model_copy(update={"mode": "simple", "state": "none"}).sealed()
    assert refused(Refused, lambda: jobs.begin(altered)).code == "must_be_parallel"
    # Over the same records the same code writes what it wrote, whatever it keeps of them.
    assert jobs.plan(mode="simple", code=None, start="oldest").mode == "simple"


@pytest.mark.case("rules:R26")
def test_what_a_generation_before_the_live_one_wrote_is_asked_for_too(cluster: Cluster) -> None:
    """The live one was deployed: it wrote nothing of the first records, but the one before it did, under other keys."""
    jobs = _into_store(cluster)
    jobs.write(5)
    _at_rest(jobs, 5, jobs.plan(code=a_code(archive="bb", shape=Shape(rows=True, key=False, time=True))))
    jobs.running(jobs.plan(mode="deploy", code=_OLD))
    jobs.write(5)
    epoch = jobs.take(2)
    jobs.record(epoch, {0: 10, 1: 0}, number=2)
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    jobs.end(epoch, number=2)
    error = refused(Refused, lambda: jobs.plan(mode="simple", code=_NEW, start="oldest"))
    assert (error.code, f"{JOB}@1" in str(error.found)) == ("must_be_parallel", True)
    # What the first one read is not read again from here on.
    assert jobs.plan(mode="simple", code=_NEW, start={"events": {0: 5, 1: 0}}).mode == "simple"


@pytest.mark.case("rules:R12")
def test_records_older_than_forgotten_deletes_ask_for_a_parallel_rewind(cluster: Cluster) -> None:
    """A version that has forgotten deletes would turn them away; what is younger is read again in place."""
    jobs = _into_store(cluster, tombstone_grace_seconds=60, hybrid=True)
    jobs.write(3)
    cluster.serve(cluster.push_plan(_STORE))
    cluster.pass_seconds(120)
    cluster.settle(2)
    cluster.serve(cluster.repush_plan(_STORE))
    assert cluster.version(2, _STORE).tombstone_floor_ms > 0
    cluster.pass_seconds(120)
    jobs.write(2)
    _at_rest(jobs, 5, jobs.plan(code=_OLD))
    error = refused(Refused, lambda: jobs.plan(mode="simple", code=_NEW, start="oldest"))
    assert (error.code, "R12" in str(error.found), "offset 3" in str(error.found)) == ("must_be_parallel", True, True)
    assert jobs.plan(mode="simple", code=_NEW, start={"events": {0: 3, 1: 0}}).start == {"events": {0: 3, 1: 0}}


@pytest.mark.case("streams:N5")
def test_a_plan_names_the_jobs_that_read_what_it_writes(jobs: Jobs) -> None:
    """Each kind of rewind means something else for them."""
    jobs.write(5)
    _at_rest(jobs, 5)
    client = jobs.cluster.client
    client.create_topic(CreateTopic(name="sums", partitions=1, key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA))
    client.create_job(CreateJob(name="sum", output="topic:sums", inputs={"classes": "classes_g1"}))
    said = {mode: jobs.plan(mode=mode, code=None).downstream for mode in ("parallel", "simple", "deploy")}
    assert all(len(lines) == 1 and lines[0].startswith("sum reads classes_g1 as classes: ") for lines in said.values())
    assert len(set(said.values())) == 3
