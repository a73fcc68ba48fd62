"""SIGKILL of a node, or of its loader, at each stage of a load and of the application of its feeds."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cluster.account import under_load
from tests.cluster.commands import wait_until
from tests.crash.crashing import Crashing
from tests.crash.halts import APPLY, CREATE, INGEST, LOAD, OPEN, REPORT, SST, When

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True, slots=True)
class Death:
    """Where a process of a node dies."""

    name: str
    point: str
    when: When


LOADER_DEATHS = (
    Death("before-download", LOAD, "before"),
    Death("after-a-sorted-file", SST, "after"),
    Death("before-create", CREATE, "before"),
    Death("before-ingest", INGEST, "before"),
    Death("after-ingest", INGEST, "after"),
    Death("after-create", CREATE, "after"),
    Death("after-load", LOAD, "after"),
)
NODE_DEATHS = (
    Death("before-open", OPEN, "before"),
    Death("after-open", OPEN, "after"),
    Death("before-a-batch", APPLY, "before"),
    Death("after-a-batch", APPLY, "after"),
    Death("before-report", REPORT, "before"),
)


@pytest.mark.parametrize("death", [*LOADER_DEATHS, *NODE_DEATHS], ids=lambda death: death.name)
def test_a_node_that_dies_starts_again_where_it_was(crashing: Crashing, death: Death) -> None:
    """A repush under load, a node dies in the middle: no read fails, the version serves, nothing written is lost."""
    store = crashing.store(f"n_{death.name.replace('-', '_')}")
    with under_load(crashing.anew, store, 1) as account:
        done: list[Any] = []
        halt = crashing.halts.arm(death.point, death.when)
        driver = threading.Thread(target=lambda: done.append(crashing.anew.run_here("repush", store)))
        driver.start()
        halt.kill()
        driver.join(240)
        assert [answer.code for answer in done] == [0], done
        account.await_writes(50)
        wait_until(lambda: 2 in account.reader.versions, "the reader to see the new version")
    account.check()
    account.check("--version", "1")
    assert crashing.anew.run_here("store", "verify", store).code == 0
    crashing.await_healthy()


def test_a_node_that_stands_still_is_replaced_and_comes_back(crashing: Crashing) -> None:
    """Stopped as a whole: its replicas are made on other nodes, reads go on; awake again it holds what it should."""
    store = crashing.store("still")
    stopped = crashing.pid("node-1")
    with under_load(crashing.anew, store, 1) as account:
        crashing.anew.here("repush", store)
        os.kill(stopped, signal.SIGSTOP)
        try:
            wait_until(lambda: _holders(crashing, store) == {"node-2", "node-3"}, "the others to take over", 240)
            account.await_writes()
        finally:
            os.kill(stopped, signal.SIGCONT)
        account.await_writes()
    account.check()
    crashing.await_healthy()
    assert crashing.anew.run_here("store", "verify", store).code == 0


def _holders(crashing: Crashing, store: str) -> set[str]:
    routing = crashing.controller.routing(store)
    return {node for nodes in routing.versions[routing.current].replicas.values() for node in nodes}
