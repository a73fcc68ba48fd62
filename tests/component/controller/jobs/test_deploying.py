"""Other code goes on where the live generation ended: no record is passed over, none is processed again."""

from __future__ import annotations

import pytest

from anew.api.jobs.requests import CreateJob, CutOver, DropGeneration, OfGeneration, RunGeneration
from anew.core.errors import InvalidRequest, Refused
from anew.testing.job_builders import a_code
from tests.component.controller.harness import Cluster, refused
from tests.component.controller.jobs.jobs_harness import EVENTS, JOB, Jobs

_STORE = "flights"


def _stopped_at(jobs: Jobs, offset: int, number: int = 1) -> int:
    """The generation has read so many records and its driver has ended; its epoch."""
    epoch = jobs.take(number)
    jobs.record(epoch, {0: offset, 1: 0}, number=number)
    jobs.cluster.client.stop_job(JOB, OfGeneration(generation=number))
    jobs.end(epoch, number=number)
    return epoch


@pytest.mark.case("streams:F1", "streams:C1", "streams:B2")
def test_a_deployment_goes_on_behind_the_last_recorded_batch(jobs: Jobs) -> None:
    """It begins where the live generation ended, without state, writes into its topic, serves at once, and has its
    own batches; the one before will not run again."""
    jobs.write(5)
    jobs.running()
    _stopped_at(jobs, 3)
    code = a_code(archive="cc")
    plan = jobs.plan(mode="deploy", code=code)
    assert (plan.start, plan.state, plan.base) == ({"events": {0: 3, 1: 0}}, "none", "present")
    assert (plan.estimate.records, plan.is_whole) == (2, True)
    assert jobs.running(plan) == 2
    first, second = (jobs.job().generation(number) for number in (1, 2))
    assert (jobs.job().live, first.writes_to, second.code) == (2, second.writes_to, code)
    assert (jobs.view(1).status, jobs.view(2).status, jobs.launched[-1]) == ("retired", "running", f"{JOB}@2")
    jobs.record(jobs.take(2), {0: 5, 1: 0}, number=2)
    assert (jobs.view(2).batch, jobs.view(2).lag_records) == (0, 0)


@pytest.mark.case("streams:A5", "streams:F1")
def test_what_runs_is_not_gone_on_from(jobs: Jobs) -> None:
    """A live generation that is to run, or whose driver is at its last batch, has no end yet."""
    jobs.write(5)
    jobs.running()
    epoch = jobs.take()
    assert refused(Refused, lambda: jobs.plan(mode="deploy", code=None)).code == "generation_runs"
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    assert refused(Refused, lambda: jobs.plan(mode="deploy", code=None)).code == "driver_alive"
    jobs.end(epoch)
    assert refused(InvalidRequest, lambda: jobs.plan(mode="deploy", code=None, start="oldest")).code == "start_given"
    plan = jobs.plan(mode="deploy", code=None)
    client = jobs.cluster.client
    client.run_job(JOB, RunGeneration())
    assert refused(Refused, lambda: jobs.begin(plan)).code == "generation_runs"
    epoch = jobs.take()
    jobs.record(epoch, {0: 2, 1: 0})
    client.stop_job(JOB, OfGeneration())
    jobs.end(epoch)
    assert refused(Refused, lambda: jobs.begin(plan)).code == "plan_outdated"
    assert jobs.view().status == "stopped"


def test_the_topic_and_the_batches_of_whom_was_gone_on_from_stay(jobs: Jobs) -> None:
    """As long as the one in its place writes there, its records are read; with that one they go."""
    jobs.write(5)
    jobs.running()
    _stopped_at(jobs, 3)
    jobs.running(jobs.plan(mode="deploy", code=None))
    jobs.cluster.pass_seconds(601)
    jobs.cluster.round()
    catalog, uid, client = jobs.cluster.context.catalog, jobs.job().uid, jobs.cluster.client
    assert (jobs.view(1).status, len(catalog.batches(uid, 1, 9)), client.topic("classes_g1").ready) == (
        "retired",
        1,
        True,
    )
    jobs.record(jobs.take(2), {0: 5, 1: 0}, number=2)
    jobs.running(jobs.plan(code=None))
    jobs.record(jobs.take(3), {0: 5, 1: 0}, number=3)
    jobs.cluster.settle(4)
    client.cut_over(JOB, CutOver())
    client.drop_generation(JOB, DropGeneration(generation=2, force=True))
    jobs.cluster.settle(2)
    assert [jobs.view(number).status for number in (1, 2)] == ["reclaimed", "reclaimed"]
    assert catalog.batches(uid, 1, 9) == []


@pytest.mark.case("streams:F1", "rules:R9")
def test_in_a_store_every_version_applies_what_is_deployed(cluster: Cluster) -> None:
    """Its feed is added to all versions that live; a later rewind replaces both feeds, and can be cut back from."""
    jobs = Jobs(cluster)
    jobs.topics()
    cluster.create(_STORE, hybrid=False)
    cluster.client.create_job(CreateJob(name=JOB, output=f"store:{_STORE}", inputs={"events": EVENTS}))
    jobs.write(5)
    jobs.running()
    cluster.settle(4)
    _stopped_at(jobs, 3)
    jobs.running(jobs.plan(mode="deploy", code=None))
    cluster.settle(4)
    feeds = [jobs.job().generation(number).writes_to for number in (1, 2)]
    (served,) = cluster.store(_STORE).versions
    assert (list(served.feeds), served.status.value) == (feeds, "current")
    jobs.record(jobs.take(2), {0: 5, 1: 0}, number=2)
    jobs.running(jobs.plan(code=None))
    cluster.settle(4)
    assert set(cluster.store(_STORE).versions[-1].replaces) == set(feeds)
    jobs.record(jobs.take(3), {0: 5, 1: 0}, number=3)
    cluster.settle(4)
    cluster.client.cut_over(JOB, CutOver())
    cluster.settle(4)
    assert cluster.client.cut_over(JOB, CutOver(generation=2)).live == 2
