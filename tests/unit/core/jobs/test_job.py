"""Generations of a job: how they begin, run, fail, catch up, take the place of one another, and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anew.core.errors import NotFound, Refused
from anew.core.jobs import job as jobs
from anew.core.jobs.catchup import LOOKS_TO_CATCH_UP
from anew.core.jobs.code import JobCode
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.inputs import JobInput
from anew.core.jobs.job import Job, JobOutput

_CODE = JobCode(module="m", function="f", archive="a", path="p", python="3.11", pyspark="4.2.0")
_INPUT = JobInput(name="events", fabric="dc-0", topic="events", topic_uid="u", partitions=2)


def _generation(number: int, replaces: int | None, **changes: Any) -> Generation:
    values: dict[str, Any] = {
        "number": number,
        "status": GenerationStatus.PLANNED,
        "since_ms": 1,
        "created_at_ms": 1,
        "code": _CODE,
        "inputs": (_INPUT,),
        "start": {"events": {0: 0, 1: 0}},
        "rebuild": f"r-{number}",
        "writes_to": f"dc-0/delays_j{number}#1",
        "replaces": replaces,
    }
    return Generation(**{**values, **changes})


def _job(*generations: Generation, live: int | None = None) -> Job:
    output = JobOutput(kind="store", name="delays", uid="s")
    return Job(
        uid="j",
        name="delay_class",
        fabric="dc-0",
        inputs={"events": "events"},
        output=output,
        generations=generations,
        live=live,
        next_generation=len(generations) + 1,
        created_at_ms=1,
    )


def _refused(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.expected is not None
    return caught.value.code


def _running(live: int | None = 1) -> Job:
    """Generation 1 is live, generation 2 is to take its place; both run."""
    running = {"status": GenerationStatus.RUNNING}
    return _job(_generation(1, None, **running), _generation(2, 1, **running), live=live)


def test_one_generation_at_a_time_is_to_take_the_place_of_the_live_one() -> None:
    """A second one is refused until the first was cut over to, or dropped; a plan that is outdated is refused."""
    first = jobs.with_generation(_job(), _generation(1, None))
    assert (first.next_generation, first.live) == (2, None)
    assert _refused(lambda: jobs.with_generation(first, _generation(2, None))) == "rewind_running"
    assert _refused(lambda: jobs.with_generation(first, _generation(3, None))) == "plan_outdated"
    running = _running()
    assert _refused(lambda: jobs.with_generation(running, _generation(3, 1))) == "rewind_running"
    dropped = jobs.retired(running, 2, 5)
    assert jobs.with_generation(dropped, _generation(3, 1)).in_work == _generation(3, 1)


def test_a_generation_runs_once_its_output_is_there() -> None:
    """Planned → ready → running ⇄ stopped; the same again changes nothing."""
    job = _job(_generation(1, None))
    assert _refused(lambda: jobs.to_run(job, 1, 2)) == "not_ready"
    running = jobs.to_run(jobs.made_ready(job, 1, 2), 1, 3)
    assert running.generation(1).status is GenerationStatus.RUNNING
    assert jobs.to_run(running, 1, 9) == jobs.made_ready(running, 1, 9) == running
    stopped = jobs.to_stop(running, 1, 4)
    assert (stopped.generation(1).status, stopped.generation(1).since_ms) == (GenerationStatus.STOPPED, 4)
    assert jobs.to_stop(stopped, 1, 9) == stopped
    with pytest.raises(NotFound, match="no such generation"):
        jobs.to_run(job, 7, 2)


def test_a_driver_that_ends_is_followed_by_another_after_a_rising_pause() -> None:
    """1, 2, 4 … seconds; a batch that was recorded begins the pauses anew; what does not pass fails for good."""
    job, pauses = _job(_generation(1, None, status=GenerationStatus.RUNNING)), []
    for _ in range(12):
        job = jobs.driver_ended(job, 1, "the log is away", 1_000, for_good=False)
        pauses.append((job.generation(1).retry_at_ms - 1_000) // 1_000)
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert (job.generation(1).status, job.generation(1).error) == (GenerationStatus.RUNNING, "the log is away")
    well = jobs.got_on(job, 1)
    assert (well.generation(1).failures, well.generation(1).error) == (0, None)
    failed = jobs.driver_ended(well, 1, "no such column", 2_000, for_good=True)
    assert failed.generation(1).status is GenerationStatus.FAILED
    assert jobs.driver_ended(failed, 1, "again", 3_000, for_good=False) == failed
    assert jobs.to_run(failed, 1, 4_000).generation(1).error is None


@pytest.mark.case("streams:E7")
def test_a_cut_over_and_back_is_a_change_of_the_live_generation() -> None:
    """It waits until the other one has caught up, or is forced; both go on running; others are refused."""
    job = _running()
    assert _refused(lambda: jobs.cut_over(job, 2, 0, force=False)) == "not_caught_up"
    assert jobs.cut_over(job, 2, LOOKS_TO_CATCH_UP, force=False).live == 2
    over = jobs.cut_over(job, 2, 0, force=True)
    assert over.live == 2
    assert over.generations == job.generations
    assert _refused(lambda: jobs.cut_over(over, 2, 0, force=True)) == "nothing_to_cut_over"
    assert _refused(lambda: jobs.cut_over(over, 1, 0, force=False)) == "not_caught_up"
    back = jobs.cut_over(over, 1, 0, force=True)
    assert back == job
    third = jobs.with_generation(over, _generation(3, 2))
    assert (
        _refused(lambda: jobs.cut_over(third.model_copy(update={"live": 1}), 3, 0, force=True)) == "nothing_to_cut_over"
    )


def test_what_serves_is_not_retired_and_what_is_retired_does_not_run() -> None:
    """The live one stays; the other one is retired, then reclaimed."""
    job = _running()
    assert _refused(lambda: jobs.retired(job, 1, 5)) == "generation_live"
    gone = jobs.retired(job, 2, 5)
    assert _refused(lambda: jobs.to_run(gone, 2, 6)) == "generation_over"
    assert _refused(lambda: jobs.to_stop(gone, 2, 6)) == "generation_over"
    assert _refused(lambda: jobs.cut_over(gone, 2, 0, force=True)) == "generation_over"
    assert jobs.retired(gone, 2, 7) == gone
    assert jobs.reclaimed(gone, 2, 8).generation(2).status is GenerationStatus.RECLAIMED
