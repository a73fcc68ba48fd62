"""Push, write, repush, roll back and swap through the command line, on a real cluster."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.commands import Anew, wait_until


def _current(anew: Anew, store: str) -> int:
    number: int = anew.here("store", "show", store)["fabrics"]["dc-0"]["current"]
    return number


def _status(anew: Anew, store: str, number: int) -> Any:
    versions = anew.here("store", "show", store)["fabrics"]["dc-0"]["versions"]
    return next(version["status"] for version in versions if version["number"] == number)


@pytest.mark.case("stores:A1", "stores:H9", "stores:C3", "stores:H4")
def test_a_store_lives_through_push_write_repush_rollback_and_swap(anew: Anew, people: Path) -> None:
    """Writes before, during and after a repush are in every version that keeps applying the log."""
    anew.create("life", "hybrid=true", "partitions=2", "rt_partitions=4")
    pushed = anew.push("life", people)
    assert pushed["status"] == "succeeded"
    assert pushed["ledger"] == {
        "read": 20,
        "superseded": 0,
        "deleted": 0,
        "expired": 0,
        "skipped": 0,
        "written": 20,
        "combined": 0,
    }
    anew.write("life", {"key": "p1", "value": {"name": "new", "age": 1}}, {"key": "p2", "delete": True})
    pending = anew.here("store", "update", "life", "--set", "partitions=3", "--set", "compression=gzip")["pending"]
    assert pending == [
        {"setting": "partitions", "now": 2, "wanted": 3},
        {"setting": "compression", "now": "none", "wanted": "gzip"},
    ]
    done = anew.here("repush", "life")
    assert done["plan"]["source"]["version"] == 1
    assert done["ledger"]["read"] == 22
    assert done["ledger"]["written"] == 20
    assert done["fingerprint"]["source"] == done["fingerprint"]["target"]
    anew.write("life", {"key": "p3", "value": {"name": "late", "age": 3}})
    assert _current(anew, "life") == 2
    expected = anew.scan("life")
    assert len(expected) == 19
    assert expected['"p1"'] == {"name": "new", "age": 1}
    back = anew.here("rollback", "life")
    assert back["done"]["dc-0"] == {"before": 2, "after": 1}
    anew.here("store", "wait", "life")
    assert anew.scan("life") == expected
    assert _status(anew, "life", 2) == "rolled_back"
    anew.here("swap", "life", "life_v2")
    assert anew.scan("life") == expected
    assert anew.scan("life", "--version", "1") == expected


def test_a_plan_from_a_dry_run_is_run_exactly_and_refused_once_the_configuration_moved(
    anew: Anew, people: Path, tmp_path: Path
) -> None:
    """``--plan`` runs the dry run's plan although more was written since, and exits 3 after a change."""
    anew.create("planned", "hybrid=true", "rt_partitions=2")
    anew.push("planned", people)
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps(anew.here("repush", "planned", "--dry-run")), encoding="utf-8")
    anew.write("planned", {"key": "p1", "value": {"name": "after the plan", "age": 1}})
    done = anew.here("repush", "planned", "--plan", str(first))
    assert done["plan"]["id"] == json.loads(first.read_text(encoding="utf-8"))["id"]
    assert done["ledger"]["read"] == 20, "what was written after the plan is not read, it arrives through the log"
    anew.here("store", "wait", "planned")
    assert anew.value("planned", "p1") == {"name": "after the plan", "age": 1}
    second.write_text(json.dumps(anew.here("repush", "planned", "--dry-run")), encoding="utf-8")
    anew.here("store", "update", "planned", "--set", "partitions=7")
    refused = anew.run_here("repush", "planned", "--plan", str(second))
    assert refused.code == 3
    assert refused.error["code"] == "plan_outdated"
    assert "configuration" in refused.error["message"]


@pytest.mark.case("stores:H1", "rules:R22")
def test_the_same_command_under_one_request_id_is_answered_as_before(anew: Anew, people: Path, tmp_path: Path) -> None:
    """Push and repush repeated with their id give the first result, whatever has moved since; others are refused."""
    anew.create("asked", "hybrid=true", "rt_partitions=2")
    files = tmp_path / "input"
    files.mkdir()
    source = files / people.name
    source.write_bytes(people.read_bytes())
    push = ("push", "asked", str(source), "--key", "id", "--request-id", "asked-push")
    repush = ("repush", "asked", "--request-id", "asked-repush")
    pushed, repushed = anew.here(*push), anew.here(*repush)
    source.unlink()
    anew.here("store", "update", "asked", "--set", "compression=gzip")
    assert (anew.here(*push)["id"], anew.here(*repush)["id"]) == (pushed["id"], repushed["id"])
    assert anew.here(*repush, "--detach")["id"] == repushed["id"]
    assert _current(anew, "asked") == 2
    for other in (("repush", "asked", "--request-id", "asked-push"), (*repush, "--defer-swap")):
        refused = anew.run_here(*other)
        assert (refused.code, refused.json["error"]["code"]) == (2, "request_id_reused")


@pytest.mark.case("stores:H3")
def test_a_rebuild_that_is_killed_stops_its_driver(anew: Anew, people: Path) -> None:
    """``anew rebuild kill`` ends the version at once and the driver soon after, with exit 1."""
    anew.create("stopped", "hybrid=true", "rt_partitions=2")
    anew.push("stopped", people)
    driver = anew.start("repush", "stopped")
    wait_until(lambda: _running(anew, "stopped") is not None, "the repush to begin")
    rebuild = _running(anew, "stopped")
    assert rebuild is not None
    assert anew.here("rebuild", "kill", rebuild)["status"] == "killed"
    _, printed = driver.communicate(timeout=60)
    assert driver.returncode == 1
    assert "killed" in printed
    assert _current(anew, "stopped") == 1
    again = anew.run_here("rebuild", "kill", rebuild)
    assert (again.code, again.error["code"]) == (3, "rebuild_ended")


def test_an_interrupted_repush_is_killed_and_exits_130(anew: Anew, people: Path) -> None:
    """Ctrl-C asks the job to stop and kills the rebuild."""
    anew.create("interrupted", "hybrid=true", "rt_partitions=2")
    anew.push("interrupted", people)
    driver = anew.start("repush", "interrupted")
    wait_until(lambda: _running(anew, "interrupted") is not None, "the repush to begin")
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=60)
    assert driver.returncode == 130
    wait_until(lambda: _status(anew, "interrupted", 2) in ("killed", "retired", "reclaimed"), "the version to end")
    assert _current(anew, "interrupted") == 1


def test_a_detached_repush_goes_on_without_its_terminal(anew: Anew, people: Path) -> None:
    """The command returns once the rebuild has begun, and the version is put into service all the same."""
    anew.create("detached", "hybrid=true", "rt_partitions=2")
    anew.push("detached", people)
    begun = anew.done("repush", "detached", "--detach")
    assert (begun["kind"], begun["version"]) == ("repush", 2)
    watched = anew.run_here("rebuild", "watch", begun["id"])
    assert watched.code == 0
    assert json.loads(watched.out.splitlines()[-1])["status"] == "succeeded"
    said, _ = anew.start("rebuild", "watch", begun["id"]).communicate(timeout=60)
    assert re.fullmatch(r"succeeded done( (\d+)/\2 tasks)?", said.strip())
    assert _current(anew, "detached") == 2


def _running(anew: Anew, store: str) -> str | None:
    running = [r["id"] for r in anew.here("rebuild", "list", "--store", store) if r["status"] == "running"]
    return running[0] if running else None
