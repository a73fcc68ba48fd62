"""Where a generation begins: every partition, resolved against the real log when it is planned."""

from __future__ import annotations

from typing import Any

import pytest

from anew.api.jobs.requests import CreateJob
from anew.core.errors import AnewError, InvalidRequest, NotFound, Refused
from anew.log.interface import TopicPartition
from tests.component.controller.harness import refused
from tests.component.controller.jobs.jobs_harness import CLASSES, EVENTS, JOB, Jobs


@pytest.mark.case("streams:B1", "streams:B7")
def test_a_start_names_every_partition(jobs: Jobs) -> None:
    """Without a start the input's default; oldest and newest are offsets of each partition, also of quiet ones."""
    jobs.write(5)
    assert jobs.plan().start == jobs.plan(start="oldest").start == {"events": {0: 0, 1: 0}}
    newest = jobs.plan(start="newest")
    assert (newest.start, newest.is_whole, newest.estimate.records) == ({"events": {0: 5, 1: 0}}, False, 0)
    assert (jobs.plan().is_whole, jobs.plan().estimate.records) == (True, 5)


@pytest.mark.case("streams:A4")
def test_a_start_that_names_some_partitions_moves_these(jobs: Jobs) -> None:
    """The others begin where their history does; the plan shows all."""
    jobs.write(5)
    jobs.write(3, partition=1)
    assert jobs.plan(start={"events": {0: 2}}).start == {"events": {0: 2, 1: 0}}


@pytest.mark.case("streams:A6")
@pytest.mark.parametrize(
    ("start", "code"),
    [
        ({"events": {0: 6}}, "start_out_of_range"),
        ({"events": {7: 0}}, "start_out_of_range"),
        ({"other": {0: 0}}, "unknown_input"),
    ],
)
def test_what_the_log_does_not_hold_is_refused(jobs: Jobs, start: dict[str, Any], code: str) -> None:
    """Beyond the end, a partition or an input that is not there: nothing is made."""
    jobs.write(5)
    with pytest.raises(AnewError) as caught:
        jobs.plan(start=start)
    assert caught.value.code == code
    assert jobs.job().generations == ()


def test_history_that_is_gone_is_shown(jobs: Jobs) -> None:
    """The oldest record that there is, how many are gone before it, and that this is not the whole history."""
    jobs.write(5)
    topic = jobs.cluster.client.topic(EVENTS)
    jobs.cluster.log.truncate_below(TopicPartition(EVENTS, topic.topic_uid, 0), 2)
    plan = jobs.plan()
    assert plan.start == {"events": {0: 2, 1: 0}}
    assert plan.unreachable == ("events, partition 0: the first 2 records are gone",)
    assert not plan.is_whole
    error = refused(Refused, lambda: jobs.plan(start={"events": {0: 1}}))
    assert (error.code, error.expected) == ("start_out_of_range", "an offset in [2, 5]")


def test_a_job_names_what_is_there(jobs: Jobs) -> None:
    """An unknown topic, an output that is none, no input, a taken name: refused with what is known."""
    client = jobs.cluster.client

    def create(**changes: Any) -> None:
        values = {"name": "other", "output": f"topic:{CLASSES}", "inputs": {"events": EVENTS}, **changes}
        client.create_job(CreateJob(**values))

    assert refused(NotFound, lambda: create(inputs={"e": "event"})).hint == "did you mean events?"
    assert refused(NotFound, lambda: create(output="topic:class")).code == "unknown_topic"
    assert refused(InvalidRequest, lambda: create(output="classes")).code == "bad_output"
    assert refused(InvalidRequest, lambda: create(output="file:x")).code == "unknown_output"
    assert refused(InvalidRequest, lambda: create(inputs={})).code == "no_inputs"
    assert refused(InvalidRequest, lambda: create(name="Not Good")).code == "bad_name"
    assert refused(Refused, lambda: create(name=JOB, inputs={"others": EVENTS})).code == "job_exists"
    assert jobs.create().name == JOB
    assert [job.name for job in client.jobs()] == [JOB]
    no_code = refused(InvalidRequest, lambda: jobs.plan(code=None))
    assert no_code.code == "no_code"


def test_a_submission_that_ended_on_the_way_is_made_again(jobs: Jobs) -> None:
    """Whoever submits may be killed while the function is tried: the job has no generation, and takes the next one."""
    asked = CreateJob(name=JOB, output=f"topic:{CLASSES}", inputs={"events": EVENTS}, request_id="again")
    before = jobs.job()
    assert jobs.cluster.client.create_job(asked).name == JOB
    assert jobs.job() == before
    jobs.running()
    error = refused(Refused, lambda: jobs.cluster.client.create_job(asked))
    assert (error.code, error.expected) == ("job_exists", "a name that is not taken")


@pytest.mark.parametrize("name", ["a-b", "1", "class", "files"])
def test_an_input_has_a_name_that_a_parameter_can_have(jobs: Jobs, name: str) -> None:
    """The function takes its frame under this name."""
    asked = CreateJob(name="other", output=f"topic:{CLASSES}", inputs={name: EVENTS})
    assert refused(InvalidRequest, lambda: jobs.cluster.client.create_job(asked)).code == "bad_input"
