"""The processor time of several processes and all below them, also of those that ended meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

_LOOK_SECONDS = 0.1
"""What a process uses after the last look at it is lost where nobody waits for it: its parent is not told then."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_Key = tuple[int, float]


@dataclass(slots=True)
class _Seen:
    """A process as it was at the last look at it.

    Attributes:
        own: What it used itself, in the kernel's ticks, like all that is added up here: whole numbers have one sum in
            any order.
        of_ended: Those of its children that have ended, as the kernel adds them up: of those that it waited for.
        credited: What counts of its ended children: at least what each was seen to use.
        ahead: How much of that the kernel has not added up (yet).
    """

    parent: _Key | None
    own: int = 0
    of_ended: int = 0
    credited: int = 0
    ahead: int = 0

    @property
    def used(self) -> int:
        return self.own + self.credited


class ProcessorTime:
    """Adds up what processes use; looks again and again while it is `counted`, so that short ones are seen.

    The kernel tells of ended processes only what a parent waited for: of Spark's Python workers, whose parent ignores
    their ends, nothing is left. So each process that was seen is remembered with what it had used.
    """

    def __init__(self, roots: Sequence[psutil.Process]) -> None:
        """Nothing is looked at yet; ``roots`` are processes that are counted with all below them."""
        self._roots = {_key(root) for root in roots}
        self._lock = threading.Lock()
        self._seen: dict[_Key, _Seen] = {}
        self._ended_ticks = 0

    def seconds(self) -> float:
        """What they have used until now: it never becomes less. What was used before the first look counts too."""
        with self._lock:
            self._look()
            return (self._ended_ticks + sum(seen.used for seen in self._seen.values())) / _TICKS_PER_SECOND

    @contextmanager
    def counted(self) -> Iterator[ProcessorTime]:
        """Look every tenth of a second, for as long as the block lasts."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(_LOOK_SECONDS):
                self.seconds()

        self.seconds()
        thread = threading.Thread(target=look, name="processor time", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    def _look(self) -> None:
        found = _processes()
        below = self._below(found)
        fresh = self._ended({key: found[key] for key in below})
        for key in below:
            now = found[key]
            seen = self._seen.get(key)
            if seen is None:
                # What its children used before anything was counted is part of what it has used.
                now.credited = now.of_ended
                self._seen[key] = now
                continue
            gained, ended = max(0, now.of_ended - seen.of_ended), fresh.get(key, 0)
            seen.credited += ended + max(0, gained - seen.ahead - ended)
            seen.ahead = max(0, seen.ahead + ended - gained)
            seen.own, seen.of_ended = max(seen.own, now.own), max(seen.of_ended, now.of_ended)

    def _below(self, found: dict[_Key, _Seen]) -> list[_Key]:
        """The roots, all that are below them, and all that were: one whose parent ended is below another process."""
        children: dict[_Key, list[_Key]] = {}
        for key, seen in found.items():
            if seen.parent is not None:
                children.setdefault(seen.parent, []).append(key)
        waiting = [key for key in {*self._roots, *self._seen} if key in found]
        reached: dict[_Key, None] = dict.fromkeys(waiting)
        while waiting:
            for child in children.get(waiting.pop(), ()):
                if child not in reached:
                    reached[child] = None
                    waiting.append(child)
        return list(reached)

    def _ended(self, present: dict[_Key, _Seen]) -> dict[_Key, int]:
        """What ended processes had used, by the parents that go on; of the others it is kept here."""
        fresh: dict[_Key, int] = {}
        for key in [key for key in self._seen if key not in present]:
            seen = self._seen.pop(key)
            if seen.parent in present and seen.parent in self._seen:
                fresh[seen.parent] = fresh.get(seen.parent, 0) + seen.used
            else:
                self._ended_ticks += seen.used
        return fresh


def _key(process: psutil.Process) -> _Key:
    return process.pid, process.create_time()


def _ticks(seconds: float) -> int:
    return round(seconds * _TICKS_PER_SECOND)


def _processes() -> dict[_Key, _Seen]:
    """All processes of this machine that can be seen."""
    keys, times, parents = {}, {}, {}
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                keys[process.pid], times[process.pid] = _key(process), process.cpu_times()
                parents[process.pid] = process.ppid()
        except psutil.Error:
            continue
    return {
        keys[pid]: _Seen(
            keys.get(parents[pid]),
            _ticks(own.user) + _ticks(own.system),
            _ticks(own.children_user) + _ticks(own.children_system),
        )
        for pid, own in times.items()
        if pid in parents
    }
