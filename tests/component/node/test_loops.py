"""Each loop of a real node and of a real controller, broken in each way: told within seconds, and gone on from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from anew.api.http import ControllerClient
from anew.controller.process import ControllerServer
from anew.loops.guarded import GuardedLoop
from anew.node.process import Node, NodeSettings
from tests.component.controller.harness import opened_cluster
from tests.component.loop_faults import LOOP_ERRORS, MENDED_SECONDS, TOLD_SECONDS
from tests.component.node.harness import wait_for
from tests.component.node.test_node import free_port

_CONTROLLER_LOOPS = ("reconciler", "upkeep")
_NODE_LOOPS = ("applier", "desired state", "report", "segments", "loader", "loader of segments")


@dataclass
class _Breaking:
    """Breaks loops by name, and counts the steps that succeed.

    Attributes:
        broken: Loop → what each of its steps raises.
        steps: Loop → how many of its steps succeeded.
        raised: Those that have come to a step since they were broken.
    """

    broken: dict[str, Exception] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    raised: set[str] = field(default_factory=set)

    def turn(self, loop: GuardedLoop, step: Callable[[], None]) -> float:
        """In the place of `GuardedLoop.turn`."""

        def taken() -> None:
            error = self.broken.get(loop.name)
            if error is not None:
                self.raised.add(loop.name)
                raise error
            step()
            self.steps[loop.name] = self.steps.get(loop.name, 0) + 1

        return _TURN(loop, taken)


_TURN = GuardedLoop.turn


@dataclass(frozen=True, slots=True)
class _Running:
    """A controller and a node, both over HTTP."""

    breaking: _Breaking
    client: ControllerClient
    url: str

    def problems(self) -> list[str]:
        """What the status says is wrong."""
        return [problem.what for problem in self.client.status().problems]


@contextmanager
def _running(folder: Path) -> Iterator[tuple[ControllerClient, str]]:
    with opened_cluster(folder / "controller") as cluster:
        port = free_port()
        server = ControllerServer(cluster.context, "127.0.0.1", port)
        serving = threading.Thread(target=server.run, name="controller", daemon=True)
        serving.start()
        wait_for("the controller", lambda: server.started)
        url = f"http://127.0.0.1:{port}"
        settings = NodeSettings("node-1", "dc-0", folder / "node", url, "127.0.0.1", free_port(), cluster.clock)
        with ControllerClient(url, actor="node-1") as asked, ControllerClient(url, actor="tester") as client:
            node = Node(settings, asked)
            node.start()
            try:
                yield client, url
            finally:
                node.stop()
                server.stop()
                serving.join(20)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Running]:
    """Both, with loops that tests can break."""
    breaking = _Breaking()
    patch = pytest.MonkeyPatch()
    patch.setattr("anew.node.process._POLL_ANSWER_SECONDS", 0.5)
    patch.setattr(GuardedLoop, "turn", lambda loop, step: breaking.turn(loop, step))
    try:
        with _running(tmp_path_factory.mktemp("loops")) as (client, url):
            made = _Running(breaking, client, url)
            wait_for("all loops", lambda: set(breaking.steps) == {*_NODE_LOOPS, *_CONTROLLER_LOOPS})
            yield made
    finally:
        patch.undo()


@pytest.mark.parametrize("error", list(LOOP_ERRORS))
@pytest.mark.parametrize("loop", [*_NODE_LOOPS, *_CONTROLLER_LOOPS])
def test_a_loop_that_breaks_is_told_and_goes_on(running: _Running, loop: str, error: str) -> None:
    """The status names process, loop and cause within 5 s; mended, the loop takes steps and all is healthy in 10 s."""
    process = "the controller" if loop in _CONTROLLER_LOOPS else "node-1"
    running.breaking.raised.discard(loop)
    running.breaking.broken[loop] = LOOP_ERRORS[error]
    try:
        wait_for("the fault", lambda: loop in running.breaking.raised)
        named = f"{process}: its loop {loop} does not get on"
        cause = str(LOOP_ERRORS[error].args[-1])
        wait_for(
            f"the trouble of {loop}", lambda: any(named in p and cause in p for p in running.problems()), TOLD_SECONDS
        )
    finally:
        del running.breaking.broken[loop]
    before = running.breaking.steps[loop]
    wait_for(f"steps of {loop}", lambda: running.breaking.steps[loop] > before, MENDED_SECONDS)
    wait_for("health", lambda: running.client.status().healthy, MENDED_SECONDS)


def test_failed_steps_are_counted(running: _Running) -> None:
    """A metric of each process counts them by loop."""
    running.breaking.broken["reconciler"] = LOOP_ERRORS["unforeseen"]
    try:
        wait_for("the trouble", lambda: any("reconciler" in problem for problem in running.problems()), TOLD_SECONDS)
    finally:
        del running.breaking.broken["reconciler"]
    assert 'anew_loop_failures_total{loop="reconciler"}' in httpx.get(f"{running.url}/metrics").text
