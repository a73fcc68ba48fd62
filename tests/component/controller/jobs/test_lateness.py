"""How old the records may be that a job has yet to write, and what a repush forgets accordingly (rule R12)."""

from __future__ import annotations

from typing import Any

import pytest

from anew.api.jobs.requests import CreateJob, DropGeneration, OfGeneration, PlanGeneration
from anew.api.topics import CreateTopic
from anew.core.errors import Refused
from anew.core.jobs.code import JobCode, Shape
from anew.core.jobs.deadletters import SKIP
from anew.core.moment import LAST_MS
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA
from anew.testing.job_builders import a_code
from tests.component.controller.harness import Cluster, refused
from tests.component.controller.jobs.jobs_harness import EVENTS, JOB, PARTITIONS, Jobs

_STORE, _HOUR_MS, _DAY_SECONDS = "flights", 3_600_000, 86_400
_KEEPS = Shape(rows=True, key=True, time=True)
_OLD, _NEW = a_code(shape=_KEEPS), a_code(archive="cc", shape=_KEEPS)


@pytest.fixture
def late(cluster: Cluster) -> Jobs:
    """A job that fills a store, with records that are an hour late at most."""
    return _made(cluster, _HOUR_MS)


def _made(cluster: Cluster, max_lateness_ms: int | None) -> Jobs:
    made = Jobs(cluster)
    made.topics()
    cluster.create(_STORE, hybrid=False)
    request = CreateJob(name=JOB, output=f"store:{_STORE}", inputs={"events": EVENTS}, max_lateness_ms=max_lateness_ms)
    cluster.client.create_job(request)
    return made


def _to_come(jobs: Jobs) -> list[int]:
    """What is known of each feed into which records may come, as ms before now, without the skew of clocks."""
    cluster = jobs.cluster
    snapshot = cluster.client.snapshot(_STORE)
    skew_ms = {feed.id: feed.skew_limit_ms for feed in snapshot.store.feeds}
    return [cluster.clock() - at_ms - skew_ms[feed] for feed, at_ms in snapshot.to_come_ms.items() if at_ms != LAST_MS]


@pytest.mark.case("rules:R12")
def test_what_is_to_come_is_as_old_as_what_was_not_read(late: Jobs) -> None:
    """A generation at the end writes what comes from now on; one that was stopped for a day, what came meanwhile."""
    late.running(late.plan(code=_OLD))
    epoch = late.take()
    assert _to_come(late) == [_HOUR_MS]
    late.write(5)
    late.cluster.pass_seconds(60)
    late.write(5, partition=1)
    late.cluster.pass_seconds(24 * 3_600)
    assert _to_come(late) == [_HOUR_MS + 24 * _HOUR_MS + 60_000]
    late.record(epoch, {0: 5, 1: 0})
    assert _to_come(late) == [_HOUR_MS + 24 * _HOUR_MS]
    late.record(epoch, {0: 5, 1: 5})
    assert _to_come(late) == [_HOUR_MS]


@pytest.mark.case("rules:R12")
def test_of_an_open_transaction_nothing_is_known(late: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another program has appended and not committed will be read with the time of its append, however old."""
    late.running(late.plan(code=_OLD))
    late.take()
    log, behind = late.cluster.log, {0: 0, 1: 3}
    plain = log.next_offset
    monkeypatch.setattr(
        log, "next_offset", lambda at: plain(at) + (behind[at.partition] if at.topic == EVENTS else 0), raising=True
    )
    assert _to_come(late) == []
    behind[1] = 0
    assert _to_come(late) == [_HOUR_MS]


@pytest.mark.case("rules:R12")
@pytest.mark.parametrize("code", [a_code(), a_code(shape=_KEEPS.model_copy(update={"state": ("Join",)}))])
def test_of_what_a_function_remembers_nothing_is_known(late: Jobs, code: JobCode) -> None:
    """It may write a row that is as old as what it read long ago; nobody knows of a function that was not tried."""
    late.write(5)
    late.running(late.plan(code=code))
    late.record(late.take(), {0: 5, 1: 0})
    assert _to_come(late) == []


@pytest.mark.case("rules:R12")
def test_a_rewind_brings_its_history(late: Jobs) -> None:
    """Of each generation by itself: the one that is rewound has all history to write, however near the live one is."""
    late.write(5)
    late.cluster.pass_seconds(24 * 3_600)
    late.running(late.plan(code=_OLD))
    late.cluster.settle(4)
    late.record(late.take(), {0: 5, 1: 0})
    late.running(late.plan(code=None, start="oldest"))
    assert sorted(_to_come(late)) == [_HOUR_MS, 25 * _HOUR_MS]
    late.cluster.client.drop_generation(JOB, DropGeneration(generation=2))
    late.cluster.pass_seconds(late.cluster.context.limits.lease_seconds + 1)
    assert _to_come(late) == [_HOUR_MS]


def _floors(jobs: Jobs, repushes: int) -> list[int]:
    """The floors of repushes, thirty days apart, as days before each."""
    found = []
    for _ in range(repushes):
        jobs.cluster.pass_seconds(30 * _DAY_SECONDS)
        plan = jobs.cluster.repush_plan()
        found.append(round((jobs.cluster.clock() - plan.target.tombstone_floor_ms) / _DAY_SECONDS / 1_000))
        jobs.cluster.serve(plan)
        jobs.cluster.settle(4)
    return found


@pytest.mark.case("rules:R12")
def test_a_deployment_changes_nothing_of_what_is_to_come(late: Jobs) -> None:
    """Into the feed of the generation before nothing comes any more: it limits no floor. The grace is ten days."""
    late.write(5)
    late.running(late.plan(code=_OLD))
    late.cluster.settle(4)
    epoch = late.take()
    late.record(epoch, {0: 5, 1: 0})
    late.cluster.client.stop_job(JOB, OfGeneration())
    late.end(epoch)
    late.running(late.plan(mode="deploy", code=_NEW))
    late.cluster.settle(4)
    assert _floors(late, 2) == [10, 10]
    assert len(late.cluster.version(3).feeds) == 2


@pytest.mark.case("rules:R12")
def test_a_simple_rewind_counts_how_late_its_records_may_be(cluster: Cluster) -> None:
    """Appended after the floor is not dated after it: what may be dated before it takes a version of its own."""
    late = _made(cluster, 10 * _DAY_SECONDS * 1_000)
    late.running(late.plan(code=_OLD))
    cluster.settle(4)
    late.write(5)
    cluster.pass_seconds(25 * _DAY_SECONDS)
    late.write(5)
    cluster.pass_seconds(5 * _DAY_SECONDS)
    epoch = late.take()
    late.record(epoch, {0: 10, 1: 0})
    cluster.pass_seconds(120)
    plan = cluster.repush_plan()
    assert round((cluster.clock() - plan.target.tombstone_floor_ms) / _DAY_SECONDS / 1_000) == 10
    cluster.serve(plan)
    cluster.settle(4)
    cluster.client.stop_job(JOB, OfGeneration())
    late.end(epoch)
    error = refused(Refused, lambda: late.plan(mode="simple", code=_NEW, start={"events": {0: 5, 1: 0}}))
    assert (error.code, "deletes were forgotten" in str(error.found)) == ("must_be_parallel", True)


@pytest.mark.case("rules:R12")
def test_a_job_that_is_not_applied_yet_counts(cluster: Cluster) -> None:
    """A push served before it: the version of a repush gets its feed later, with all that it has yet to write."""
    cluster.create(_STORE)
    late = Jobs(cluster)
    late.topics()
    request = CreateJob(name=JOB, output=f"store:{_STORE}", inputs={"events": EVENTS}, max_lateness_ms=_HOUR_MS)
    cluster.client.create_job(request)
    late.write(5)
    late.begin()
    cluster.serve(cluster.push_plan())
    cluster.pass_seconds(30 * _DAY_SECONDS)
    plan = cluster.repush_plan()
    floor_ms = plan.target.tombstone_floor_ms
    assert cluster.clock() - floor_ms >= 30 * _DAY_SECONDS * 1_000, floor_ms


@pytest.mark.case("rules:R12")
def test_nothing_is_known_of_what_nobody_declares(cluster: Cluster) -> None:
    """Then no tombstone goes."""
    jobs = _made(cluster, None)
    jobs.running()
    assert _to_come(jobs) == []


@pytest.mark.case("rules:R12")
def test_records_that_were_left_out_may_come_again(late: Jobs) -> None:
    """With the times they had: whichever job leaves records of the topic out, nothing is known any more."""
    late.running(late.plan(code=_OLD))
    assert _to_come(late) == [_HOUR_MS]
    other = CreateTopic(name="others", partitions=PARTITIONS, key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA)
    client = late.cluster.client
    client.create_topic(other)
    client.create_job(CreateJob(name="second", output="topic:others", inputs={"events": EVENTS}))
    assert _to_come(late) == [_HOUR_MS]
    _begin(late, "second", on_bad_record=SKIP)
    assert _to_come(late) == []


def _begin(jobs: Jobs, name: str, **asked: Any) -> None:
    plan = jobs.cluster.client.plan_generation(name, PlanGeneration(code=a_code(), **asked))
    jobs.begin(plan)
