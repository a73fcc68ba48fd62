"""Starts at times, where generations stand, and at offsets that are moved: resolved against the real log."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from anew.api.jobs.requests import CreateJob, CutOver, DropGeneration, PlanGeneration
from anew.api.topics import CreateTopic
from anew.controller.jobs.planning import plan_generation
from anew.core.errors import InvalidRequest, NotFound, Refused
from anew.core.jobs.starts import AtTopicOffsets, start_of
from anew.core.moment import instant_text
from anew.log.interface import TopicFacts, TopicPartition
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA
from anew.testing.job_builders import a_code
from tests.component.controller.harness import refused
from tests.component.controller.jobs.jobs_harness import EVENTS, JOB, Jobs

_HOUR = 3_600


@pytest.fixture
def hours(jobs: Jobs) -> list[int]:
    """Three times, an hour between them, at each of which two events came to partition 0; one to 1 at the first."""
    times = []
    jobs.write(1, partition=1)
    for _ in range(3):
        times.append(jobs.cluster.clock())
        jobs.write(2)
        jobs.cluster.pass_seconds(_HOUR)
    return times


def _truncate(jobs: Jobs, below: int, partition: int = 0) -> None:
    topic = jobs.cluster.client.topic(EVENTS)
    jobs.cluster.log.truncate_below(TopicPartition(EVENTS, topic.topic_uid, partition), below)


@pytest.mark.case("streams:B3", "streams:B4")
def test_a_time_is_resolved_for_each_partition(jobs: Jobs, hours: list[int]) -> None:
    """To the first record at or after it; a partition without one starts at its end, and the plan says so."""
    at = instant_text(hours[1])
    plan = jobs.plan(start=at)
    assert plan.start == {"events": {0: 2, 1: 1}}
    assert plan.start_times == {"events": {0: hours[1], 1: None}}
    assert f"events, partition 1: nothing at or after {at}: starts at its end" in plan.why
    assert (plan.unreachable, plan.begins, plan.is_whole) == ((), at, False)
    assert jobs.plan(start=instant_text(hours[1] + 1)).start == {"events": {0: 4, 1: 1}}
    everything = jobs.plan(start=instant_text(0))
    assert (everything.start, everything.is_whole) == ({"events": {0: 0, 1: 0}}, True)
    future = jobs.plan(start=instant_text(jobs.cluster.clock() + 1))
    assert (future.start, future.estimate.records) == ({"events": {0: 6, 1: 1}}, 0)


@pytest.mark.case("streams:B3")
def test_a_duration_is_counted_back_from_the_moment_of_planning(jobs: Jobs, hours: list[int]) -> None:
    """The plan names the time that it comes to; what is longer than time itself is everything."""
    plan = jobs.plan(start="2h")
    assert (plan.start, plan.begins) == ({"events": {0: 2, 1: 1}}, f"2h ago, {instant_text(hours[1])}")
    jobs.cluster.pass_seconds(_HOUR)
    assert jobs.plan(start="2h").start == {"events": {0: 4, 1: 1}}
    assert jobs.plan(start="9999w").start == {"events": {0: 0, 1: 0}}


@pytest.mark.case("streams:B5")
def test_a_time_that_retention_has_passed_is_refused_or_accepted_with_its_gap(jobs: Jobs, hours: list[int]) -> None:
    """The refusal names the partition, the oldest time, and the retention that was needed; the plan keeps the gap."""
    _truncate(jobs, 3)
    asked = instant_text(hours[0])
    error = refused(Refused, lambda: jobs.plan(start=asked))
    assert error.code == "start_unreachable"
    assert "partition 0 of events" in str(error)
    assert error.found == f"oldest record of {instant_text(hours[1])}; what lay before offset 3 is gone"
    assert error.expected == f"records since {asked}, for which a retention of {3 * _HOUR} s was needed"
    plan = jobs.plan(start=asked, from_oldest_available=True)
    assert plan.start == {"events": {0: 3, 1: 0}}
    gap = f"events, partition 0: the history from {asked} to {instant_text(hours[1])} is gone"
    assert plan.unreachable == (gap,)
    jobs.begin(plan)
    assert jobs.job().generation(1).start == plan.start
    # The oldest time that there is can be asked for, and needs no gap.
    assert jobs.plan(start=instant_text(hours[1]), from_oldest_available=True).unreachable == ()


@pytest.mark.case("streams:B5")
def test_of_a_partition_that_holds_nothing_any_more_the_history_is_gone(jobs: Jobs, hours: list[int]) -> None:
    """When its last record was written nobody knows: a time is refused unless the gap is accepted."""
    _truncate(jobs, 1, partition=1)
    asked = instant_text(hours[2])
    error = refused(Refused, lambda: jobs.plan(start=asked))
    assert (error.code, error.found) == ("start_unreachable", "it holds no record; what lay before offset 1 is gone")
    plan = jobs.plan(start=asked, from_oldest_available=True)
    assert (plan.start, len(plan.unreachable)) == ({"events": {0: 4, 1: 1}}, 1)


@pytest.mark.case("streams:B6")
def test_a_compacted_topic_takes_no_time(jobs: Jobs, hours: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What lay between the latest values is gone; these are offered, and are what its oldest record begins."""
    log = jobs.cluster.log
    facts = log.facts

    def compacted(name: str, uid: str) -> TopicFacts:
        return replace(facts(name, uid), compacted=True)

    monkeypatch.setattr(log, "facts", compacted)
    for start in (instant_text(hours[0]), "1h"):
        error = refused(Refused, partial(jobs.plan, start=start, from_oldest_available=True))
        assert (error.code, error.expected) == ("compacted_topic", "--from oldest: the latest value of each key")
    assert jobs.plan(start="oldest").start == {"events": {0: 0, 1: 0}}


@pytest.mark.case("streams:B3")
def test_a_generation_begins_where_another_one_stands(jobs: Jobs, hours: list[int]) -> None:
    """Behind the last recorded batch of one of this job or of another one, before the first at its start."""
    client = jobs.cluster.client
    jobs.running()
    assert jobs.plan(start=f"of={JOB}@1").start == {"events": {0: 0, 1: 0}}
    jobs.record(jobs.take(), {0: 4, 1: 1})
    assert jobs.plan(start=f"of={JOB}@1").start == {"events": {0: 4, 1: 1}}
    client.create_topic(CreateTopic(name="wide", partitions=2, key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA))
    client.create_job(CreateJob(name="other", output="topic:wide", inputs={"events": EVENTS}))
    asked = PlanGeneration(code=a_code(), start=start_of(f"of={JOB}@1"))
    plan = client.plan_generation("other", asked)
    assert (plan.start, plan.begins) == ({"events": {0: 4, 1: 1}}, f"of={JOB}@1")
    assert refused(NotFound, lambda: jobs.plan(start=f"of={JOB}@7")).code == "unknown_generation"
    assert refused(NotFound, lambda: jobs.plan(start="of=nothing@1")).code == "unknown_job"


@pytest.mark.case("streams:B3", "streams:B8")
def test_where_a_reclaimed_generation_stood_is_not_known(jobs: Jobs) -> None:
    """Its batches went with it: its start is not where it stood, and is not given as that."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 5, 1: 0})
    jobs.running(jobs.plan(code=None))
    jobs.record(jobs.take(2), {0: 5, 1: 0}, number=2)
    jobs.cluster.settle(3)
    jobs.cluster.client.cut_over(JOB, CutOver())
    jobs.cluster.client.drop_generation(JOB, DropGeneration(generation=1, force=True))
    jobs.cluster.settle(3)
    assert jobs.view(1).status == "reclaimed"
    asked = partial(jobs.plan, code=None, start=f"of={JOB}@1")
    assert refused(Refused, asked).code == "position_forgotten"
    (shown,) = jobs.cluster.client.checkpoints(JOB, 1).checkpoints
    assert shown.positions == {"events": {}}


def test_positions_mean_nothing_in_another_topic(jobs: Jobs) -> None:
    """Neither under another input's name, nor in a topic that took the name of the one that was read."""
    client = jobs.cluster.client
    jobs.running()
    request = CreateTopic(name="others", partitions=2, key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA)
    client.create_topic(request)
    for name, inputs in {"elsewhere": {"events": "others"}, "renamed": {"flights": EVENTS}}.items():
        client.create_job(CreateJob(name=name, output="topic:classes", inputs=inputs))
        asked = PlanGeneration(code=a_code(), start=start_of(f"of={JOB}@1"))
        error = refused(Refused, partial(client.plan_generation, name, asked))
        assert error.code == "input_changed"


@pytest.mark.case("streams:A3")
def test_offsets_of_a_topic_are_those_of_the_input_that_reads_it(jobs: Jobs, hours: list[int]) -> None:
    """A file of another system names topics; what it does not name begins where its history does."""
    assert jobs.plan(start=AtTopicOffsets(topics={EVENTS: {0: 3}})).start == {"events": {0: 3, 1: 0}}
    error = refused(InvalidRequest, lambda: jobs.plan(start=AtTopicOffsets(topics={"other": {0: 3}})))
    assert (error.code, error.found, error.expected) == ("unknown_input", "other", EVENTS)


@pytest.mark.case("streams:A6")
def test_offsets_are_clamped_where_that_is_asked_for(jobs: Jobs, hours: list[int]) -> None:
    """To the nearest that there is, and the plan says what it changed; a partition that is not there stays wrong."""
    _truncate(jobs, 2)
    for offset in (1, 7):
        error = refused(Refused, partial(jobs.plan, start={"events": {0: offset}}))
        assert error.code == "start_out_of_range"
    low = jobs.plan(start={"events": {0: 1, 1: 1}}, clamp=True)
    assert (low.start, low.why[0]) == (
        {"events": {0: 2, 1: 1}},
        "events, partition 0: starts at 2, its begin, instead of 1",
    )
    assert low.unreachable == ("events, partition 0: the first 2 records are gone",)
    high = jobs.plan(start={"events": {0: 7, 1: 0}}, clamp=True)
    assert (high.start, high.why[0]) == (
        {"events": {0: 6, 1: 0}},
        "events, partition 0: starts at 6, its end, instead of 7",
    )
    assert not any("instead of" in why for why in jobs.plan(start={"events": {0: 4}}, clamp=True).why)
    error = refused(Refused, lambda: jobs.plan(start={"events": {7: 0}}, clamp=True))
    assert error.code == "start_out_of_range"


@pytest.mark.case("streams:N7")
def test_an_offset_beyond_the_end_is_asked_for_again(jobs: Jobs) -> None:
    """An end may move back for a moment: neither refused nor clamped before it had the time to come back."""
    jobs.write(3)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) % 3 == 0:
            jobs.write(1)

    context = replace(jobs.cluster.context, pause=pause)

    def planned(offset: int, **asked: Any) -> Any:
        request = PlanGeneration(code=a_code(), start=start_of({"events": {0: offset}}), **asked)
        return plan_generation(context, jobs.job(), request)

    assert (planned(4).start, len(pauses)) == ({"events": {0: 4, 1: 0}}, 3)
    assert planned(5, clamp=True).start == {"events": {0: 5, 1: 0}}
    assert len(pauses) == 6
    assert refused(Refused, lambda: planned(9)).code == "start_out_of_range"


def test_a_deployment_names_no_start_in_any_way(jobs: Jobs) -> None:
    """Nor is anything clamped of it: it goes on where the live generation ended."""
    jobs.running()
    given: list[dict[str, Any]] = [{"start": "1h"}, {"clamp": True}, {"from_oldest_available": True}]
    for asked in given:
        assert refused(InvalidRequest, partial(jobs.plan, mode="deploy", **asked)).code == "start_given"


@pytest.mark.case("streams:A8")
def test_the_history_says_how_a_start_was_asked_for(jobs: Jobs, hours: list[int]) -> None:
    """With the generation that began there."""
    jobs.begin(jobs.plan(start="2h"))
    (line,) = (line for line in jobs.cluster.context.catalog.history(JOB, 100) if line.what == "begin rewind")
    assert (line.detail["generation"], line.detail["from"]) == (1, f"2h ago, {instant_text(hours[1])}")
