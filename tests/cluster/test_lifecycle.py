"""The life cycle of versions through the command line: deferral, resuming, schedules, upkeep."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from anew.runtime.home import Home
from tests.cluster.commands import Anew, wait_until


def _versions(anew: Anew, name: str) -> dict[int, str]:
    view = anew.here("store", "show", name)
    return {version["number"]: version["status"] for version in view["fabrics"]["dc-0"]["versions"]}


@pytest.mark.case("stores:H10", "stores:A4", "stores:C9")
def test_a_deferred_swap_waits_and_applies_what_is_written(anew: Anew, people: Path) -> None:
    """Nothing changes for readers until the swap; meanwhile the new version applies the log, and pushes are refused."""
    anew.create("deferring", "hybrid=true", "partitions=2", "rt_partitions=4")
    anew.push("deferring", people)
    done = anew.here("repush", "deferring", "--defer-swap")
    assert (done["status"], _versions(anew, "deferring")) == ("succeeded", {1: "current", 2: "deferred"})
    anew.write("deferring", {"key": "late", "value": {"name": "late", "age": 1}})
    refused = anew.run_here("push", "deferring", "--empty")
    assert (refused.code, refused.error["code"]) == (3, "swap_deferred")
    plan = anew.here("repush", "deferring", "--dry-run")
    assert plan["source"]["version"] == 1
    wait_until(lambda: anew.scan("deferring", "--version", "2") == anew.scan("deferring"), "version 2 to catch up")
    anew.here("swap", "deferring", "2")
    assert anew.value("deferring", "late") == {"name": "late", "age": 1}
    again = anew.here("repush", "deferring", "--defer-swap")
    anew.here("rebuild", "kill", again["id"])
    assert _versions(anew, "deferring")[3] in ("killed", "retired", "reclaimed")
    empty = anew.here("push", "deferring", "--empty", "--as-of", str(int(time.time() * 1000)))
    assert (empty["status"], empty["ledger"]["written"]) == ("succeeded", 0)


@pytest.mark.case("stores:F4", "stores:F9", "stores:F8")
def test_a_ttl_repush_and_the_pushes_after_it(anew: Anew, people: Path) -> None:
    """After a TTL repush a push without times is refused; empty, timed and meant ones are accepted; nothing returns."""
    anew.create("aging", "hybrid=true", "partitions=2", "rt_partitions=4", "rewind_seconds=3600")
    anew.push("aging", people)
    long_ago_ms = int(time.time() * 1000) - 100_000
    anew.write("aging", {"key": "old", "value": {"name": "old", "age": 1}, "written_at": long_ago_ms})
    anew.write("aging", {"key": "new", "value": {"name": "new", "age": 1}})
    done = anew.here("repush", "aging", "-D", "repush.ttl.enable=true", "-D", "repush.ttl.seconds=60")
    assert (done["kind"], done["ledger"]["expired"]) == ("ttl_repush", 1)
    assert (anew.value("aging", "old"), anew.value("aging", "new")["name"]) == (None, "new")
    anew.write("aging", {"key": "old", "value": {"name": "again", "age": 1}, "written_at": long_ago_ms + 1})
    assert anew.value("aging", "old") is None, "the replay expires by the same floor"
    refused = anew.run_here("push", "aging", str(people), "--key", "id", "--value", "name,age")
    assert (refused.code, refused.error["code"]) == (3, "undying_push")
    pushed = anew.push("aging", people, "--allow-undying")
    assert pushed["status"] == "succeeded"
    assert (anew.value("aging", "old"), anew.value("aging", "p1")["age"]) == (None, 21)


@pytest.mark.timeout(400)
@pytest.mark.case("stores:H11", "stores:H2")
def test_a_rebuild_whose_driver_died_is_resumed(anew: Anew, people: Path) -> None:
    """After SIGKILL in the build, resume makes the version in another attempt; its ledger balances."""
    anew.create("resumed", "hybrid=true", "partitions=2", "rt_partitions=4")
    anew.push("resumed", people)
    anew.write("resumed", {"key": "w", "value": {"name": "w", "age": 1}})
    driver = anew.start("repush", "resumed", "--json")
    wait_until(lambda: _stage(anew, "resumed") == "build", "the build")
    rebuild = anew.here("rebuild", "list", "--store", "resumed")[0]["id"]
    alive = anew.run_here("rebuild", "resume", rebuild)
    assert (alive.code, alive.error["code"]) == (3, "driver_alive")
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    wait_until(lambda: anew.run_here("rebuild", "resume", rebuild).code == 0, "the resumed rebuild")
    view = anew.here("rebuild", "show", rebuild)
    assert (view["status"], view["epoch"]) == ("succeeded", 2)
    ledger = view["ledger"]
    gone = ledger["superseded"] + ledger["deleted"] + ledger["expired"] + ledger["skipped"]
    assert ledger["read"] == gone + ledger["written"] == 21
    assert anew.value("resumed", "w") == {"name": "w", "age": 1}
    ended = anew.run_here("rebuild", "resume", rebuild)
    assert (ended.code, ended.error["code"]) == (3, "rebuild_ended")


@pytest.mark.timeout(400)
def test_a_scheduled_repush_runs_by_itself(anew: Anew, people: Path) -> None:
    """At its time, and while its condition holds, the controller starts a driver; the reasons are shown."""
    anew.create("nightly", "hybrid=true", "partitions=2", "rt_partitions=4")
    anew.push("nightly", people)
    anew.here("store", "update", "nightly", "--set", "compression=gzip")
    anew.here(
        "store", "update", "nightly", "--set", "repush_schedule=* * * * *", "--set", "repush_when=stale and rows < 10"
    )
    shown = anew.here("store", "show", "nightly")["schedule"]
    assert shown["next_ms"] is not None
    anew.here("pause", "--store", "nightly")
    anew.here("store", "update", "nightly", "--set", "repush_when=stale")
    wait_until(lambda: "paused" in str(anew.here("store", "show", "nightly")["schedule"]["reasons"]), "the pause", 240)
    assert set(_versions(anew, "nightly")) == {1}
    anew.here("unpause", "--store", "nightly")
    wait_until(lambda: _versions(anew, "nightly").get(2) == "current", "the scheduled repush", 120)
    anew.here("store", "update", "nightly", "--set", "repush_when=", "--set", "repush_schedule=")
    what = [line["what"] for line in anew.here("history", "--store", "nightly")]
    assert "scheduled repush" in what


def test_a_node_is_drained_and_removed(lone: Anew, people: Path) -> None:
    """Its replicas move to the others before it lets them go; removed, it ends for good, until it is added again."""
    lone.done("up", "--detach", "--nodes", "3")
    lone.create("moving", "partitions=3", "replicas=2")
    lone.push("moving", people)
    refused = lone.run_here("node", "remove", "node-1")
    assert (refused.code, refused.error["code"]) == (3, "node_holds_replicas")
    lone.done("node", "drain", "node-1")
    wait_until(lambda: lone.run_here("node", "remove", "node-1").code == 0, "node-1 to hold nothing")
    assert {node["id"] for node in lone.here("node", "list")} == {"node-2", "node-3"}
    assert len(lone.scan("moving")) == 20
    wait_until(lambda: "node-1" in Home(lone.home).running().removed, "its process to end")
    lone.done("down")
    lone.done("up", "--detach")
    assert {node["id"] for node in lone.here("node", "list") if node["alive"]} == {"node-2", "node-3"}
    refused = lone.run_here("node", "drain", "node-2")
    assert (refused.code, refused.error["code"]) == (3, "too_few_nodes")
    assert lone.here("node", "add")["node"] == "node-4"
    lone.done("node", "drain", "node-2")
    wait_until(lambda: lone.run_here("node", "remove", "node-2").code == 0, "node-2 to hold nothing")
    lone.done("node", "drain", "node-2", "--undo")
    lone.done("node", "add", "node-1")
    assert {node["id"] for node in lone.here("node", "list")} == {f"node-{number}" for number in range(1, 5)}
    assert len(lone.scan("moving")) == 20


def test_gc_says_what_goes_and_why(anew: Anew, people: Path) -> None:
    """A dry run names every version and what is kept of it; collecting changes nothing that is in use."""
    anew.create("tidy", "partitions=1", "backup_retention_seconds=0")
    anew.push("tidy", people)
    anew.push("tidy", people)
    items: list[dict[str, Any]] = anew.here("gc", "--store", "tidy", "--dry-run")["items"]
    assert any(item["name"] == "2" and item["act"] == "keep" and "current" in item["why"] for item in items)
    anew.here("gc", "--store", "tidy")
    wait_until(lambda: _versions(anew, "tidy").get(1) == "reclaimed", "version 1 to be reclaimed")
    gone = anew.run_here("repush", "tidy", "-D", "kafka.input.topic=tidy_v1", "--allow-not-serving")
    assert (gone.code, gone.error["code"]) == (3, "not_sealed")
    assert len(anew.scan("tidy")) == 20


def test_the_completion_script_is_printed(anew: Anew) -> None:
    """Each shell gets a script that asks anew itself."""
    for shell in ("bash", "zsh", "fish"):
        assert "_ANEW_COMPLETE" in anew.here("completion", shell)["script"]


def _stage(anew: Anew, name: str) -> str | None:
    found = anew.here("rebuild", "list", "--store", name)
    return next((str(view["stage"]) for view in found if view["status"] == "running"), None)
