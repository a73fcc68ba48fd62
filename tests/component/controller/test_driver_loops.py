"""Each loop of a driver, broken in each way: the status names it within seconds, and is healthy once it is mended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anew.api.http import ControllerClient
from anew.controller.process import ControllerServer
from anew.core.rebuild import Progress, Stage
from anew.loops.guarded import GuardedLoop
from anew.rebuild.lease import Lease
from tests.component.controller.harness import Cluster, node_report, opened_cluster
from tests.component.loop_faults import LOOP_ERRORS, MENDED_SECONDS, TOLD_SECONDS
from tests.component.node.harness import wait_for
from tests.component.node.test_node import free_port

_TURN = GuardedLoop.turn


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Cluster, ControllerClient]]:
    """A cluster whose controller also answers over a socket, and a client of it."""
    with opened_cluster(tmp_path) as cluster:
        port = free_port()
        server = ControllerServer(cluster.context, "127.0.0.1", port)
        serving = threading.Thread(target=server.run, name="controller", daemon=True)
        serving.start()
        wait_for("the controller", lambda: server.started)
        try:
            with ControllerClient(f"http://127.0.0.1:{port}", actor="driver") as client:
                yield cluster, client
        finally:
            server.stop()
            serving.join(20)


@pytest.mark.parametrize("error", list(LOOP_ERRORS))
@pytest.mark.parametrize("loop", ["lease", "progress"])
def test_a_driver_s_loop_that_breaks_is_told_and_goes_on(
    cluster: tuple[Cluster, ControllerClient], monkeypatch: pytest.MonkeyPatch, loop: str, error: str
) -> None:
    """Also the loop that gives the signs of life: what breaks it is told in one more; the lease is renewed again."""
    made, client = cluster
    made.create()
    rebuild = made.begin(made.push_plan())
    broken = threading.Event()
    broken.set()

    def turn(guarded: GuardedLoop, step: Callable[[], None]) -> float:
        def taken() -> None:
            if broken.is_set() and guarded.name == loop:
                raise LOOP_ERRORS[error]
            step()

        return _TURN(guarded, taken)

    def problems() -> list[str]:
        for node in made.nodes:
            client.report(node_report(node))
        return [problem.what for problem in client.status().problems]

    monkeypatch.setattr(GuardedLoop, "turn", turn)
    named = f"the driver of rebuild {rebuild.id} of flights: its loop {loop} does not get on: "
    cause = str(LOOP_ERRORS[error].args[-1])
    with Lease(client, rebuild.id, rebuild.epoch, interval_seconds=0.5) as lease:
        lease.enter(Stage.BUILD, Progress, lambda: None)
        wait_for("the trouble", lambda: any(named in what and cause in what for what in problems()), TOLD_SECONDS)
        (told,) = client.rebuild(rebuild.id).driver.troubles
        assert told.startswith(f"{loop}: ")
        broken.clear()
        wait_for("health", lambda: not problems(), MENDED_SECONDS)
        assert not lease.lost
        lease_until_ms = client.rebuild(rebuild.id).driver.lease_until_ms
        made.clock.advance(1_000)
        wait_for(
            "a sign of life",
            lambda: client.rebuild(rebuild.id).driver.lease_until_ms > lease_until_ms,
            MENDED_SECONDS,
        )
