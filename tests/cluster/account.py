"""What was acknowledged, and what was read, while something happens to the cluster: an account beside anew's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anew.client.writer import Writer
from anew.core.errors import AnewError
from anew.core.feed import FeedPartition, PositionMap
from anew.runtime.connect import connect
from tests.cluster.commands import Anew, wait_until

KEYS = 400
_BATCH = 150
_PAUSE_SECONDS, _READ_PAUSE_SECONDS = 0.4, 0.2
"""A flush costs nodes and brokers about the same, however many records it has: few large ones leave the processors to
what happens to the cluster meanwhile."""
_JOIN_SECONDS = 60


@dataclass(slots=True)
class Writing:
    """Writes its own keys round and round, each key's value growing, every seventh write a delete.

    What the log cannot take is flushed again until it does, as a writer's contract says.
    """

    home: Path
    store: str
    prefix: str
    stopped: threading.Event
    held: dict[str, Any] = field(default_factory=dict)
    acknowledged: int = 0
    failures: list[AnewError] = field(default_factory=list)
    position: PositionMap = field(default_factory=PositionMap)

    def run(self) -> None:
        """Until told to stop; what is in ``held`` is acknowledged."""
        with connect(home=str(self.home)) as cluster, cluster.store(self.store).writer() as writer:
            count = 0
            while not self.stopped.is_set():
                written = dict(change_of(self.prefix, number) for number in range(count, count + _BATCH))
                write_changes(writer, written)
                count += _BATCH
                while True:
                    try:
                        self.position = writer.flush()
                        break
                    except AnewError as error:
                        self.failures.append(error)
                        self.stopped.wait(_PAUSE_SECONDS)
                self.held.update(written)
                self.acknowledged = count
                self.stopped.wait(_PAUSE_SECONDS)


def write_changes(writer: Writer, changes: Mapping[str, Any]) -> None:
    """Give a writer values, and None for deletes; nothing is acknowledged yet."""
    for key, value in changes.items():
        if value is None:
            writer.delete(key)
        else:
            writer.put(key, value)


def change_of(prefix: str, number: int) -> tuple[str, Any]:
    """The key and the value, None for a delete, of a writer's nth change."""
    return f"{prefix}{number % KEYS}", None if number % 7 == 6 else {"name": prefix, "age": number}


@dataclass(slots=True)
class Reading:
    """Reads keys that nobody writes, and notes every answer that is not as it must be."""

    home: Path
    store: str
    stopped: threading.Event
    keys: list[str]
    batches: int = 0
    versions: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Until told to stop."""
        with connect(home=str(self.home)) as cluster:
            store = cluster.store(self.store)
            while not self.stopped.is_set():
                try:
                    found = store.get_many(self.keys)
                except AnewError as error:
                    self.wrong.append(f"failed: {error}")
                    continue
                self.batches += 1
                seen = {cell.version for cell in found if cell is not None}
                names = [None if cell is None else cell.value["name"] for cell in found]
                if len(seen) != 1 or names != [f"name {key[1:]}" for key in self.keys]:
                    self.wrong.append(f"{seen}: {names}")
                elif not self.versions or self.versions[-1] not in seen:
                    self.versions += seen
                self.stopped.wait(_READ_PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class Account:
    """A store of twenty people under load: writers that keep account, and a reader that keeps watch."""

    anew: Anew
    store: str
    writers: tuple[Writing, ...]
    reader: Reading

    def await_writes(self, more: int = KEYS) -> None:
        """Wait until each writer had so many more writes acknowledged, and the reader has read."""
        before = [writer.acknowledged for writer in self.writers]
        batches = self.reader.batches
        wait_until(
            lambda: (
                all(w.acknowledged >= b + more for w, b in zip(self.writers, before, strict=True))
                and self.reader.batches > batches
            ),
            f"more writes; failures: {[w.failures[-1:] for w in self.writers]}, {self.reader.wrong[-1:]}",
        )

    @property
    def expected(self) -> dict[Any, Any]:
        """All that a scan must show; for when the writers have stopped."""
        held = {key: value for writer in self.writers for key, value in writer.held.items()}
        written = {json.dumps(key): value for key, value in held.items() if value is not None}
        return written | {f'"p{n}"': {"name": f"name {n}", "age": n + 20} for n in range(20)}

    def check(self, *options: str) -> None:
        """Every acknowledged write is there, nothing deleted is, and no read went wrong."""
        self.anew.here("store", "wait", self.store, "--position", self.position)
        assert self.anew.scan(self.store, *options) == self.expected
        assert self.reader.wrong == []

    @property
    def position(self) -> str:
        """Behind the last acknowledged write of each feed partition."""
        return furthest(writer.position for writer in self.writers)


def furthest(positions: Iterable[Mapping[FeedPartition, int]]) -> str:
    """Behind all of some positions, as ``store wait --position`` takes it."""
    offsets: dict[FeedPartition, int] = {}
    for position in positions:
        for at, offset in position.items():
            offsets[at] = max(offset, offsets.get(at, 0))
    return json.dumps(PositionMap(offsets).to_json())


@contextmanager
def under_load(anew: Anew, store: str, writers: int = 2) -> Iterator[Account]:
    """Writers and a reader on a store of twenty people, until the block ends.

    Raises:
        AssertionError: A writer or the reader ended by itself.
    """
    stopped = threading.Event()
    writing = tuple(Writing(anew.home, store, chr(ord("a") + n), stopped) for n in range(writers))
    account = Account(anew, store, writing, Reading(anew.home, store, stopped, [f"p{n}" for n in range(20)]))
    threads = [threading.Thread(target=run) for run in (*(one.run for one in writing), account.reader.run)]
    for thread in threads:
        thread.start()
    try:
        account.await_writes(_BATCH)
        yield account
        ended = [thread for thread in threads if not thread.is_alive()]
        assert not ended, f"ended by themselves: {ended}"
    finally:
        stopped.set()
        for thread in threads:
            thread.join(_JOIN_SECONDS)
