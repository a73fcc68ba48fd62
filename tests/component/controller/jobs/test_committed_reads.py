"""Reads of a topic that a job writes: what counts is given once, and nothing of a batch that is not recorded yet."""

from __future__ import annotations

import pytest

from anew.api.jobs.requests import OfGeneration
from anew.catalog.change import DropBatches
from anew.client.topicreads import Edge
from anew.controller.engine.commit import commit
from anew.controller.jobs import committed
from anew.core.errors import Refused
from tests.component.controller.harness import refused
from tests.component.controller.jobs.jobs_harness import CLASSES, EVENTS, JOB, Jobs


@pytest.mark.case("streams:C7")
def test_what_dead_attempts_appended_is_left_out(jobs: Jobs) -> None:
    """A plain read gives it; a read of committed records gives each record once, and what no job wrote as it is."""
    jobs.running()
    epoch = jobs.take()
    jobs.append(0, epoch, 7, "dead")
    jobs.append(0, epoch, 8, "a", "b")
    jobs.record(epoch, {0: 0, 1: 0}, attempts=(8,))
    jobs.write_past_us("by hand")
    plain = [record.key for record in jobs.output().read(partition=0)]
    hand = [record.key for record in jobs.output().read() if record.key == "by hand"]
    assert (plain[:3], hand) == (["dead", "a", "b"], ["by hand"])
    everywhere = [record.key for record in jobs.output().read_committed().records]
    assert sorted(everywhere) == ["a", "b", "by hand"]


@pytest.mark.parametrize("generation", [None, 1])
def test_nobody_else_writes_what_a_job_writes(jobs: Jobs, generation: int | None) -> None:
    """Not into a generation's topic, and not into the one that the job names: a rewind would not carry it on."""
    jobs.running()
    topic, by = (jobs.output(), f"{JOB}@1") if generation else (jobs.topic(CLASSES), JOB)
    error = refused(Refused, topic.writer)
    assert (error.code, error.found, topic.view.written_by) == ("topic_in_use", f"written by {by}", by)
    assert jobs.topic(EVENTS).view.written_by is None
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    jobs.cluster.pass_seconds(jobs.cluster.context.limits.lease_seconds + 1)
    jobs.cluster.client.delete_job(JOB)
    assert jobs.topic(CLASSES).view.written_by is None


def test_a_read_tells_when_a_job_says_that_a_record_was_written(jobs: Jobs) -> None:
    """Beside when it was appended, which is later; of a record of which nobody says it there is nothing."""
    jobs.running()
    epoch = jobs.take()
    before_ms = jobs.cluster.clock()
    jobs.append(0, epoch, 1, "a", written_ms=before_ms - 5_000)
    jobs.record(epoch, {0: 0, 1: 0}, attempts=(1,))
    jobs.write_past_us("by hand")
    found = {record.key: record for record in jobs.output().read_committed().records}
    assert {key: record.written_ms for key, record in found.items()} == {"a": before_ms - 5_000, "by hand": None}
    assert all(record.timestamp_ms >= before_ms for record in found.values())


@pytest.mark.case("streams:C7", "streams:N8")
def test_a_read_waits_for_the_record_of_a_batch(jobs: Jobs) -> None:
    """It stops at its first record; a batch that another driver repeats is given once, under the epoch that counts."""
    jobs.running()
    epoch = jobs.take()
    jobs.append(0, epoch, 1, "a")
    jobs.record(epoch, {0: 0, 1: 0}, attempts=(1,))
    jobs.append(1, epoch, 2, "b", "c")
    assert jobs.read() == (["a"], [(1, 1)])
    assert jobs.read(start=1) == ([], [(1, 1)])
    jobs.cluster.pass_seconds(11)
    jobs.cluster.settle(3)
    jobs.cluster.pass_seconds(2)
    jobs.cluster.round()
    later = jobs.take(driver="two")
    jobs.append(1, later, 2, "b", "c")
    assert jobs.read() == (["a"], [(1, 1)])
    jobs.record(later, {0: 0, 1: 0}, attempts=(2,))
    # What stood still wakes up: nothing of it counts.
    jobs.append(1, epoch, 3, "b", "c")
    assert refused(Refused, lambda: jobs.record(epoch, {0: 0, 1: 0}, attempts=(3,))).code == "epoch_outdated"
    assert jobs.read() == (["a", "b", "c"], [])
    assert jobs.read(limit=2) == (["a", "b"], [])


def test_a_read_goes_on_where_the_last_one_ended(jobs: Jobs) -> None:
    """Behind the last record that was given; the newest ones are those that count, however many others lie behind."""
    jobs.running()
    epoch = jobs.take()
    jobs.append(0, epoch, 1, "a", "b", "c")
    jobs.record(epoch, {0: 0, 1: 0}, attempts=(1,))
    jobs.append(0, epoch, 2, *(f"dead-{number}" for number in range(20)))
    first = jobs.output().read_committed(partition=0, limit=2)
    assert first.following == {0: 2}
    rest = jobs.output().read_committed(first.following[0], partition=0)
    assert ([record.key for record in rest.records], rest.following) == (["c"], {0: 23})
    assert jobs.read(start=Edge.NEWEST, limit=2) == (["b", "c"], [])


def test_what_is_not_known_any_more_is_refused(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of old batches are forgotten: a read names the first one that is kept, and begins behind it."""
    monkeypatch.setattr(committed, "MOST_COUNTED", 2)
    jobs.running()
    epoch = jobs.take()
    for batch in range(6):
        jobs.append(batch, epoch, 1, f"k{batch}")
        jobs.record(epoch, {0: 0, 1: 0}, attempts=(1,))
    assert jobs.read()[0] == [f"k{batch}" for batch in range(6)]
    context = jobs.cluster.context
    commit(context, context.operation("forget", JOB, "test"), DropBatches(jobs.job().uid, 1, 2))
    error = refused(Refused, jobs.read)
    assert (error.code, error.found, error.expected) == ("batch_forgotten", "batch 0", "batch 2 or a later one")
    assert jobs.read(start=2)[0] == [f"k{batch}" for batch in range(2, 6)]


def test_the_topic_of_a_deleted_job_is_read_as_before(jobs: Jobs) -> None:
    """Its last generation's topic stays, and with it what counts in it; nobody waits for a batch that never comes."""
    jobs.running()
    epoch = jobs.take()
    jobs.append(0, epoch, 1, "a")
    jobs.record(epoch, {0: 0, 1: 0}, attempts=(1,))
    jobs.append(1, epoch, 2, "begun")
    jobs.append(0, epoch, 3, "dead")
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    assert jobs.job().live == 1
    uid = jobs.job().uid
    jobs.append(0, epoch, 3, "dead")
    jobs.cluster.client.delete_job(JOB)
    jobs.cluster.settle(2)
    jobs.cluster.pass_seconds(700)
    jobs.cluster.settle(2)
    assert jobs.cluster.context.catalog.job(JOB) is None
    read = jobs.output().read_committed(partition=0)
    assert ([record.key for record in read.records], read.waiting) == (["a"], ())
    jobs.cluster.client.delete_topic("classes_g1")
    assert jobs.cluster.context.catalog.batches(uid, 1, 5) == []
