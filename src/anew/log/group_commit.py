"""Group commit: appends that threads of one process make to one partition at once share one transaction.

The first thread that finds nobody committing becomes the leader: it takes all that waits, commits it in one
transaction, gives each caller its own outcome and hands leadership to the first of those who came meanwhile.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anew.core.errors import AnewError, OutcomeUnknown, Unreachable
from anew.log.interface import Appended
from anew.log.packing import Appending

Outcome = Appended | AnewError
Commit = Callable[[Sequence[Appending]], list[Outcome]]
"""Commits batches in one transaction; one outcome each, in order. An error that it raises is everybody's."""

_MOST_RECORDS = 200_000


@dataclass(eq=False, slots=True)
class _Waiting:
    """One caller's batch on its way: woken with an outcome, or without one to become the leader."""

    batch: Appending
    woken: threading.Event = field(default_factory=threading.Event)
    outcome: Outcome | None = None


class GroupCommit:
    """The queue of one partition."""

    def __init__(self, commit: Commit, timeout_seconds: float) -> None:
        self._commit = commit
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._led = False

    def append(self, batch: Appending) -> Appended:
        """Append a batch together with those of other threads; see `anew.log.interface.Log.append`."""
        mine = _Waiting(batch)
        with self._lock:
            self._waiting.append(mine)
            leads, self._led = not self._led, True
        if not leads:
            self._wait(mine)
        if mine.outcome is None:
            self._lead()
        assert mine.outcome is not None, "a leader commits its own batch first"
        if isinstance(mine.outcome, AnewError):
            raise mine.outcome
        return mine.outcome

    def _wait(self, mine: _Waiting) -> None:
        if mine.woken.wait(self._timeout_seconds):
            return
        with self._lock:
            if not mine.woken.is_set() and mine in self._waiting:
                self._waiting.remove(mine)
                mine.outcome = Unreachable(
                    "log_unreachable",
                    "the embedded log does not take the append in time",
                    expected=f"a turn within {self._timeout_seconds} s",
                )
                return
        mine.woken.wait()  # a leader has it, and a leader has a deadline of its own

    def _lead(self) -> None:
        taken = self._take()
        outcomes: list[Outcome] = [_interrupted()] * len(taken)
        try:
            outcomes = self._commit([waiting.batch for waiting in taken])
        except AnewError as error:
            outcomes = [copy.copy(error) for _ in taken]  # each thread raises an error of its own
        finally:
            for waiting, outcome in zip(taken, outcomes, strict=True):
                waiting.outcome = outcome
                waiting.woken.set()
            self._hand_over()

    def _take(self) -> list[_Waiting]:
        """What is committed together: all that waits, up to a number of records, but at least the first."""
        with self._lock:
            count, records = 0, 0
            for waiting in self._waiting:
                records += waiting.batch.count
                if count and records > _MOST_RECORDS:
                    break
                count += 1
            taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def _hand_over(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting[0].woken.set()
            else:
                self._led = False


def _interrupted() -> OutcomeUnknown:
    return OutcomeUnknown(
        "append_unknown",
        "the thread that committed the append was interrupted",
        hint="repeat the append under its id, which finds it if it was committed",
    )
