"""Records that generations left out: declared, counted, limited, listed with what the log holds, and replayed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from anew.api.jobs.requests import CreateJob, PlanGeneration, RecordBatch, ReplayDeadLetters, RunGeneration
from anew.api.models import BeginRebuild, ResumeRebuild
from anew.api.rebuilds import JobStart
from anew.api.topics import CreateTopic
from anew.cli.jobs import commands, deadletters
from anew.cli.main import run_command
from anew.client.topics import Topic
from anew.controller.jobs.deadletters import replay
from anew.core.errors import Failed, InvalidRequest, Refused
from anew.core.jobs.deadletters import DeadLetter
from anew.log.embedded import EmbeddedLog
from anew.log.interface import RAW_APPEND, Log, TopicPartition
from anew.runtime.jobs import JobHandle
from anew.testing.job_builders import a_batch, a_code
from tests.component.controller.harness import refused
from tests.component.controller.jobs.jobs_harness import EVENTS, JOB, Jobs

pytestmark = pytest.mark.case("streams:N10")

Ran = Callable[..., Any]


def _letters(*offsets: int) -> tuple[DeadLetter, ...]:
    return tuple(DeadLetter(input="events", partition=0, offset=o, reason=f"ValueError: {o}") for o in offsets)


def _skipping(jobs: Jobs, limit: int = 3) -> int:
    """A generation that leaves records out, with a driver; its epoch."""
    number = jobs.running(jobs.plan(on_bad_record="skip", dead_letter_limit=limit))
    return jobs.take(number)


def _handle(jobs: Jobs) -> JobHandle:
    def open_log(fabric: str) -> Log:
        directory = Path(jobs.cluster.context.fabrics[fabric].log_location.address)
        return EmbeddedLog(directory, clock=jobs.cluster.clock, durable=False)

    client = jobs.cluster.client
    return JobHandle(client, JOB, "test", lambda name: Topic(client, name, open_log))


@pytest.fixture
def ran(jobs: Jobs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    """Runs ``anew job …`` against this cluster; what it prints, after the exit code was checked."""

    @contextmanager
    def connected() -> Iterator[Any]:
        yield SimpleNamespace(controller=jobs.cluster.client, job=lambda _name: _handle(jobs))

    for module in (commands, deadletters):
        monkeypatch.setattr(module, "cluster", connected)

    def run(*arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert run_command(["job", *arguments]) == code
        said = capsys.readouterr()
        return json.loads(said.out) if "--json" in arguments else said.out

    return run


def test_what_a_bad_record_does_is_declared_and_frozen_with_a_generation(jobs: Jobs) -> None:
    """It is in the plan with its reason, in the generation and in its view; by default such a record stops it."""
    plan = jobs.plan(on_bad_record="skip", dead_letter_limit=7)
    assert (plan.on_bad_record, plan.dead_letter_limit) == ("skip", 7)
    assert "a record on which it fails is left out as a dead letter, at most 7 of them" in plan.why
    jobs.begin(plan)
    view = jobs.view()
    assert (view.on_bad_record, view.dead_letter_limit, view.dead_letters) == ("skip", 7, 0)
    assert (jobs.plan().on_bad_record, "a record on which it fails stops it" in jobs.plan().why) == ("stop", True)
    assert jobs.plan().id != plan.id


def test_dead_letters_are_counted_and_what_was_read_adds_up(jobs: Jobs) -> None:
    """Rows read are those that the function got and the dead letters; both outlive the records of their batches."""
    jobs.write(5)
    epoch = _skipping(jobs)
    jobs.record(epoch, {0: 5, 1: 0}, rows=3, letters=_letters(1, 4))
    view = jobs.view()
    assert (view.read, view.dead_letters, view.rows) == (5, 2, 3)
    found = jobs.cluster.client.job_dead_letters(JOB, None, 10)
    assert [(each.offset, each.reason, each.batch, each.topic) for each in found] == [
        (1, "ValueError: 1", 0, EVENTS),
        (4, "ValueError: 4", 0, EVENTS),
    ]
    assert [each.offset for each in jobs.cluster.client.job_dead_letters(JOB, 1, 1)] == [1]


def test_more_than_the_limit_are_not_recorded(jobs: Jobs) -> None:
    """Nor is any of a generation that stops at the first one, whatever its driver says."""
    jobs.write(9)
    epoch = _skipping(jobs, limit=2)
    jobs.record(epoch, {0: 3, 1: 0}, letters=_letters(0, 1))
    error = refused(Failed, lambda: jobs.record(epoch, {0: 9, 1: 0}, letters=_letters(5)))
    assert (error.code, "at most 2" in str(error.expected)) == ("too_many_dead_letters", True)
    assert (jobs.view().batch, jobs.view().dead_letters) == (0, 2)
    number = jobs.running(jobs.plan(code=None))
    other = jobs.take(number)
    error = refused(Failed, lambda: jobs.record(other, {0: 9, 1: 0}, number=number, letters=_letters(5)))
    assert error.code == "record_failed"


def test_limits_and_pages_have_bounds(jobs: Jobs) -> None:
    """A limit of none, or of more than a record of a batch may name, and a key that is none are refused."""
    for limit in (0, 1_001):
        with pytest.raises(ValueError, match="dead_letter_limit"):
            PlanGeneration(dead_letter_limit=limit)
    _skipping(jobs)
    for key in ("x", "1:events:0", "1:events:0:x", f"1:events:0:{10**19}"):
        request = ReplayDeadLetters(generation=1, after=key)
        error = refused(InvalidRequest, partial(jobs.cluster.client.replay_dead_letters, JOB, request))
        assert error.code == "bad_page_key"


def test_they_are_listed_with_the_records_that_the_log_still_has(jobs: Jobs, ran: Ran) -> None:
    """Key and value as the topic's format has them; what retention took is not shown, and nor is it an error."""
    jobs.write(5)
    jobs.record(_skipping(jobs), {0: 5, 1: 0}, letters=_letters(1, 4))
    topic = jobs.cluster.client.topic(EVENTS)
    jobs.cluster.log.truncate_below(TopicPartition(EVENTS, topic.topic_uid, 0), 3)
    first, second = ran("dead-letters", JOB, "--json")
    assert (first["offset"], first["reason"], first["record"]) == (1, "ValueError: 1", None)
    assert (second["offset"], second["record"]["key"], second["record"]["value"]) == (4, "k", {"text": "v"})
    lines = ran("dead-letters", f"{JOB}@1", "--limit", "1").splitlines()
    assert lines[0].split("\t")[:5] == ["generation", "input", "partition", "offset", "reason"]
    assert [line.split("\t")[3] for line in lines[1:]] == ["1"]
    assert f"2 dead letters of 3: anew job dead-letters {JOB}@1" in ran("show", JOB)
    assert ran("dead-letters", JOB, "--as-new", "--json", code=2)["error"]["code"] == "bad_option"
    assert ran("plan", JOB, "--on-bad-record", "drop", "--json", code=2)["error"]["code"] == "bad_option"


def test_a_replay_appends_each_record_once_with_its_key_and_time(jobs: Jobs, ran: Ran) -> None:
    """At the end of its partition; its time is that of its writing, so that it loses against what is younger.

    Records behind the first one have its key and its time, so that they are younger than it.
    """
    jobs.write(5)
    jobs.record(_skipping(jobs), {0: 5, 1: 0}, letters=_letters(1, 4))
    topic = jobs.cluster.client.topic(EVENTS)
    at = TopicPartition(EVENTS, topic.topic_uid, 0, topic.key_schema_id or 0)
    before = jobs.cluster.log.read(at, 0, 9).records.to_pylist()
    jobs.cluster.pass_seconds(60)
    assert ran("dead-letters", JOB, "--replay", "--json") == {
        "job": JOB,
        "generation": 1,
        "replayed": 2,
        "gone": 0,
        "unreadable": 0,
    }
    rows = jobs.cluster.log.read(at, 5, 9).records.to_pylist()
    for row, old, less in zip(rows, (before[1], before[4]), (1, 0), strict=True):
        assert (row["key"], row["value"], row["schema_id"]) == (old["key"], old["value"], old["schema_id"])
        assert row["written_ms"] == old["appended_ms"] - less < row["appended_ms"]
    assert [each["replayed_at_ms"] for each in ran("dead-letters", JOB, "--json")] == [jobs.cluster.clock()] * 2
    assert "0 records" in ran("dead-letters", f"{JOB}@1", "--replay")
    assert jobs.cluster.log.offsets(at).end == 7
    assert ran("dead-letters", JOB, "--replay", "--json", code=3)["error"]["code"] == "which_generation"
    (line,) = [e for e in jobs.cluster.client.history(None, 50) if e.what == "replay dead letters"]
    assert line.detail == {"generation": 1, "records": 2}


def test_a_crash_between_append_and_note_replays_again(jobs: Jobs) -> None:
    """At least once: what comes again has the same key, and loses against its first copy."""
    jobs.write(2)
    jobs.record(_skipping(jobs), {0: 2, 1: 0}, letters=_letters(1))
    context = jobs.cluster.context

    class Died(Exception):
        """The controller dies."""

    class Dying:
        """A catalog that takes no commit."""

        def __getattr__(self, name: str) -> Any:
            if name == "commit":
                raise Died
            return getattr(context.catalog, name)

    dying: Any = Dying()
    with pytest.raises(Died):
        replay(replace(context, catalog=dying), jobs.job(), ReplayDeadLetters(generation=1), "test")
    assert _handle(jobs).replay(1).replayed == 1
    topic = jobs.cluster.client.topic(EVENTS)
    at = TopicPartition(EVENTS, topic.topic_uid, 0, topic.key_schema_id or 0)
    rows = jobs.cluster.log.read(at, 2, 9).records.to_pylist()
    assert len(rows) == 2
    assert rows[0]["written_ms"] == rows[1]["written_ms"] + 1


def test_what_is_gone_is_told_and_what_no_format_has_is_not_given_again(jobs: Jobs) -> None:
    """Expired records are counted as gone, those that are not of the topic's format as unreadable."""
    jobs.write(2)
    topic = jobs.cluster.client.topic(EVENTS)
    at = TopicPartition(EVENTS, topic.topic_uid, 0, topic.key_schema_id or 0)
    raw: list[Any] = [pa.array([b"k"]), pa.array([b"v"]), pa.nulls(1, pa.int64())]
    jobs.cluster.log.append_raw(at, pa.RecordBatch.from_arrays(raw, schema=RAW_APPEND))
    jobs.record(_skipping(jobs), {0: 3, 1: 0}, letters=_letters(0, 1, 2))
    jobs.cluster.log.truncate_below(at, 1)
    done = _handle(jobs).replay()
    assert (done.replayed, done.gone, done.unreadable) == (1, 1, 1)


def test_records_without_a_time_are_replayed_as_new_ones_alone(jobs: Jobs) -> None:
    """Of a JSON topic the log's time counts: replayed they would win, which has to be said."""
    client = jobs.cluster.client
    client.create_topic(CreateTopic(name="plain", partitions=1, columns="n INT"))
    client.create_job(CreateJob(name="other", output="topic:classes", inputs={"plain": "plain"}))
    plan = client.plan_generation("other", PlanGeneration(code=a_code(), on_bad_record="skip"))
    begun = client.begin_rebuild(BeginRebuild(plan=plan, request_id="other", driver=""), JobStart).rebuild
    jobs.cluster.round()
    client.run_job("other", RunGeneration(generation=1))
    epoch = client.resume_rebuild(begun.id, ResumeRebuild(driver="one"), JobStart).rebuild.epoch
    topic = client.topic("plain")
    at = TopicPartition("plain", topic.topic_uid, 0)
    raw: list[Any] = [pa.array([b"k", b"k"]), pa.array([b'{"n": "many"}', b"{nope"]), pa.nulls(2, pa.int64())]
    jobs.cluster.log.append_raw(at, pa.RecordBatch.from_arrays(raw, schema=RAW_APPEND))
    letters = tuple(DeadLetter(input="plain", partition=0, offset=offset, reason="no INT") for offset in (0, 1))
    ends = {"start": {"plain": {0: 0}}, "end": {"plain": {0: 2}}}
    record = a_batch(0, epoch, **ends, dead_letters=letters, dead_total=2)
    client.record_batch(begun.id, RecordBatch(epoch=epoch, record=record))
    error = refused(Refused, lambda: client.replay_dead_letters("other", ReplayDeadLetters(generation=1)))
    assert (error.code, error.found, "--as-new" in str(error.hint)) == ("replay_would_win", "plain", True)
    assert jobs.cluster.log.offsets(at).end == 2
    done = client.replay_dead_letters("other", ReplayDeadLetters(generation=1, as_new=True))
    assert (done.replayed, done.unreadable) == (1, 1), "what is no JSON would be a dead letter again"
    (row,) = jobs.cluster.log.read_raw(at, 2, 9).records.to_pylist()
    assert (row["key"], row["value"]) == (b"k", b'{"n": "many"}')


def test_letters_of_an_input_whose_name_is_not_english_have_pages(jobs: Jobs) -> None:
    """What is a name in Python may have any letters."""
    jobs.write(1)
    jobs.record(_skipping(jobs), {0: 1, 1: 0}, letters=_letters(0))
    request = ReplayDeadLetters(generation=1, after="1:flüge:0:3")
    assert jobs.cluster.client.replay_dead_letters(JOB, request).replayed == 0
