"""What plans say of functions that keep state, and what is refused because a state would be empty, or another one."""

from __future__ import annotations

import pytest

from anew.api.jobs.requests import CreateJob, OfGeneration, PlanGeneration
from anew.core.errors import InvalidRequest, Refused
from anew.core.jobs.code import Shape
from anew.core.jobs.deadletters import SKIP
from anew.core.jobs.plan import JobPlan
from anew.testing.job_builders import a_code
from tests.component.controller.harness import Cluster, refused
from tests.component.controller.jobs.jobs_harness import EVENTS, JOB, Jobs

_COUNTS = a_code(shape=Shape(rows=False, key=False, time=False, state=("Aggregate",)))
_PLAIN = a_code(archive="cc", shape=Shape(rows=True, key=True, time=True))


def _at_rest(jobs: Jobs, plan: JobPlan | None) -> None:
    jobs.running(plan)
    jobs.cluster.settle(4)
    epoch = jobs.take()
    jobs.record(epoch, {0: 5, 1: 0})
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    jobs.end(epoch)


@pytest.mark.case("streams:C1")
def test_a_plan_says_what_is_remembered(jobs: Jobs) -> None:
    """Nothing of before: each generation begins with an empty state; a later start says what that means."""
    jobs.write(5)
    whole = jobs.plan(code=_COUNTS, start="oldest")
    assert (whole.state, "it keeps state (Aggregate), which begins empty" in whole.why) == ("empty", True)
    assert any(
        "knows nothing of the records before its start" in line for line in jobs.plan(code=_COUNTS, start="newest").why
    )
    assert not any("state" in line for line in jobs.plan(code=_PLAIN).why)


def test_nothing_goes_on_without_what_was_remembered(jobs: Jobs) -> None:
    """Neither with other code behind a generation that counts, nor with code that counts behind one that does not."""
    jobs.write(5)
    _at_rest(jobs, jobs.plan(code=_COUNTS))
    for code in (_COUNTS, _PLAIN):
        error = refused(InvalidRequest, lambda of=code: jobs.plan(mode="deploy", code=of))  # type: ignore[misc]  # bound at once
        assert (error.code, error.found) == ("state_not_carried", "Aggregate")
    found = jobs.cluster.client.job_diff(JOB, PlanGeneration(code=_COUNTS, max_records=7))
    assert [change.allows for change in found.changes] == [("simple", "parallel")]
    assert {way.way: way.code for way in found.ways} == {
        "deploy": "state_not_carried",
        "simple": None,
        "parallel": None,
    }
    jobs.running(jobs.plan(mode="simple", code=_PLAIN, start="oldest"))
    jobs.cluster.settle(2)
    epoch = jobs.take(2)
    jobs.record(epoch, {0: 5, 1: 0}, number=2)
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    jobs.end(epoch, number=2)
    assert refused(InvalidRequest, lambda: jobs.plan(mode="deploy", code=_COUNTS)).code == "state_not_carried"
    plan = jobs.plan(mode="deploy", code=a_code(archive="dd"))
    assert plan.state == "none"
    jobs.running(plan)
    # Nobody has tried that code: its driver finds out.
    assert jobs.job().generation(3).stateless


def test_a_store_is_not_counted_into_in_place(cluster: Cluster) -> None:
    """What keeps state may write under other keys than before, also the same function: what was written would stay."""
    jobs = Jobs(cluster)
    jobs.topics()
    cluster.create("flights", hybrid=False)
    cluster.client.create_job(CreateJob(name=JOB, output="store:flights", inputs={"events": EVENTS}))
    jobs.write(5)
    _at_rest(jobs, jobs.plan(code=_COUNTS))
    for start in ("oldest", {"events": {0: 2, 1: 0}}):
        error = refused(InvalidRequest, lambda at=start: jobs.plan(mode="simple", code=None, start=at))  # type: ignore[misc]  # bound at once
        assert (error.code, "--from oldest" in str(error.hint)) == ("state_not_carried", True)
    assert jobs.plan(code=None, start="oldest").state == "empty"


def test_a_plan_that_somebody_let_keep_state_is_refused(jobs: Jobs) -> None:
    """Behind code that nobody has tried a deployment says what it would not carry on."""
    jobs.write(5)
    _at_rest(jobs, jobs.plan(code=a_code()))
    plan = jobs.plan(mode="deploy", code=_PLAIN)
    assert any("nobody has tried the code of generation 1" in line for line in plan.why)
    edited = plan.model_copy(update={"state": "empty"}).sealed()
    assert refused(Refused, lambda: jobs.begin(edited)).code == "plan_outdated"


@pytest.mark.parametrize("name", ["providerClass", "checkpointFormatVersion", "rocksdb.changelogCheckpointing.enabled"])
def test_state_is_kept_in_one_way(jobs: Jobs, name: str) -> None:
    """What could not be copied is refused; in how many parts it lies is everybody's own."""
    setting = f"spark.sql.streaming.stateStore.{name}"
    assert refused(InvalidRequest, lambda: jobs.plan(conf={setting: "1"})).code == "bad_conf"
    assert jobs.plan(conf={"spark.sql.shuffle.partitions": "3"}).conf == {"spark.sql.shuffle.partitions": "3"}


def test_what_keeps_state_leaves_no_record_out(jobs: Jobs) -> None:
    """A batch without a record would be another frame, and its state another one."""
    assert refused(InvalidRequest, lambda: jobs.plan(code=_COUNTS, on_bad_record=SKIP)).code == "state_skips_nothing"
    assert jobs.plan(code=_PLAIN, on_bad_record=SKIP).on_bad_record == SKIP
