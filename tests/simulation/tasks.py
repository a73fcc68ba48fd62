"""What the product runs in threads and processes at its side, as tasks of the simulated world."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from anew.api.http import ControllerClient
from anew.core.errors import AnewError
from anew.core.rebuild import Progress, Stage
from anew.node.loader import Job, answer_of
from anew.rebuild.lease import Lease
from tests.simulation.world import Process, World

_Made = TypeVar("_Made")
_BEAT_MS = 2_000.0


class TaskLoader:
    """`anew.node.loader.Submits` by a task of the node's process."""

    def __init__(self, world: World, process: Process) -> None:
        """Work in a process."""
        self._world, self._process = world, process

    def submit(self, job: Job[_Made]) -> Future[_Made]:
        """See `anew.node.loader.Submits.submit`."""
        future: Future[_Made] = Future()

        def run() -> None:
            self._world.sleep(self._world.random.random() * 300)
            answer = answer_of(job)
            if isinstance(answer, AnewError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self._world.spawn(self._process, run)
        return future


class TaskLease(Lease):
    """A lease whose signs of life are given by a task of the driver's process."""

    def __init__(self, world: World, controller: ControllerClient, rebuild_id: str, epoch: int) -> None:
        """Prepare."""
        super().__init__(controller, rebuild_id, epoch, clock_seconds=lambda: world.now_ms / 1000)
        self._world = world

    def __enter__(self) -> TaskLease:
        """Begin to give signs of life."""
        self._ended = False
        self._world.spawn(self._world.acting, self._go_on)
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop."""
        self._ended = True

    def _go_on(self) -> None:
        while True:
            self._world.sleep(_BEAT_MS)
            if self._ended:
                return
            self._beat()

    def enter(self, stage: Stage, measure: Callable[[], Progress], cancel: Callable[[], None]) -> None:
        """See `Lease.enter`."""
        self._stage, self._measure, self._cancel = stage, measure, cancel
