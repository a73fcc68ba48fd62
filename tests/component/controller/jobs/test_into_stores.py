"""Jobs that write into stores: a version follows each generation, serves when it may, and goes with it."""

from __future__ import annotations

import pytest

from anew.api.jobs.requests import CreateJob, CutOver, DropGeneration, OfGeneration
from anew.core.errors import Refused
from tests.component.controller.harness import Cluster, refused
from tests.component.controller.jobs.jobs_harness import EVENTS, JOB, Jobs

_STORE = "flights"


@pytest.fixture
def stored(cluster: Cluster) -> Jobs:
    """A store without a version, and a job that is to fill it."""
    made = Jobs(cluster)
    made.topics()
    cluster.create(_STORE, hybrid=False)
    cluster.client.create_job(CreateJob(name=JOB, output=f"store:{_STORE}", inputs={"events": EVENTS}))
    return made


def _statuses(jobs: Jobs) -> dict[int, str]:
    return {version.number: version.status.value for version in jobs.cluster.store(_STORE).versions}


def _caught_up(jobs: Jobs, number: int) -> None:
    epoch = jobs.take(number)
    jobs.record(epoch, {0: 5, 1: 0}, number=number)
    jobs.cluster.settle(4)


@pytest.mark.case("streams:E7")
def test_a_first_generation_serves_by_itself_and_others_when_they_are_cut_over_to(stored: Jobs) -> None:
    """Into an empty store a version follows it, and serves once it is loaded; a rewind has one of its own beside it."""
    stored.write(5)
    stored.running()
    stored.cluster.settle(4)
    assert (stored.job().live, _statuses(stored)) == (1, {1: "current"})
    _caught_up(stored, 1)
    stored.running(stored.plan(code=None))
    stored.cluster.settle(4)
    assert _statuses(stored) == {1: "current", 2: "following"}
    _caught_up(stored, 2)
    client = stored.cluster.client
    assert (stored.view(2).caught_up, stored.view(2).applied, stored.view(2).version) == (True, True, 2)
    client.cut_over(JOB, CutOver())
    assert (stored.job().live, _statuses(stored)) == (2, {1: "backup", 2: "current"})
    stored.cluster.settle(4)
    client.cut_over(JOB, CutOver(generation=1))
    assert (stored.job().live, _statuses(stored)) == (1, {1: "current", 2: "following"})


def test_a_generation_that_is_dropped_takes_its_version_and_at_last_its_feed(stored: Jobs) -> None:
    """The version goes as one of a rebuild that was killed; then the feed leaves the store, and its topic the log."""
    stored.running()
    stored.cluster.settle(4)
    stored.running(stored.plan(code=None))
    stored.cluster.settle(4)
    topics = {feed.topic for feed in stored.cluster.store(_STORE).feeds}
    assert len(topics) == 2
    stored.cluster.client.drop_generation(JOB, DropGeneration(generation=2))
    assert _statuses(stored)[1] == "current"
    stored.cluster.settle(3)
    assert stored.view(2).status == "retired"
    stored.cluster.pass_seconds(601)
    stored.cluster.until(lambda: stored.view(2).status == "reclaimed")
    assert [feed.id for feed in stored.cluster.store(_STORE).feeds] == [stored.job().generation(1).writes_to]
    stored.cluster.pass_seconds(601)
    stored.cluster.round()
    assert sum(stored.cluster.log.topic(topic) is not None for topic in topics) == 1


def test_a_store_that_others_write_into_takes_no_rewind(stored: Jobs) -> None:
    """A first generation joins what is pushed; a version of its records alone would lack the rest."""
    stored.cluster.serve(stored.cluster.push_plan(_STORE))
    stored.running()
    stored.cluster.settle(4)
    assert (stored.job().live, _statuses(stored)) == (1, {1: "current"})
    assert stored.job().generation(1).writes_to in stored.cluster.store(_STORE).versions[0].feeds
    plan = stored.plan(code=None)
    assert refused(Refused, lambda: stored.begin(plan)).code == "store_has_other_writers"
    assert [each.number for each in stored.job().generations] == [1]


def test_a_job_is_deleted_with_all_that_follows_it(stored: Jobs) -> None:
    """Two versions follow after two cut-backs: both are given up in one commit, and what serves stays."""
    client = stored.cluster.client
    stored.running()
    stored.cluster.settle(4)
    for number in (2, 3):
        stored.running(stored.plan(code=None))
        stored.cluster.settle(4)
        client.cut_over(JOB, CutOver(generation=number, force=True))
        stored.cluster.settle(2)
    for number in (2, 1):
        client.cut_over(JOB, CutOver(generation=number, force=True))
        stored.cluster.settle(2)
    assert _statuses(stored) == {1: "current", 2: "following", 3: "following"}
    error = refused(Refused, lambda: client.delete_store(_STORE))
    assert (error.code, error.found) == ("store_in_use", f"{JOB} has it as its output")
    for number in (1, 2, 3):
        client.stop_job(JOB, OfGeneration(generation=number))
    client.delete_job(JOB)
    stored.cluster.settle(2)
    assert _statuses(stored)[1] == "current"
    assert "following" not in _statuses(stored).values()
