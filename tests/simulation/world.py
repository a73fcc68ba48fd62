"""Virtual time, and processes that are scheduled one at a time: what happens next depends on the seed alone.

A process is a group of greenlets. A greenlet gives way only where it waits: for time, or for an answer from another
process. So a history is the same each time, and a crash happens exactly at a point where a process touches the world.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import greenlet

from anew.testing.clock import NOON_MS

_T = TypeVar("_T")


class ProcessDied(BaseException):
    """Ends the greenlets of a process that was killed; nobody may catch it, and nothing that runs on has an effect."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.name)
        self.process = process


class TooLong(Exception):
    """A history went on without end."""


@dataclass(eq=False, slots=True)
class Process:
    """A process as the world sees it.

    Attributes:
        skew_ms: How far its clock is off.
        stopped_until_ms: It stands still until then (SIGSTOP).
        cut_off_until_ms: Other processes do not hear from it until then, nor it from them.
        deaf_until_ms: The log does not answer it until then.
        ends: Called when it dies, to let go of what a system takes from a dead process (locks).
        held: What would have gone on while it stood still: tasks, with the turn that is theirs.
    """

    name: str
    kind: str
    born_ms: float
    skew_ms: int = 0
    dead: bool = False
    stopped_until_ms: float = 0.0
    cut_off_until_ms: float = 0.0
    deaf_until_ms: float = 0.0
    ends: list[Callable[[], None]] = field(default_factory=list)
    held: list[tuple[Task, int]] = field(default_factory=list)


class Task:
    """A greenlet of a process, and what it came to."""

    def __init__(self, world: World, process: Process, run: Callable[[], Any], *, background: bool) -> None:
        self.process = process
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.background = background
        self._world = world
        self._run = run
        self.waiters: list[Task] = []
        self.turn = 0
        self.green = greenlet.greenlet(self._main, parent=world.hub)

    def give_up(self) -> None:
        """End it before it began: its process is dead."""
        self.error = ProcessDied(self.process)
        self._end()

    def _main(self) -> None:
        try:
            self.result = self._run()
        except ProcessDied as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - handed to whoever waits, or to the world
            self.error = error
        self._end()

    def _end(self) -> None:
        self.done = True
        for waiter in self.waiters:
            self._world.schedule(waiter, self._world.now_ms)
        if self.error is not None and self.background and not isinstance(self.error, ProcessDied):
            self._world.broken.append(Broken(self.process, self.error))


@dataclass(frozen=True, slots=True)
class Broken:
    """An error that nobody may raise, and whose it is."""

    process: Process
    error: BaseException | None


class World:
    """The scheduler.

    Attributes:
        now_ms: Virtual time.
        random: The one source of chance.
        current: The task that runs.
        broken: Background tasks that ended with an error, and loops that nobody's fault broke: none may.
    """

    def __init__(self, seed: int, most_switches: int = 400_000) -> None:
        self.now_ms = float(NOON_MS)
        self.random = random.Random(seed)
        self.hub = greenlet.getcurrent()
        self.current: Task | None = None
        self.broken: list[Broken] = []
        self._queue: list[tuple[float, int, Task, int]] = []
        self._order = itertools.count()
        self._left = most_switches
        self._kept: list[object] = []

    # -- processes and tasks -------------------------------------------------------------------------------------------

    def process(self, name: str, kind: str) -> Process:
        """A new process with a clock of its own, a little off."""
        return Process(name, kind, self.now_ms, skew_ms=self.random.randint(-400, 400))

    def spawn(self, process: Process, run: Callable[[], Any], *, background: bool = True) -> Task:
        """Begin a task; it runs when it is its turn."""
        task = Task(self, process, run, background=background)
        self.schedule(task, self.now_ms)
        return task

    def kill(self, process: Process) -> None:
        """End a process as SIGKILL does: its tasks go no further, whatever they were about."""
        process.dead = True
        for end in process.ends:
            end()

    def wake(self, process: Process) -> None:
        """Let a process that stands still go on (SIGCONT)."""
        process.stopped_until_ms = 0.0
        for task, turn in process.held:
            if not task.done and turn == task.turn:
                self.schedule(task, self.now_ms)
        process.held.clear()

    def schedule(self, task: Task, at_ms: float) -> None:
        """Let a task go on at a time, unless it has gone on before."""
        heapq.heappush(self._queue, (at_ms, next(self._order), task, task.turn))

    def keep(self, thing: object) -> None:
        """Keep something that a dead process left behind from being tidied away."""
        self._kept.append(thing)

    @property
    def acting(self) -> Process:
        """The process that runs."""
        if self.current is None:
            raise AssertionError("no process runs")
        return self.current.process

    # -- waiting: called by tasks --------------------------------------------------------------------------------------

    def sleep(self, ms: float) -> None:
        """Wait; other tasks run meanwhile."""
        task = self.current
        if task is None:
            raise AssertionError("only a task can wait")
        self.schedule(task, self.now_ms + ms)
        self._give_way(task)

    def join(self, task: Task, most_ms: float) -> bool:
        """Wait until a task is done; whether it is within the time."""
        if not task.done:
            mine = self.current
            if mine is None:
                raise AssertionError("only a task can wait")
            until = self.now_ms + most_ms
            task.waiters.append(mine)
            while not task.done and self.now_ms < until:
                self.schedule(mine, until)
                self._give_way(mine)
            if mine in task.waiters:
                task.waiters.remove(mine)
        return task.done

    def check_alive(self) -> None:
        """Raise in a process that was killed."""
        if self.current is not None and self.current.process.dead:
            raise ProcessDied(self.current.process)

    def _give_way(self, task: Task) -> None:
        self.hub.switch()
        task.turn += 1
        self.current = task
        if task.process.dead:
            raise ProcessDied(task.process)

    # -- running: called by the hub ------------------------------------------------------------------------------------

    def run_until(self, task: Task, most_ms: float) -> None:
        """Run everything until a task is done.

        Raises:
            TooLong: It was not within the virtual time, or there were too many turns.
            Exception: What the task ended with.
        """
        until = self.now_ms + most_ms
        while not task.done:
            if not self._turn() or self.now_ms > until:
                raise TooLong(f"not done after {(self.now_ms - until + most_ms) / 1000:.1f} s")
        if task.error is not None:
            raise task.error

    def _turn(self) -> bool:
        while self._queue:
            at_ms, _, task, turn = heapq.heappop(self._queue)
            if task.done or turn != task.turn:
                continue
            process = task.process
            if process.dead and not task.green:
                task.give_up()
                continue
            if process.stopped_until_ms > max(at_ms, self.now_ms) and not process.dead:
                process.held.append((task, turn))
                self.schedule(task, process.stopped_until_ms)
                continue
            self.now_ms = max(self.now_ms, at_ms)
            self._left -= 1
            if self._left < 0:
                raise TooLong("too many turns")
            self.current = task
            task.green.switch()
            self.current = None
            return True
        return False
