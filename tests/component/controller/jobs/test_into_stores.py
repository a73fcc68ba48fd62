"""Jobs that write into stores: a version follows each generation, serves when it may, and goes with it."""

from __future__ import annotations

import pytest

from anew.api.jobs.requests import CreateJob, CutOver, DropGeneration, OfGeneration, PlanGeneration, RunGeneration
from anew.api.models import BeginRebuild
from anew.api.rebuilds import JobStart
from anew.controller.engine.context import Context
from anew.controller.stores import changing
from anew.controller.stores.output import StoreOutput
from anew.core.errors import Refused
from anew.core.jobs.job import Job
from anew.core.jobs.plan import JobPlan
from anew.core.moment import instant_text, utc_text
from anew.testing.job_builders import a_code
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
def test_a_refusal_says_what_was_chosen_in_place_of_what_was_asked(stored: Jobs) -> None:
    """The output may not take just that."""
    stored.write(5)
    stored.running()
    stored.cluster.settle(4)
    error = refused(Refused, lambda: stored.plan(start=instant_text(stored.cluster.clock() + 1)))
    assert error.code == "base_would_be_missing"
    assert "partition 0: nothing at or after" in str(error.found)


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


@pytest.mark.case("streams:E7")
def test_what_no_node_holds_yet_is_not_served(stored: Jobs) -> None:
    """A version that follows begins without a node: it serves nobody before it is loaded, not by force either."""
    stored.running()
    assert (stored.job().live, _statuses(stored)) == (None, {1: "following"})
    stored.cluster.settle(4)
    assert (stored.job().live, _statuses(stored)) == (1, {1: "current"})
    stored.begin(stored.plan(code=None))
    error = refused(Refused, lambda: stored.cluster.client.cut_over(JOB, CutOver(force=True)))
    assert (error.code, error.found) == ("not_caught_up", "ready"), "it has read nothing"
    stored.cluster.client.run_job(JOB, RunGeneration(generation=2))
    error = refused(Refused, lambda: stored.cluster.client.cut_over(JOB, CutOver(force=True)))
    assert error.code == "not_served"
    stored.cluster.settle(4)
    stored.cluster.client.cut_over(JOB, CutOver(force=True))
    assert _statuses(stored) == {1: "backup", 2: "current"}


@pytest.mark.case("streams:E7")
def test_what_is_dropped_while_its_replicas_are_looked_at_does_not_serve(
    stored: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round looks at a first generation, and is to let it serve; before it has said so, somebody drops it."""
    stored.running()
    served, dropped = StoreOutput.served, list[str]()

    def looked_at(output: StoreOutput, context: Context, name: str, where: str) -> bool:
        found = served(output, context, name, where)
        if found and not dropped:
            dropped.append(name)
            stored.cluster.client.drop_generation(JOB, DropGeneration(generation=1, force=True))
        return found

    monkeypatch.setattr(StoreOutput, "served", looked_at)
    stored.cluster.settle(4)
    assert dropped
    assert (stored.job().live, stored.view().status, _statuses(stored).get(1)) == (None, "retired", "retired")


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
    assert refused(Refused, lambda: stored.plan(code=None)).code == "store_has_other_writers"
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


@pytest.mark.case("rules:R16")
def test_a_job_does_not_write_into_another_store_of_the_name(stored: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its store was deleted, and another one made: no generation is planned, nor is one begun that was planned."""
    plan = stored.plan()
    # The job was made between the look at all jobs and the deletion.
    monkeypatch.setattr(changing, "check_store_unused", lambda *_: None)
    stored.cluster.client.delete_store(_STORE)
    stored.cluster.create(_STORE, hybrid=False)
    assert refused(Refused, lambda: stored.begin(plan)).code == "output_made_again"
    assert refused(Refused, stored.plan).code == "output_made_again"
    assert stored.job().generations == ()


def _other_job(jobs: Jobs, name: str = "other") -> JobPlan:
    """Another job into the same store, and the plan of its first generation."""
    client = jobs.cluster.client
    client.create_job(CreateJob(name=name, output=f"store:{_STORE}", inputs={"events": EVENTS}))
    return client.plan_generation(name, PlanGeneration(code=a_code()))


def _begin_beside(jobs: Jobs, plan: JobPlan) -> None:
    begin = BeginRebuild(plan=plan, request_id=f"begin-{plan.job}-{plan.generation}", driver="")
    jobs.cluster.client.begin_rebuild(begin, JobStart)


def _job(jobs: Jobs, name: str) -> Job:
    found = jobs.cluster.context.catalog.job(name)
    assert found is not None
    return found


@pytest.mark.case("rules:R9")
def test_a_first_generation_joins_what_came_to_serve_before_it(stored: Jobs) -> None:
    """Two jobs begin in an empty store: one serves with its version, and the other one's feed is added to that."""
    other = _other_job(stored)
    _begin_beside(stored, stored.plan())
    _begin_beside(stored, other)
    assert _statuses(stored) == {1: "following", 2: "following"}
    stored.cluster.settle(8)
    assert (_job(stored, JOB).live, _job(stored, "other").live) == (1, 1)
    feeds = {_job(stored, name).generation(1).writes_to for name in (JOB, "other")}
    serving = [v for v in stored.cluster.store(_STORE).versions if v.status.value == "current"]
    assert [set(version.feeds) for version in serving] == [feeds]
    assert "following" not in _statuses(stored).values()


@pytest.mark.case("rules:R9", "streams:E1")
def test_what_follows_one_job_is_no_other_jobs(stored: Jobs) -> None:
    """A job that joins while another one is rewound serves at once, and what ends with it is its own alone."""
    client = stored.cluster.client
    stored.running()
    stored.cluster.settle(4)
    stored.running(stored.plan(code=None))
    _begin_beside(stored, _other_job(stored))
    stored.cluster.settle(4)
    joined = _job(stored, "other").generation(1).writes_to
    assert [joined in version.feeds for version in stored.cluster.store(_STORE).versions] == [True, True]
    assert _job(stored, "other").live == 1
    client.delete_job("other")
    again = _other_job(stored)
    _begin_beside(stored, again)
    client.drop_generation("other", DropGeneration(generation=again.generation, force=True))
    assert _statuses(stored) == {1: "current", 2: "following"}
    later = _job(stored, "other").generation(again.generation).writes_to
    assert [later in version.feeds for version in stored.cluster.store(_STORE).versions] == [True, True]


@pytest.mark.case("rules:R12")
def test_a_plan_says_which_records_would_be_dead_letters(cluster: Cluster) -> None:
    """A first generation joins a store whose versions have forgotten deletes: it may bring records from before."""
    jobs = Jobs(cluster)
    jobs.topics()
    cluster.create(_STORE, tombstone_grace_seconds=60)
    cluster.client.create_job(CreateJob(name=JOB, output=f"store:{_STORE}", inputs={"events": EVENTS}))
    cluster.serve(cluster.push_plan(_STORE))
    early = jobs.plan()
    assert not any("dead letter" in line for line in early.why)
    cluster.pass_seconds(120)
    cluster.settle(2)
    cluster.serve(cluster.repush_plan(_STORE))
    floor_ms = cluster.version(2, _STORE).tombstone_floor_ms
    assert floor_ms > 0
    later = jobs.plan()
    assert any("dead letter" in line and utc_text(floor_ms) in line for line in later.why)
    # Who agreed to the plan of before agreed to none of that.
    assert refused(Refused, lambda: jobs.begin(early)).code == "plan_outdated"
    assert jobs.begin(later) == 1


@pytest.mark.case("streams:E9")
def test_what_a_deleted_job_of_the_name_wrote_is_not_replaced(stored: Jobs) -> None:
    """Another job has its name, and reads something else: a version of its records alone would lack the old ones."""
    client = stored.cluster.client
    stored.write(5)
    stored.running()
    stored.cluster.settle(4)
    epoch = stored.take()
    stored.cluster.write(stored.cluster.store(_STORE).feeds[0], 1)
    stored.record(epoch, {0: 5, 1: 0})
    client.stop_job(JOB, OfGeneration())
    stored.end(epoch)
    client.delete_job(JOB)
    stored.cluster.settle(3)
    client.create_job(CreateJob(name=JOB, output=f"store:{_STORE}", inputs={"events": EVENTS}, request_id="again"))
    stored.running()
    stored.cluster.settle(4)
    assert stored.job().live == 2
    assert refused(Refused, lambda: stored.plan(code=None)).code == "store_has_other_writers"


@pytest.mark.case("rules:R9")
def test_a_deleted_job_that_never_wrote_is_no_other_writer(stored: Jobs) -> None:
    """A submission that was a mistake: the next job of the store is rewound, cut over to and back, without its feed."""
    client = stored.cluster.client
    stored.write(5)
    stored.running()
    stored.cluster.settle(4)
    stored.take()
    client.stop_job(JOB, OfGeneration())
    client.delete_job(JOB)
    client.create_job(CreateJob(name=JOB, output=f"store:{_STORE}", inputs={"events": EVENTS}, request_id="again"))
    stored.running()
    stored.cluster.settle(4)
    # Its driver may be at its last batch.
    assert refused(Refused, lambda: stored.plan(code=None)).code == "store_has_other_writers"
    stored.cluster.pass_seconds(stored.cluster.context.limits.lease_seconds + 1)
    stored.running(stored.plan(code=None))
    stored.cluster.settle(4)
    never, old, new = (feed.id for feed in stored.cluster.store(_STORE).feeds)
    version = stored.cluster.version(2, _STORE)
    assert (version.feeds, version.replaces) == ((new,), (old, never))
    _caught_up(stored, 3)
    client.cut_over(JOB, CutOver(force=True))
    assert _statuses(stored) == {1: "backup", 2: "current"}
    client.cut_over(JOB, CutOver(generation=2, force=True))
    assert _statuses(stored) == {1: "current", 2: "following"}


@pytest.mark.case("streams:E9")
def test_a_generation_that_nobody_can_go_back_to_goes_by_itself(stored: Jobs) -> None:
    """Its version went with the retention of backups: it would write for nobody, and for ever."""
    stored.running()
    stored.cluster.settle(4)
    stored.running(stored.plan(code=None))
    stored.cluster.settle(4)
    stored.cluster.client.cut_over(JOB, CutOver(force=True))
    stored.cluster.settle(4)
    assert (stored.view(1).status, _statuses(stored)) == ("running", {1: "backup", 2: "current"})
    stored.cluster.pass_seconds(stored.cluster.store(_STORE).config.backup_retention_seconds + 60)
    stored.cluster.settle(4)
    assert stored.view(1).status == "retired"
    error = refused(Refused, lambda: stored.cluster.client.cut_over(JOB, CutOver(generation=1, force=True)))
    assert error.code == "generation_over"
