"""SIGKILL of the controller before and after each commit of a rebuild, and in the middle of a deletion."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.account import under_load
from tests.cluster.commands import Anew, wait_until
from tests.crash.crashing import Crashing
from tests.crash.halts import COMMIT, DELETE, When

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("commits", [("begin repush", "swap"), ("seal version", "retire version")], ids="-".join)
def test_a_controller_that_dies_at_each_commit_costs_nothing(
    crashing: Crashing, tmp_path: Path, when: When, commits: tuple[str, str]
) -> None:
    """One repush, two deaths: reads and writes go on; asked again with its request id it is the same, and serves."""
    store = crashing.store(f"{when}_{commits[0].replace(' ', '_')}", "backup_retention_seconds=0")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(crashing.anew.here("repush", store, "--dry-run")), encoding="utf-8")
    crashing.await_sound("controller")
    with under_load(crashing.anew, store, 1) as account:
        halts = [crashing.halts.arm(COMMIT, when, f"'{commits[0]}'", f"'{store}'")]
        done: list[Any] = []
        repush = ("repush", store, "--plan", str(plan), "--request-id", f"r-{store}")
        driver = threading.Thread(target=lambda: done.append(crashing.anew.run_here(*repush)))
        driver.start()
        halts[0].wait()
        account.await_writes(50)
        # Armed while the only controller stands still, so that the next one cannot be past it.
        halts.append(crashing.halts.arm(COMMIT, when, f"'{commits[1]}'", f"'{store}'"))
        halts[0].kill()
        halts[1].wait()
        account.await_writes(50)
        halts[1].kill()
        driver.join(240)
        assert [answer.code for answer in done] == [0], ("the driver waits for the next controller", done)
        account.await_writes(50)
    crashing.await_controller()
    again = crashing.anew.here(*repush)
    assert (again["version"], again["status"]) == (2, "succeeded")
    crashing.await_current(store, 2)
    account.check()
    wait_until(lambda: crashing.files(store) == {"v2"}, "the version before to be reclaimed")
    assert [row.what for row in crashing.controller.history(store)].count("begin repush") == 1


def test_a_controller_that_dies_at_a_deletion_deletes_again(crashing: Crashing) -> None:
    """Dead before it, and dead after it: what was noted is done by the next one, and nothing else is deleted."""
    store = crashing.store("reclaim", "backup_retention_seconds=0")
    halt = crashing.halts.arm(DELETE, "before", f"{store}: ")
    assert crashing.anew.run_here("repush", store).code in (0, 4), "it serves by the time that its files are deleted"
    halt.wait()
    assert crashing.files(store) == {"v1", "v2"}
    following = crashing.halts.arm(DELETE, "after", f"{store}: ")
    halt.kill()
    following.wait()
    assert crashing.files(store) == {"v2"}
    following.kill()
    crashing.await_controller()
    crashing.await_status(store, 1, "reclaimed")
    wait_until(lambda: crashing.files(store) == {"v2"}, "the retired version's files to be gone")
    assert len(crashing.anew.scan(store)) == 20


def test_a_controller_that_stood_still_harms_nothing(crashing: Crashing) -> None:
    """Stopped inside a repush for longer than lease and node deadlines: reads and writes go on, the repush ends."""
    store = crashing.store("stood_still")
    with under_load(crashing.anew, store, 1) as account:
        halt = crashing.halts.arm(COMMIT, "before", "'seal version'", f"'{store}'")
        done: list[Any] = []
        impatient = Anew(crashing.anew.home, {**crashing.anew.extra, "ANEW_CONTROLLER_WAIT_SECONDS": "5"})
        driver = threading.Thread(target=lambda: done.append(impatient.run_here("repush", store)))
        driver.start()
        halt.wait()
        driver.join(60)
        assert (done[0].code, done[0].error["code"]) == (5, "seal_unknown")
        account.await_writes(50)
        halt.go_on()
        crashing.await_healthy()
        wait_until(
            lambda: all(r.status != "running" for r in crashing.rebuilds(store)),
            "the rebuild to end",
        )
        account.await_writes(50)
    account.check()
    ended = crashing.rebuilds(store)
    assert crashing.current(store) == (2 if ended[0].status == "succeeded" else 1)
    crashing.anew.here("repush", store)
    account.check()
