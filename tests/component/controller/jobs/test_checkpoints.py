"""Positions of generations, shown and taken as the start of a rewind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anew.api.models import Heartbeat
from anew.core.rebuild import Progress, Stage
from tests.component.controller.jobs.jobs_harness import JOB, Jobs, Ran, Said, offsets


@pytest.mark.case("streams:A1")
def test_positions_are_shown_and_nothing_is_written(jobs: Jobs, ran: Ran) -> None:
    """Per generation and partition: the next offset, the time there, the lag; before the first batch the start."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 3, 1: 0})
    jobs.running(jobs.plan(code=None))
    before = jobs.cluster.context.catalog.revision()
    found = ran("checkpoint", "show", JOB)
    assert jobs.cluster.context.catalog.revision() == before
    first, second = found["checkpoints"]
    now_ms = jobs.cluster.clock()
    assert (first["generation"], first["batch"], first["recorded_at_ms"], first["lag_records"]) == (1, 0, now_ms, 2)
    of = first["positions"]["events"]
    assert of["0"] == {"offset": 3, "time_ms": of["0"]["time_ms"], "lag": 2, "begin": 0, "end": 5}
    assert (of["0"]["time_ms"] is not None, of["1"]["time_ms"]) == (True, None)
    assert (second["generation"], second["batch"], second["positions"]["events"]["0"]["offset"]) == (2, None, 0)
    assert [each["generation"] for each in ran("checkpoint", "show", f"{JOB}@2")["checkpoints"]] == [2]
    assert ran("checkpoint", "show", f"{JOB}@7", code=2)["error"]["code"] == "unknown_generation"


@pytest.mark.case("streams:A2")
def test_what_was_shown_is_the_start_of_a_rewind(jobs: Jobs, ran: Ran, tmp_path: Path) -> None:
    """Verbatim, or edited; beside another start, and of several generations, it is refused."""
    jobs.write(5)
    jobs.running()
    jobs.record(jobs.take(), {0: 3, 1: 0})
    file = tmp_path / "positions.json"
    shown = ran("checkpoint", "show", f"{JOB}@1")
    file.write_text(json.dumps(shown))
    assert offsets(ran("plan", JOB, "--from-file", str(file))) == {"0": 3, "1": 0}
    shown["checkpoints"][0]["positions"]["events"]["0"]["offset"] = 1
    file.write_text(json.dumps(shown))
    assert offsets(ran("plan", JOB, "--from-file", str(file))) == {"0": 1, "1": 0}
    refused = ran("rewind", JOB, "--from-file", str(file), "--from", "oldest", code=2)
    assert refused["error"]["code"] == "bad_option"
    assert ran("plan", JOB, "--from-file", str(tmp_path / "none"), code=2)["error"]["code"] == "no_input"


def test_a_job_is_deleted_when_that_is_confirmed(jobs: Jobs, ran: Ran) -> None:
    """As stores and topics are: with ``--json`` it takes ``--yes``."""
    assert ran("delete", JOB, code=2)["error"]["code"] == "not_confirmed"
    assert ran("delete", JOB, "--yes") == {"deleted": JOB}
    assert jobs.cluster.client.jobs() == []


def test_options_that_would_be_passed_over_are_refused(jobs: Jobs, ran: Ran) -> None:
    """Parameters are frozen with code; a generation that is not there is not watched; nothing served before."""
    assert ran("plan", JOB, "--param", "severe=30", code=2)["error"]["code"] == "bad_option"
    assert ran("watch", f"{JOB}@7", code=2)["error"]["code"] == "unknown_generation"
    jobs.running()
    assert ran("cutback", JOB, code=3)["error"]["code"] == "nothing_to_cut_over"


def test_a_job_is_shown_in_words(jobs: Jobs, said: Said) -> None:
    """Who serves, and what a person waits for who sees it."""
    jobs.write(5)
    assert "none serves yet" in said("show", JOB)
    jobs.running()
    assert "running, no driver now" in said("show", JOB)
    epoch = jobs.take()
    assert "running, Spark starts" in said("show", JOB)
    jobs.record(epoch, {0: 5, 1: 0})
    beat = Heartbeat(epoch=epoch, stage=Stage.BUILD, progress=Progress())
    jobs.cluster.client.heartbeat(jobs.view().rebuild, beat)
    jobs.cluster.settle(3)
    words = said("show", JOB)
    assert ("generation 1 serves" in words, "Spark starts" in words) == (True, False)
    assert "None" not in words
    plan = said("plan", JOB, "--from", "oldest")
    assert jobs.job().generation(1).code.entry in plan
