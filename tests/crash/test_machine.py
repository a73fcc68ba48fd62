"""What the machine does to a cluster: a full disk, a locked catalog, a clock that is set back."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from anew.api.http import ControllerClient
from tests.cluster.account import KEYS, under_load
from tests.cluster.commands import Anew, wait_until
from tests.crash.crashing import Crashing
from tests.disks import filled, small_disk
from tests.ports import port_of

pytestmark = pytest.mark.timeout(600)

_HOUR_MS = 3_600_000


@pytest.fixture
def small(tmp_path: Path, crashing: Crashing) -> Iterator[Crashing]:
    """A cluster whose home lies on a small disk of its own."""
    home = tmp_path / "home"
    with small_disk(home, 400):
        anew = Anew(home, {**crashing.anew.extra, "ANEW_PORT": str(port_of("full"))})
        anew.done("up", "--detach", "--nodes", "2")
        try:
            with ControllerClient(f"http://127.0.0.1:{port_of('full')}") as controller:
                yield Crashing(anew, crashing.halts, controller)
        finally:
            anew.run("down")


def test_on_a_full_disk_reads_go_on_and_the_rest_is_refused(small: Crashing) -> None:
    """Writes, changes and repushes say what they lack; with room again all goes on by itself, nothing is lost."""
    store = small.store("full")
    with under_load(small.anew, store, 1) as account:
        account.await_writes(KEYS)
        with filled(small.anew.home):
            wait_until(lambda: bool(account.writers[0].failures), "a write to be refused")
            batches = account.reader.batches
            refused = account.writers[0].acknowledged
            repush = small.anew.run_here("repush", store)
            assert repush.code in (1, 3, 4), repush.out
            assert small.status(store, 2) in (None, "failed", "retired", "reclaimed")
            wait_until(lambda: account.reader.batches > batches, "reads")
            assert account.writers[0].acknowledged == refused
        account.await_writes(KEYS)
        small.await_healthy()
        assert {error.code for error in account.writers[0].failures} == {"log_full"}
        small.anew.here("repush", store)
    account.check()
    assert small.anew.run_here("store", "verify", store).code == 0


def test_while_the_catalog_is_locked_reads_and_writes_go_on(crashing: Crashing) -> None:
    """Held by another program for longer than the timeout, in the middle of a repush: the repush ends well."""
    store = crashing.store("locked")
    catalog = crashing.anew.home / "catalog.sqlite"
    with under_load(crashing.anew, store, 1) as account:
        done: list[Any] = []
        driver = threading.Thread(target=lambda: done.append(crashing.anew.run_here("repush", store)))
        driver.start()
        wait_until(lambda: crashing.status(store, 2) == "building", "the repush to build")
        with closing(sqlite3.connect(catalog, isolation_level=None, timeout=30)) as other:
            other.execute("BEGIN EXCLUSIVE")
            answer = crashing.anew.run("store", "update", store, "--set", "owner=somebody")
            assert (answer.code, answer.error["code"]) == (4, "catalog_unreachable"), answer.out
            assert "locked" in answer.out
            account.await_writes(50)
            other.execute("ROLLBACK")
        driver.join(240)
        assert done, "the driver ends within its deadlines"
        crashing.await_healthy()
        account.await_writes(50)
    wait_until(lambda: crashing.rebuilds(store)[0].status != "running", "the rebuild to end")
    account.check()
    crashing.anew.here("repush", store)
    account.check()
    assert crashing.anew.here("store", "show", store)["config"]["owner"] is None


def test_a_clock_that_is_set_back_loses_and_revives_nothing(crashing: Crashing) -> None:
    """Writes are refused while the clock is far behind what was written; reads go on; the right time heals all."""
    store = crashing.store("backwards")
    with under_load(crashing.anew, store, 1) as account:
        account.await_writes()
        with crashing.halts.clock_shifted(-_HOUR_MS):
            repush = crashing.anew.run("repush", store, environment=crashing.halts.environment)
            account.await_writes(50)
        crashing.await_healthy()
        account.await_writes(50)
        done = crashing.anew.here("repush", store)
    assert repush.code in (0, 1, 3), repush.out
    account.check()
    account.check("--version", str(done["plan"]["source"]["version"]))
    assert crashing.anew.run_here("store", "verify", store).code == 0
