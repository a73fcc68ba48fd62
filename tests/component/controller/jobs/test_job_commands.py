"""What people see of differences, of rewinds in place, and of cut-overs that are planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.api.jobs.requests import OfGeneration
from anew.cli.main import run_command
from anew.core.jobs.code import Shape
from anew.runtime import jobs as of_jobs
from anew.testing.job_builders import a_code
from tests.component.controller.jobs.jobs_harness import JOB, Jobs, Ran, Said


def test_differences_and_their_ways_are_shown(jobs: Jobs, said: Said) -> None:
    """A line for each change, and one for each way."""
    jobs.running(jobs.plan(code=a_code(shape=Shape(rows=True, key=True, time=True))))
    words = said("diff", JOB, "--max-records", "50")
    assert [word in words for word in ("generation 1 serves", "max_records", "100000", "50")] == [True] * 4
    assert "deploy: once the live generation is stopped: --stop" in words
    assert "parallel: it runs beside generation 1" in words


def test_a_cut_over_is_planned_and_taken_back(jobs: Jobs, said: Said, ran: Ran) -> None:
    """What is to happen is shown with the job; a time needs its zone, and one thing is done at once."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 5, 1: 0})
    jobs.running(jobs.plan(code=None))
    assert ran("cutover", JOB, "--at", "2100-01-01T00:00", code=2)["error"]["code"] == "bad_option"
    assert ran("cutover", JOB, "--when-caught-up", "--force", code=2)["error"]["code"] == "contradiction"
    assert "will serve once it has caught up, not before 2100-01-01T00:00:00.000Z" in said(
        "cutover", JOB, "--at", "2100-01-01T00:00Z"
    )
    assert "will serve once it has caught up" in said("show", JOB)
    assert ran("cutover", JOB, "--cancel")["planned_cut"] is None
    assert ran("cutover", JOB, "--when-caught-up")["planned"]["generation"] == 2


def test_what_changes_nothing_says_so(jobs: Jobs, said: Said, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody is to believe that something was called off, or went, or stopped, that was not there or goes on."""

    def told(*arguments: str) -> str:
        assert said("list")
        assert run_command(["job", *arguments]) == 0
        return capsys.readouterr().err

    jobs.running()
    jobs.running(jobs.plan(code=None))
    assert "no cut-over was planned" in told("cutover", JOB, "--cancel")
    assert told("cutover", JOB, "--when-caught-up") == told("cutover", JOB, "--cancel") == ""
    assert f"{JOB}@2 runs on" in told("stop", JOB)
    assert told("reclaim", f"{JOB}@2") == ""
    assert f"{JOB}@2 is retired already" in told("reclaim", f"{JOB}@2")


def test_what_was_stopped_for_nothing_runs_again(jobs: Jobs, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment that is refused once the live generation has stopped leaves the job as it was."""
    jobs.write(5)
    jobs.running()
    epoch = jobs.take()
    jobs.record(epoch, {0: 3, 1: 0})
    jobs.running(jobs.plan(code=None))
    jobs.cluster.deep.put(jobs.job().generation(1).code.path, b"code")

    def wait(_seconds: float) -> None:
        if jobs.view().driver:
            jobs.end(epoch)
        jobs.cluster.round()

    monkeypatch.setattr(of_jobs, "wait_seconds", wait)
    assert ran("deploy", JOB, "--stop", code=3)["error"]["code"] == "rewind_running"
    assert (jobs.view().status, jobs.job().live) == ("running", 1)


def test_a_rewind_in_place_needs_what_is_stopped_and_runs_the_plan_of_a_dry_run(
    jobs: Jobs, said: Said, ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan that was printed is the one that is run; why is in the history."""
    jobs.write(5)
    jobs.running()
    epoch = jobs.take()
    jobs.record(epoch, {0: 5, 1: 0})
    jobs.cluster.deep.put(jobs.job().generation(1).code.path, b"code")
    assert ran("rewind", JOB, "--simple", "--parallel", code=2)["error"]["code"] == "contradiction"
    assert ran("rewind", JOB, "--stop", code=2)["error"]["code"] == "contradiction"
    assert ran("plan", JOB, "--state", "at-batch=1", code=2)["error"]["code"] == "bad_state"
    assert ran("rewind", JOB, "--simple", code=3)["error"]["code"] == "generation_runs"
    plan = ran("plan", JOB, "--simple", "--from", "oldest")
    assert (plan["mode"], plan["replaces"], plan["start"]["events"]["0"]["offset"]) == ("simple", 1, 0)
    jobs.cluster.client.stop_job(JOB, OfGeneration())
    jobs.end(epoch)
    path = tmp_path / "plan.json"
    path.write_text(said("rewind", JOB, "--simple", "--dry-run", "--json"))
    assert ran("rewind", JOB, "--plan", str(path), "--simple", code=2)["error"]["code"] == "contradiction"
    monkeypatch.setattr(of_jobs, "wait_seconds", lambda _seconds: jobs.cluster.round())
    assert ran("rewind", JOB, "--plan", str(path), "--why", "fifteen is not severe", code=0)["live"] == 2
    assert [line.detail["why"] for line in jobs.cluster.client.history() if "why" in line.detail] == [
        "fifteen is not severe"
    ]
