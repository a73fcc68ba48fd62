"""The guard of long-running loops: no error ends one, and what does not get on is told."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

from anew.core.errors import Failed
from anew.loops.guarded import GuardedLoop, Loops, Trouble
from anew.storage.rocks import RocksError
from anew.testing.clock import NOON_MS

ERRORS: list[Exception] = [
    OSError(errno.EIO, "Input/output error"),
    OSError(errno.ENOSPC, "No space left on device"),
    RocksError("Corruption: block checksum mismatch"),
    MemoryError(),
    ZeroDivisionError("nobody foresaw this"),
    Failed("storage_broken", "a replica cannot be read"),
]


class _Clocks:
    """The time in ms and a monotonic clock, both moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def ms(self) -> int:
        return NOON_MS + int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clocks() -> _Clocks:
    """A time that stands."""
    return _Clocks()


def _loops(clocks: _Clocks, changed: Callable[[], None] = lambda: None) -> Loops:
    return Loops(clocks.ms, changed, clocks.monotonic)


def _raising(error: Exception) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{type(error).__name__}-{error}"[:30])
def test_whatever_a_step_raises_is_told_and_the_loop_goes_on(clocks: _Clocks, error: Exception) -> None:
    """The trouble has the loop's name, the error and since when; one step that succeeds ends it."""
    told: list[int] = []
    loops = _loops(clocks, lambda: told.append(1))
    loop = loops.loop("applier")
    assert loop.turn(lambda: None) == 0.0
    began_ms = clocks.ms()
    pauses = []
    for _ in range(8):
        pauses.append(loop.turn(_raising(error)))
        clocks.seconds += pauses[-1]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.1, 5.0)
    (trouble,) = loops.troubles()
    assert (trouble.loop, trouble.since_ms, trouble.failures) == ("applier", began_ms, 8)
    assert str(error.args[-1] if error.args else type(error).__name__) in trouble.error
    assert loop.turn(lambda: None) == 0.0
    assert (loops.troubles(), loops.failed_steps(), len(told)) == ((), {"applier": 8}, 2)


def test_a_loop_runs_until_it_is_told_to_stop(clocks: _Clocks) -> None:
    """Errors pause it, for less time than it takes to notice, and its own end alone ends it."""
    stopped, taken = threading.Event(), list[int]()

    def step() -> None:
        taken.append(len(taken))
        if len(taken) == 3:
            stopped.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    _loops(clocks).loop("segments").run(step, stopped)
    assert taken == [0, 1, 2]


def test_a_step_that_hangs_is_trouble(clocks: _Clocks) -> None:
    """Told from outside while it hangs; a step that says that it gets on is none."""
    loops = _loops(clocks)
    loop = loops.loop("reconciler", stall_seconds=30.0)
    seen: list[tuple[Trouble, ...]] = []

    def wait(seconds: int) -> None:
        for _ in range(seconds):
            clocks.seconds += 1
            loops.tick()

    def hanging() -> None:
        wait(29)
        seen.append(loops.troubles())
        wait(3)
        seen.append(loops.troubles())
        loop.progressed()
        wait(5)
        seen.append(loops.troubles())

    loop.turn(hanging)
    assert [len(each) for each in seen] == [0, 1, 0]
    assert "no progress for 32 s" in seen[1][0].error
    assert loops.troubles() == ()


def test_time_that_the_process_was_suspended_is_nobody_s(clocks: _Clocks) -> None:
    """After SIGSTOP and SIGCONT no step counts as one that hangs."""
    loops = _loops(clocks)
    loop, seen = loops.loop("report", stall_seconds=30.0), list[tuple[Trouble, ...]]()
    loops.tick()

    def suspended() -> None:
        clocks.seconds += 3_600
        loops.tick()
        seen.append(loops.troubles())

    loop.turn(suspended)
    assert seen == [()]


def test_a_step_that_hangs_is_told_of_however_rarely_somebody_asks(clocks: _Clocks) -> None:
    """Who asks once an hour hears of it: only the watch, which looks every second, knows a suspension from a stall."""
    loops = _loops(clocks)
    loop, seen = loops.loop("reconciler", stall_seconds=30.0), list[tuple[Trouble, ...]]()
    loops.tick()

    def hanging() -> None:
        for _ in range(3_600):
            clocks.seconds += 1
            loops.tick()
        seen.append(loops.troubles())

    loop.turn(hanging)
    assert "no progress for 3600 s" in seen[0][0].error


def test_a_step_that_began_after_a_suspension_is_credited_nothing(clocks: _Clocks) -> None:
    """The first step after a pause is the likeliest to hang, and may begin before the watch sees the pause."""
    loops = _loops(clocks)
    loop, seen = loops.loop("report", stall_seconds=30.0), list[tuple[Trouble, ...]]()
    loops.tick()
    clocks.seconds += 8 * 3_600

    def hanging() -> None:
        for _ in range(60):
            clocks.seconds += 1
            loops.tick()
        seen.append(loops.troubles())

    loop.turn(hanging)
    assert len(seen[0]) == 1


def test_the_watch_ends_with_the_process(clocks: _Clocks) -> None:
    """It looks at the clock from a thread of its own until it is told to stop."""
    loops, stopped = _loops(clocks), threading.Event()
    looked, ask = threading.Event(), loops.clock_seconds

    def seconds() -> float:
        looked.set()
        return ask()

    loops.clock_seconds = seconds
    loops.watch(stopped)
    assert looked.wait(10)
    stopped.set()
    watching = [thread for thread in threading.enumerate() if thread.name == "loops"]
    for thread in watching:
        thread.join(10)
    assert not any(thread.is_alive() for thread in watching)


def test_a_step_that_is_not_under_way_cannot_get_on(clocks: _Clocks) -> None:
    """What is called outside of the loop begins no step that would never end."""
    loops = _loops(clocks)
    loop = loops.loop("applier", stall_seconds=30.0)
    loop.progressed()
    clocks.seconds += 60
    assert loops.troubles() == ()


def test_whoever_is_told_of_a_failure_may_fail_too(clocks: _Clocks) -> None:
    """The loop goes on, and is in trouble all the same."""
    loops, told = _loops(clocks), list[str]()
    loop: GuardedLoop = loops.loop("report")

    def tell(trouble: Trouble) -> None:
        told.append(trouble.error)
        raise OSError("the controller is away")

    loop.on_failure = tell
    loop.turn(_raising(ValueError("no report")))
    assert told == ["ValueError: no report"]
    assert [trouble.loop for trouble in loops.troubles()] == ["report"]


def test_the_same_error_is_logged_once(clocks: _Clocks, capsys: Any) -> None:
    """A thousand failures in a row are one line of the log; another error is another one."""
    loop = _loops(clocks).loop("applier")
    for _ in range(1_000):
        loop.turn(_raising(OSError(errno.ENOSPC, "No space left on device")))
    for _ in range(10):
        loop.turn(_raising(RocksError("Corruption")))
    assert capsys.readouterr().out.count("loop_failed") == 2
