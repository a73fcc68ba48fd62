"""Starts on the command line: files of positions, times, what is clamped; undo, and a deployment that stops first."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.cli.main import run_command
from anew.core.jobs.plan import JobPlan
from anew.core.moment import instant_text
from anew.runtime import jobs as of_jobs
from tests.component.controller.jobs.jobs_harness import JOB, Jobs, Ran, offsets


@pytest.mark.case("streams:A2", "streams:A3")
def test_the_form_of_the_checkpoint_tool_is_printed_and_read(
    jobs: Jobs, ran: Ran, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By last processed offsets, which come back as the next ones; of one generation, in one form."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 3, 1: 0})
    capsys.readouterr()
    assert run_command(["job", "checkpoint", "show", f"{JOB}@1", "--format", "properties"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[1:] == [
        "tasknames.Partition\\ 0.systems.anew.streams.events.partitions.0=2",
        "tasknames.Partition\\ 1.systems.anew.streams.events.partitions.1=-1",
    ]
    file = tmp_path / "positions.properties"
    file.write_text(shown)
    assert offsets(ran("plan", JOB, "--from-file", str(file))) == {"0": 3, "1": 0}
    file.write_text(shown + "offset=4\n")
    error = ran("plan", JOB, "--from-file", str(file), code=2)["error"]
    assert (error["code"], error["found"]) == ("bad_positions", "line 4: offset=4")
    assert ran("checkpoint", "show", JOB, "--format", "properties", code=2)["error"]["code"] == "bad_option"
    assert run_command(["job", "checkpoint", "show", JOB, "--format", "xml"]) == 2
    jobs.begin(jobs.plan(code=None))
    assert run_command(["job", "checkpoint", "show", JOB, "--format", "properties"]) == 2
    assert "which_generation" in capsys.readouterr().err


@pytest.mark.case("streams:B3", "streams:A6", "streams:A9")
def test_starts_and_undo_on_the_command_line(jobs: Jobs, ran: Ran) -> None:
    """A plan prints the offset and the time of each partition, and is read again as the same plan."""
    begun_ms = jobs.cluster.clock()
    jobs.write(2)
    jobs.cluster.pass_seconds(3_600)
    jobs.write(3)
    jobs.running()
    plan = ran("plan", JOB, "--from", "30m")
    assert plan["start"] == {
        "events": {"0": {"offset": 2, "time": instant_text(begun_ms + 3_600_000)}, "1": {"offset": 0, "time": None}}
    }
    read = JobPlan.model_validate(plan)
    assert (read.start, read.value_id()) == ({"events": {0: 2, 1: 0}}, plan["id"])
    assert read.shown() | {"asked": None} == plan | {"asked": None}
    assert ran("plan", JOB, "--from", "2025-06-15T12:00", code=2)["error"]["code"] == "bad_start"
    assert ran("plan", JOB, "--from", "events:0=9", code=3)["error"]["code"] == "start_out_of_range"
    assert offsets(ran("plan", JOB, "--from", "events:0=9", "--clamp")) == {"0": 5, "1": 0}
    assert ran("undo", JOB, code=3)["error"]["code"] == "nothing_to_undo"
    jobs.begin(jobs.plan(code=None))
    assert ran("undo", JOB) == {"job": JOB, "how": "dropped", "undone": 2, "live": 1}


@pytest.mark.case("streams:A5")
def test_a_deployment_stops_what_runs_first_where_that_is_said(
    jobs: Jobs, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, it is refused and the driver hears nothing; with it, it goes on behind the driver's last batch."""
    jobs.write(5)
    jobs.running()
    epoch = jobs.take()
    jobs.record(epoch, {0: 3, 1: 0})
    jobs.cluster.deep.put("jobs/aa.zip", b"code")
    assert ran("deploy", JOB, code=3)["error"]["code"] == "generation_runs"
    assert jobs.beat(epoch) == (False, False)

    def wait(_seconds: float) -> None:
        if jobs.view().driver:
            assert jobs.beat(epoch) == (False, True)
            jobs.record(epoch, {0: 4, 1: 0})
            jobs.end(epoch)
        jobs.cluster.round()

    monkeypatch.setattr(of_jobs, "wait_seconds", wait)
    view = ran("deploy", JOB, "--stop")
    assert (view["live"], [each["status"] for each in view["generations"]]) == (2, ["retired", "running"])
    assert view["generations"][1]["start"] == {"events": {"0": 4, "1": 0}}
