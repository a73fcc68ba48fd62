"""Partitions that are added to the input of a job: shown, counted, gone on at, and never passed over (case B7)."""

from __future__ import annotations

import pytest

from anew.api.jobs.requests import CutOver, OfGeneration
from anew.controller.jobs.checkpoints import checkpoints_of
from anew.core.errors import Refused
from anew.log.interface import TopicPartition
from tests.component.controller.harness import refused
from tests.component.controller.jobs.jobs_harness import EVENTS, JOB, Jobs


def _grow(jobs: Jobs, partitions: int) -> TopicPartition:
    """An operator of the log adds partitions to the input; the last of them."""
    topic = jobs.cluster.client.topic(EVENTS)
    jobs.cluster.log.add_partitions(EVENTS, topic.topic_uid, partitions)
    return TopicPartition(EVENTS, topic.topic_uid, partitions - 1)


@pytest.mark.case("streams:B7", "streams:A1")
def test_an_added_partition_is_shown_at_its_beginning(jobs: Jobs) -> None:
    """Before a batch names it: position 0, its records are lag, in the job and in its checkpoint; then as recorded."""
    jobs.write(5)
    jobs.running()
    epoch = jobs.take()
    jobs.record(epoch, {0: 5, 1: 0})
    _grow(jobs, 3)
    jobs.write(4, partition=2)
    view = jobs.view()
    assert (view.positions, view.lag_records, view.start) == (
        {"events": {0: 5, 1: 0, 2: 0}},
        4,
        {"events": {0: 0, 1: 0}},
    )
    (shown,) = checkpoints_of(jobs.cluster.context, jobs.job(), 1).checkpoints
    of = shown.positions["events"][2]
    assert (of.offset, of.lag, of.begin, of.end, shown.lag_records) == (0, 4, 0, 4, 4)
    assert of.time_ms is not None
    jobs.cluster.pass_seconds(2)
    jobs.record(epoch, {0: 5, 1: 0, 2: 4})
    view = jobs.view()
    assert (view.positions, view.lag_records, view.read) == ({"events": {0: 5, 1: 0, 2: 4}}, 0, 9)
    assert view.records_per_s == 2.0


@pytest.mark.case("streams:E3")
def test_a_partition_that_was_added_meanwhile_counts_for_catching_up(jobs: Jobs) -> None:
    """A generation that has read none of it is not there, however few records it has."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 5, 1: 0})
    jobs.running(jobs.plan(code=None))
    second = jobs.take(2)
    jobs.record(second, {0: 5, 1: 0}, number=2)
    jobs.cluster.settle(3)
    assert jobs.view(2).caught_up
    _grow(jobs, 3)
    jobs.write(1, partition=2)
    jobs.cluster.round()
    assert not jobs.view(2).caught_up
    cut = refused(Refused, lambda: jobs.cluster.client.cut_over(JOB, CutOver()))
    assert cut.code == "not_caught_up"
    jobs.record(second, {0: 5, 1: 0, 2: 1}, number=2)
    jobs.cluster.settle(3)
    assert jobs.view(2).caught_up
    jobs.cluster.client.cut_over(JOB, CutOver())


@pytest.mark.case("streams:B7")
def test_a_plan_names_every_partition_that_there_is(jobs: Jobs) -> None:
    """Also one that the catalog does not know; one that is added after planning makes the plan an old one."""
    jobs.write(5)
    _grow(jobs, 3)
    jobs.write(2, partition=2)
    plan = jobs.plan(start="newest")
    assert plan.start == {"events": {0: 5, 1: 0, 2: 2}}
    assert jobs.plan().estimate.records == 7
    assert jobs.plan(start="1h").start == {"events": {0: 0, 1: 0, 2: 0}}
    _grow(jobs, 4)
    assert refused(Refused, lambda: jobs.begin(plan)).code == "start_incomplete"
    assert jobs.plan(start="newest").start == {"events": {0: 5, 1: 0, 2: 2, 3: 0}}


@pytest.mark.case("streams:B7", "streams:F1")
def test_a_deployment_begins_an_added_partition_at_its_beginning(jobs: Jobs) -> None:
    """It goes on at 0 there, and is refused where retention took the first records: none is passed over."""
    jobs.write(5)
    jobs.running()
    epoch = jobs.take()
    jobs.record(epoch, {0: 3, 1: 0})
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    jobs.end(epoch)
    at = _grow(jobs, 3)
    jobs.write(4, partition=2)
    plan = jobs.plan(mode="deploy", code=None)
    assert (plan.start, plan.estimate.records) == ({"events": {0: 3, 1: 0, 2: 0}}, 6)
    jobs.cluster.log.truncate_below(at, 1)
    for act in (lambda: jobs.begin(plan), lambda: jobs.plan(mode="deploy", code=None)):
        assert refused(Refused, act).code == "start_out_of_range"
