"""Readers that read all the time: what each was answered is kept, to be compared with what may have been there."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anew.client.store import Store
from anew.client.topics import Topic
from tests.crash.jobs.oracle import Cell, Read, Row

_PAUSE_SECONDS = 0.2
"""Between two reads: a reader without a pause would take the processors from the drivers."""
_SCAN_EVERY = 10
_LIMIT = 100_000
_JOIN_SECONDS = 120.0


@dataclass
class Reader:
    """A thread that does something over and over again.

    Attributes:
        errors: What it was answered instead of an answer.
    """

    once: Callable[[], None]
    errors: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End after the read that is under way."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)
            assert not self._thread.is_alive(), "a reader does not end"

    def _run(self) -> None:
        began = time.monotonic()
        while not self._over.is_set():
            try:
                self.once()
            except Exception as error:  # noqa: BLE001 - whatever a reader gets is told
                self.errors.append(f"{time.monotonic() - began:.2f} s, {type(error).__name__}: {error}")
            self._over.wait(_PAUSE_SECONDS)


@dataclass
class StoreReads:
    """The reads of one store: keys by name, and now and then all of it."""

    store: Store
    keys: Sequence[str]
    reads: list[Read] = field(default_factory=list)

    def once(self) -> None:
        """Read once, and keep the answer."""
        self.reads.append(self.scanned() if len(self.reads) % _SCAN_EVERY == _SCAN_EVERY - 1 else self.got())

    def got(self) -> Read:
        """The keys."""
        began = time.monotonic()
        found = dict(zip(self.keys, self.store.get_many(list(self.keys)), strict=True))
        cells = {key: (str(one.value["text"]), one.written_at) for key, one in found.items() if one is not None}
        versions = frozenset(one.version for one in found.values() if one is not None)
        return Read(began, time.monotonic(), cells, versions)

    def scanned(self) -> Read:
        """Everything."""
        began = time.monotonic()
        cells: dict[str, Cell] = {row.key: (str(row.value["text"]), row.written_at) for row in self.store.scan()}
        return Read(began, time.monotonic(), cells)


@dataclass
class TopicReads:
    """The records of a topic that count, read on from where the last read ended."""

    topic: Topic
    rows: Counter[Row] = field(default_factory=Counter)
    waited: int = 0
    _next: dict[int, int] = field(default_factory=dict)
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def once(self) -> None:
        """Read what is new in each partition."""
        with self._reading:
            for partition in range(self.topic.view.partitions):
                self._read(partition)

    def _read(self, partition: int) -> None:
        found = self.topic.read_committed(self._next.get(partition, 0), partition=partition, limit=_LIMIT)
        following: Mapping[int, int] = found.following
        self._next[partition] = following[partition]
        self.waited += len(found.waiting)
        for record in found.records:
            text = None if record.value is None else str(record.value["text"])
            assert record.written_ms is not None, f"nobody says when {record} was written"
            self.rows[record.key, text, record.written_ms] += 1
