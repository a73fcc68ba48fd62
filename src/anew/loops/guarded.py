"""The guard of a process's long-running loops.

A loop is a step that is taken again and again. Whatever a step raises, the loop goes on: the error is logged once, the
pause before the next step rises, and until a step succeeds the loop is in *trouble*, which the process tells of. A step
that does not come to its end is trouble too: health is reported from progress, not from belief.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from anew.core.backoff import backoff_seconds

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
STALL_SECONDS = 60.0
"""A step that takes longer is told of, unless it says that it gets on (`GuardedLoop.progressed`)."""
_LOOK_SECONDS, _SUSPENDED_SECONDS = 1.0, 10.0
"""Between two looks at the clock; where the second passed instead, the process itself was suspended."""
_MOST_CHARACTERS = 500

_log = structlog.get_logger("anew.loops")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A loop that does not get on.

    Attributes:
        loop: Its name.
        error: What its last step raised, or that it has not ended.
        since_ms: When its last step that succeeded ended, or the one that hangs began.
        failures: How many steps in a row have failed.
    """

    loop: str
    error: str
    since_ms: int
    failures: int


@dataclass(slots=True)
class GuardedLoop:
    """One loop; made by `Loops.loop`. A step is taken by one thread, anything else may be asked by any.

    Attributes:
        on_failure: Called after each step that failed; may fail itself.
        doing: What its step works on, where it says so.
        failed_steps: How many steps have failed since the process began.
    """

    name: str
    stall_seconds: float
    _clock: Callable[[], int]
    _clock_seconds: Callable[[], float]
    _changed: Callable[[], None]
    on_failure: Callable[[Trouble], None] | None = None
    doing: str = ""
    failed_steps: int = 0
    _failures: int = 0
    _error: str | None = None
    _since_ms: int = 0
    _begun_at: float = math.inf
    _begun_ms: int = 0

    def run(self, step: Callable[[], None], stopped: threading.Event) -> None:
        """Take the step again and again until ``stopped`` is set; the step waits where there is nothing to do."""
        while not stopped.is_set():
            pause_seconds = self.turn(step)
            if pause_seconds:
                stopped.wait(pause_seconds)

    def turn(self, step: Callable[[], None]) -> float:
        """Take the step once; returns how many seconds to pause: none where it succeeded."""
        self._begun_at, self._begun_ms = self._clock_seconds(), self._clock()
        try:
            step()
        except Exception as error:  # noqa: BLE001 - told of, and logged with its traceback
            return self._failed(error)
        finally:
            self._begun_at = math.inf
        if self._error is not None:
            _log.info("loop_goes_on", loop=self.name, failures=self._failures)
            self._failures, self._error = 0, None
            self._changed()
        return 0.0

    def progressed(self) -> None:
        """The step under way gets on: it is not taken for one that hangs. Nothing where none is under way."""
        if math.isinf(self._begun_at):
            return
        self._begun_at, self._begun_ms = self._clock_seconds(), self._clock()

    def suspended(self, seconds: float) -> None:
        """Time that the process was suspended is not the step's."""
        # A step that began since has had no more time than it has.
        self._begun_at = min(self._begun_at + seconds, max(self._begun_at, self._clock_seconds()))

    @property
    def trouble(self) -> Trouble | None:
        """What is wrong now."""
        error = self._error
        if error is not None:
            return Trouble(self.name, error, self._since_ms, self._failures)
        taken = self._clock_seconds() - self._begun_at
        if taken > self.stall_seconds:
            doing = f" with {self.doing}" if self.doing else ""
            return Trouble(self.name, f"no progress for {taken:.0f} s{doing}", self._begun_ms, 0)
        return None

    def _failed(self, error: Exception) -> float:
        said = said_of(error)
        self.failed_steps += 1
        self._failures += 1
        if self._error is None:
            self._since_ms = self._begun_ms
        news = said != self._error
        self._error = said
        if news:
            _log.error("loop_failed", loop=self.name, error=said, failures=self._failures, exc_info=error)
            self._changed()
        trouble = self.trouble
        if self.on_failure is not None and trouble is not None:
            try:
                self.on_failure(trouble)
            except Exception:  # noqa: BLE001 - the loop goes on, whoever listens
                _log.exception("trouble_not_told", loop=self.name)
        return backoff_seconds(self._failures - 1, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)


@dataclass(slots=True)
class Loops:
    """The loops of a process. Safe to use from several threads.

    Attributes:
        clock: The time in ms since the epoch.
        changed: Called when a loop comes into trouble or out of it.
        clock_seconds: A monotonic clock.
    """

    clock: Callable[[], int]
    changed: Callable[[], None] = lambda: None
    clock_seconds: Callable[[], float] = time.monotonic
    _loops: dict[str, GuardedLoop] = field(default_factory=dict)
    _looked_at: float = math.inf

    def loop(self, name: str, stall_seconds: float = STALL_SECONDS) -> GuardedLoop:
        """The loop of that name, which is made when it is asked for first."""
        found = self._loops.get(name)
        if found is None:
            found = GuardedLoop(name, stall_seconds, self.clock, self.clock_seconds, lambda: self.changed())
            self._loops[name] = found
        return found

    def watch(self, stopped: threading.Event) -> None:
        """Notice when the process was suspended, from a thread of its own, until ``stopped`` is set."""
        threading.Thread(target=self._watch, args=(stopped,), name="loops", daemon=True).start()

    def tick(self) -> None:
        """Look at the clock. Where more time has passed than between two looks, nobody's step has had it."""
        now = self.clock_seconds()
        gap, self._looked_at = now - self._looked_at, now
        if gap > _SUSPENDED_SECONDS:
            _log.warning("process_was_suspended", seconds=round(gap, 1))
            for loop in self._loops.copy().values():
                loop.suspended(gap)

    def troubles(self) -> tuple[Trouble, ...]:
        """What is wrong now, by name."""
        loops = [self._loops[name] for name in sorted(self._loops.copy())]
        return tuple(trouble for loop in loops if (trouble := loop.trouble) is not None)

    def _watch(self, stopped: threading.Event) -> None:
        while not stopped.wait(_LOOK_SECONDS):
            self.tick()

    def failed_steps(self) -> dict[str, int]:
        """Loop → how many of its steps have failed since the process began."""
        return {name: loop.failed_steps for name, loop in sorted(self._loops.copy().items())}


def said_of(error: BaseException) -> str:
    """An error in one line, with its kind where it is none of ours."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(said_of(one) for one in error.exceptions)[:_MOST_CHARACTERS]
    text = " ".join([*getattr(error, "__notes__", ()), str(error)]).strip()
    text = " ".join(text.split())
    kind = type(error).__name__
    named = text if type(error).__module__.startswith("anew.") and text else f"{kind}: {text}" if text else kind
    return named[:_MOST_CHARACTERS]
