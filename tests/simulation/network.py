"""What lies between processes: calls that are delayed, fail, happen twice, or whose answer is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from anew.core.errors import OutcomeUnknown, Unreachable
from tests.simulation.world import Process, ProcessDied, World

_T = TypeVar("_T")
_ANSWER_MS = 10_000.0
THE_LOG = "the log"


@dataclass(frozen=True, slots=True)
class Faults:
    """How often things go wrong, per call.

    Attributes:
        fail: The call does not get there.
        lose: It is done, and nobody hears of it.
        twice: It is done twice.
        delay: It takes long.
        crash: The process that calls dies just then.
    """

    fail: float = 0.0
    lose: float = 0.0
    twice: float = 0.0
    delay: float = 0.0
    crash: float = 0.0


NONE = Faults()


@dataclass(frozen=True, slots=True)
class Called:
    """What is called, and how its failures are told: codes of `Unreachable` and `OutcomeUnknown`.

    ``changes``: whether it is a change, whose answer may be lost.
    """

    what: str
    unreachable: str
    unknown: str
    changes: bool


@dataclass(slots=True)
class Halt:
    """A process stands still for so long in the middle of what it appends, after so many more appends."""

    after: int
    ms: float


@dataclass(slots=True)
class Foul:
    """What each call of a process raises for a while, before anything is done.

    Attributes:
        new: Makes the error.
        what: Only calls to this; None: all.
        raised_ms: When it was raised in a loop of the process, the newest last.
    """

    new: Callable[[], Exception]
    what: str | None
    raised_ms: list[float] = field(default_factory=list)


def is_injected(error: BaseException | None) -> bool:
    """Whether an error is, or comes of, what a foul call raised."""
    if error is None:
        return False
    if getattr(error, "injected", False):
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(is_injected(one) for one in error.exceptions)
    return is_injected(error.__cause__) or is_injected(error.__context__)


class Network:
    """Carries calls between processes, and to logs, deep stores and catalogs.

    Attributes:
        faults: How often things go wrong, by the kind of the process that calls.
        log: What went wrong, for people.
        doomed: Kind of process → at what the next one of that kind dies.
        halts: Kind of process → where the next one of that kind stands still for a while.
        foul: Name of process → what its calls raise.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.faults: dict[str, Faults] = {}
        self.log: list[str] = []
        self.doomed: dict[str, str] = {}
        self.halts: dict[str, Halt] = {}
        self.foul: dict[str, Foul] = {}

    def point(self, what: str) -> None:
        """A place where the acting process may die, or another one may have its turn."""
        world = self.world
        world.check_alive()
        process = world.acting
        chance = world.random.random()
        doomed = self.doomed.get(process.kind) == what
        if doomed:
            del self.doomed[process.kind]
        if doomed or chance < self._faults(process).crash:
            self.say(f"{process.name} dies at: {what}")
            world.kill(process)
            raise ProcessDied(process)
        if chance > 0.97:
            world.sleep(world.random.random() * 20)

    def outside(self, called: Called, act: Callable[[], _T]) -> _T:
        """A call to something that is always there: a log, a deep store, a catalog.

        Raises:
            Unreachable: It did not get there.
            OutcomeUnknown: It was done, and the answer is lost.
        """
        world, random = self.world, self.world.random
        self.point(called.what)
        process = world.acting
        self._check_foul(process, called)
        if random.random() < self._faults(process).delay:
            world.sleep(random.random() * 3_000)
        if self.halts and called.changes and called.what == THE_LOG:
            self._halt(process)
        deaf = called.what == THE_LOG and process.deaf_until_ms > world.now_ms
        if random.random() < self._faults(process).fail or deaf:
            self.say(f"{process.name} cannot reach: {called.what}")
            raise Unreachable(called.unreachable, f"{called.what} does not answer")
        result = act()
        if called.changes:
            if random.random() < self._faults(process).crash:
                self.say(f"{process.name} dies after: {called.what}")
                world.kill(process)
                raise ProcessDied(process)
            if random.random() < self._faults(process).lose:
                self.say(f"{process.name} gets no answer: {called.what}")
                raise OutcomeUnknown(called.unknown, f"the answer of {called.what} was lost")
        return result

    def _faults(self, process: Process) -> Faults:
        """How often things go wrong now: a call that was on its way when it became calm arrives as all others do."""
        return self.faults.get(process.kind, NONE)

    def _check_foul(self, process: Process, called: Called) -> None:
        """Raise what the calls of a process raise now."""
        foul = self.foul.get(process.name)
        if foul is None or foul.what not in (None, called.what):
            return
        task = self.world.current
        # Of calls to the controller nobody can tell it; it tells that the node is silent.
        if task is not None and task.background and called.what != "the controller":
            foul.raised_ms.append(self.world.now_ms)
        error: Any = foul.new()
        error.injected = True
        raise error

    def _halt(self, process: Process) -> None:
        halt = self.halts.get(process.kind)
        if halt is None:
            return
        halt.after -= 1
        if halt.after < 0:
            del self.halts[process.kind]
            self.say(f"{process.name} stands still in the middle of an append")
            self.world.sleep(halt.ms)

    def between(self, server: Process | None, called: Called, act: Callable[[], _T]) -> _T:
        """A call that another process answers, in a task of its own.

        Raises:
            Unreachable: There is nobody, or the call did not get there.
            OutcomeUnknown: It may have been done.
        """
        world, random = self.world, self.world.random
        self.point(called.what)
        caller = world.acting
        self._check_foul(caller, called)
        if random.random() < self._faults(caller).delay:
            world.sleep(random.random() * 3_000)
        if server is None or server.dead or self.apart(caller, server) or random.random() < self._faults(caller).fail:
            raise Unreachable(called.unreachable, f"{called.what} is not answered")
        task = world.spawn(server, act, background=False)
        if random.random() < self._faults(caller).twice:
            self.say(f"{caller.name} asks twice: {called.what}")
            world.spawn(server, act, background=False)
        answered = world.join(task, _ANSWER_MS)
        lost = not answered or isinstance(task.error, ProcessDied) or self.apart(caller, server)
        if lost or (called.changes and random.random() < self._faults(caller).lose):
            self.say(f"{caller.name} gets no answer: {called.what}")
            if called.changes:
                raise OutcomeUnknown(called.unknown, f"the answer of {called.what} was lost")
            raise Unreachable(called.unreachable, f"{called.what} is not answered")
        if task.error is not None:
            raise task.error
        result: _T = task.result
        return result

    def apart(self, one: Process, other: Process) -> bool:
        """Whether a process is cut off just now."""
        return max(one.cut_off_until_ms, other.cut_off_until_ms) > self.world.now_ms

    def say(self, what: str) -> None:
        """Keep a line for people."""
        self.log.append(f"{(self.world.now_ms % 10_000_000) / 1000:9.3f} {what}")
