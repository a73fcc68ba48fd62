"""SIGKILL of a node, or of its loader, at each stage of a load and of the application of its feeds."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cluster.account import Account, under_load
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


@pytest.mark.parametrize("deaths", [LOADER_DEATHS, NODE_DEATHS], ids=["loader", "node"])
def test_a_node_that_dies_starts_again_where_it_was(crashing: Crashing, deaths: tuple[Death, ...]) -> None:
    """Repushes under load, in each a node dies: no read fails, each version serves, nothing written is lost."""
    store = crashing.store(f"n_{deaths[0].name.replace('-', '_')}")
    with under_load(crashing.anew, store, 1) as account:
        for death in deaths:
            source = crashing.current(store)
            _repush_with(crashing, account, death)
    account.check()
    account.check("--version", str(source))
    assert crashing.anew.run_here("store", "verify", store).code == 0


def _repush_with(crashing: Crashing, account: Account, death: Death) -> None:
    """Repush while a process dies at its point, until readers see the new version and the cluster is whole again."""
    done: list[Any] = []
    halt = crashing.halts.arm(death.point, death.when)
    driver = threading.Thread(target=lambda: done.append(crashing.anew.run_here("repush", account.store)))
    driver.start()
    halt.kill()
    driver.join(240)
    assert [answer.code for answer in done] == [0], (death.name, done)
    account.await_writes(50)
    version = done[0].json["version"]
    wait_until(lambda: version in account.reader.versions, f"the reader to see version {version}: {death.name}")
    crashing.await_healthy()


def test_a_node_that_stands_still_is_replaced_and_comes_back(crashing: Crashing) -> None:
    """Stopped as a whole: its replicas are made on other nodes, reads go on; awake again it holds what it should."""
    store = crashing.store("still")
    stopped = crashing.pid("node-1")
    with under_load(crashing.anew, store, 1) as account:
        crashing.anew.here("repush", store)
        os.kill(stopped, signal.SIGSTOP)
        try:
            wait_until(lambda: _holders(crashing, store) == [["node-2", "node-3"]] * 2, "the others to take over", 240)
            account.await_writes()
        finally:
            os.kill(stopped, signal.SIGCONT)
        account.await_writes()
    account.check()
    crashing.await_healthy()
    assert crashing.anew.run_here("store", "verify", store).code == 0


def _holders(crashing: Crashing, store: str) -> list[list[str]]:
    """The nodes that readers of the current version ask, per partition."""
    routing = crashing.controller.routing(store)
    return [sorted(nodes) for nodes in routing.versions[routing.current].replicas.values()]
