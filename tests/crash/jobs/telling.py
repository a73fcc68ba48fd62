"""Histories from their beginning to their end, some beside one another, and what is said of one that is broken."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.crash.jobs.drawing import History, history_of
from tests.crash.jobs.place import Place
from tests.crash.jobs.steps import Steps

BESIDE = 3
"""So many histories run at once: each has one or two JVMs, which mostly wait."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a history.

    Attributes:
        broken: What was not as it must be; None: all was.
        log: What happened.
    """

    history: History
    counts: Counter[str]
    log: tuple[str, ...]
    broken: str | None = None

    def report(self, flags: str = "") -> str:
        """What happened, what is broken, and how it is run again, for people."""
        again = f"run it alone: .venv/bin/python -m tests.crash.jobs --histories 1 --seed {self.history.seed}{flags}"
        of = self.history
        drawn = f"{of.output}, {of.partitions} partitions, {of.function} from {of.start}, {of.max_records} a batch"
        said = "nothing broken" if self.broken is None else f"BROKEN: {self.broken}"
        return "\n".join([f"history {of.seed}: {drawn}, quiet {of.quiet}", *self.log, said, again])


@dataclass(slots=True)
class Outcomes:
    """Of several histories."""

    of: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def counts(self) -> Counter[str]:
        """How often which thing happened in all of them."""
        return sum((each.counts for each in self.of), Counter[str]())

    def broken(self, flags: str = "") -> list[str]:
        """What is said of those that are broken."""
        return [each.report(flags) for each in self.of if each.broken is not None]


def tell(history: History, place: Place) -> Outcome:
    """Run a history to its end, or to what is broken."""
    run = Steps(history, place)
    broken = None
    try:
        run.tell("begin")
        run.make()
        run.submit()
        for step in history.steps:
            run.take(step)
        run.settle()
        run.tell("compare all reads")
        run.check_reads()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told with the history
        run.tell("broken")
        broken = f"{type(error).__name__}: {error}"
    try:
        run.end()
    except AssertionError as error:
        broken = broken or f"it does not end: {error}"
    return Outcome(history, run.counts, tuple(run.log), broken)


def tell_all(
    seeds: Iterable[int],
    place: Place,
    seconds: float | None = None,
    told: Callable[[Outcome], None] = lambda _: None,
) -> Outcomes:
    """Run histories beside one another.

    Args:
        seeds: Theirs.
        place: Where they run.
        seconds: After so long no other one begins; nor does one after one that is broken.
        told: Is given each as it ends, by several threads.
    """
    began, found = time.monotonic(), Outcomes()

    def one(seed: int) -> Outcome | None:
        late = seconds is not None and time.monotonic() - began > seconds
        if late or found.broken():
            return None
        outcome = tell(history_of(seed), place)
        found.of.append(outcome)
        told(outcome)
        return outcome

    with ThreadPoolExecutor(BESIDE) as pool:
        for _ in pool.map(one, seeds):
            pass
    found.seconds = time.monotonic() - began
    return found
