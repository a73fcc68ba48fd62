"""Waiting for the catalog to move: nodes' long polls and the reconciler's pauses."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from anew.api.models import DesiredState
from anew.controller.engine.watch import Watch
from anew.core.errors import Unreachable
from anew.testing.builders import FABRIC
from tests.component.controller.harness import Cluster


def _waited(watch: Watch, revision: int, seconds: float = 30.0) -> bool:
    """What becomes of a wait in an event loop of its own."""
    return asyncio.run(watch.wait_beyond(revision, seconds))


def test_who_waits_is_woken_by_a_change() -> None:
    """A wait ends with the change that it waits for, and at once when the watch is closed."""
    revision = [1]
    watch = Watch(lambda: revision[0])
    answers: list[bool] = []
    waiting = [threading.Thread(target=lambda: answers.append(_waited(watch, 1))) for _ in range(3)]
    for thread in waiting:
        thread.start()
    revision[0] = 2
    watch.notify()
    for thread in waiting:
        thread.join(timeout=10)
    assert answers == [True, True, True]
    watch.close()
    assert not _waited(watch, 2)
    assert watch.closed


def test_a_wait_ends_when_its_seconds_are_over() -> None:
    """Also while others wait on, whom a change reaches afterwards."""
    revision = [1]
    watch = Watch(lambda: revision[0])

    async def both() -> list[bool]:
        longer = asyncio.create_task(watch.wait_beyond(1, 30.0))
        brief = await watch.wait_beyond(1, 0.05)
        revision[0] = 2
        watch.notify()
        return [brief, await longer]

    assert asyncio.run(both()) == [False, True]


def test_nodes_that_wait_keep_no_thread_of_the_controller(cluster: Cluster) -> None:
    """More nodes than a server has threads: whoever asks meanwhile is answered, and a change reaches them all."""
    nodes, revision = 60, cluster.context.catalog.revision()

    def desired(number: int) -> DesiredState | None:
        return cluster.client.desired(f"node-{number}", FABRIC, revision, 30.0)

    with ThreadPoolExecutor(nodes) as pool:
        began = time.monotonic()
        waiting = [pool.submit(desired, number) for number in range(nodes)]
        _until(lambda: cluster.watch.waiting == nodes)
        assert len(cluster.client.nodes()) == 2
        assert not any(each.done() for each in waiting)
        cluster.create()
        found = [each.result(timeout=20) for each in waiting]
        assert time.monotonic() - began < 20
    assert all(state is not None and state.revision > revision for state in found)


class _Counted:
    """A revision that counts who asks for it, and that may fail once."""

    def __init__(self) -> None:
        self.revision, self.looks, self.fails = 1, 0, False

    def __call__(self) -> int:
        self.looks += 1
        if self.fails:
            self.fails = False
            raise Unreachable("catalog_unreachable", "it does not answer")
        return self.revision

    def has_looked(self, times: int) -> bool:
        """Whether it was asked so often."""
        return self.looks >= times

    def wait_for(self, watch: Watch, threads: int) -> tuple[list[threading.Thread], list[object]]:
        """Let threads wait for revision 2, each with a look of its own behind it; what becomes of them."""
        outcomes: list[object] = []

        def wait() -> None:
            try:
                outcomes.append(_waited(watch, 1))
            except Unreachable as error:
                outcomes.append(error.code)

        waiting = [threading.Thread(target=wait, daemon=True) for _ in range(threads)]
        for thread in waiting:
            thread.start()
        _until(lambda: self.looks > threads)
        return waiting, outcomes

    def move(self, waiting: list[threading.Thread]) -> None:
        """Move on; everybody who waits ends."""
        self.revision = 2
        for thread in waiting:
            thread.join(timeout=10)
            assert not thread.is_alive()


def _until(condition: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + 10, threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.01)


def test_one_looks_for_all_who_wait() -> None:
    """Many who wait ask the catalog no more often than one, and hear of a change made elsewhere all the same."""
    asked = _Counted()
    began = time.monotonic()
    waiting, outcomes = asked.wait_for(Watch(asked), 20)
    _until(lambda: asked.looks >= 24)
    assert asked.looks <= 20 + (time.monotonic() - began) / 0.25 + 1, "each looked as it came; then one for all"
    asked.move(waiting)
    assert outcomes == [True] * 20


def test_each_notice_is_looked_at_once() -> None:
    """However many wait: a report of any node is a reason to look, and not one for each that waits."""
    asked = _Counted()
    watch = Watch(asked)
    began = time.monotonic()
    waiting, _outcomes = asked.wait_for(watch, 20)
    for _ in range(5):
        more = asked.looks + 1
        watch.notify()
        _until(partial(asked.has_looked, more))
    assert asked.looks <= 20 + 5 + (time.monotonic() - began) / 0.25 + 1
    asked.move(waiting)


def test_a_look_that_fails_is_told_to_one_and_made_by_the_next() -> None:
    """Whoever looked ends with the failure; the others wait on, and hear of what they wait for."""
    asked = _Counted()
    waiting, outcomes = asked.wait_for(Watch(asked), 3)
    asked.fails = True
    _until(lambda: bool(outcomes))
    asked.move(waiting)
    assert outcomes == ["catalog_unreachable", True, True]


def test_a_change_that_comes_between_two_pauses_ends_the_next_one() -> None:
    """What is told while a round runs begins another round at once, and one alone."""
    watch = Watch(lambda: 1)
    watch.notify()
    began = time.monotonic()
    watch.pause(30.0)
    assert time.monotonic() - began < 10
    began = time.monotonic()
    watch.pause(0.05)
    assert time.monotonic() - began >= 0.04


def test_what_moves_the_catalog_is_done_again_at_once() -> None:
    """Until it moves nothing, or was done as often as it may be; who waits for the catalog hears of each time."""
    revision = [1]
    watch = Watch(lambda: revision[0])

    def move_until(last: int) -> None:
        revision[0] = min(last, revision[0] + 1)

    assert watch.repeat(lambda: move_until(3), 6) == 3
    assert watch.repeat(lambda: move_until(3), 6) == 1
    assert watch.repeat(lambda: move_until(99), 6) == 6
    heard: list[bool] = []
    waiting = threading.Thread(target=lambda: heard.append(_waited(watch, revision[0])))
    waiting.start()
    watch.repeat(lambda: move_until(99), 1)
    waiting.join(timeout=10)
    assert heard == [True]
