"""One store through twenty reconfigurations by repush alone, under writes and reads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from anew.client.store import Store
from anew.core.errors import Refused
from anew.runtime.connect import connect
from tests.cluster.account import Reading, furthest
from tests.cluster.commands import Anew, wait_until

_NAME, _KEYS, _SEED = "many", 150, 20
_BATCH, _PAUSE_SECONDS = 150, 0.6
"""A flush costs nodes about the same, however many records it has: few large ones leave the processors to the rest."""
_PARTITIONER = "tests.cluster.placing:ByLastByte"
Step = tuple[str, ...]
_STEPS: list[Step] = [
    ("partitions=5",),
    ("partitions=4",),
    ("partitions=8",),
    ("amplification_factor=2",),
    ("amplification_factor=3",),
    ("amplification_factor=1",),
    ("compression=gzip",),
    ("compression=zstd",),
    ("compression=zstd_dict",),
    ("compression=none",),
    ("transport=log",),
    ("transport=files",),
    ("transport=log", "amplification_factor=2"),
    (f"partitioner={_PARTITIONER}", 'partitioner_params={"plus": 3}'),
    ("partitioner=xxhash64", "partitioner_params={}"),
    ("replicas=1",),
    ("replicas=2", "tombstone_grace_seconds=30"),
    ("rewind_from=eop", "lag_limit_records=500"),
    ("hybrid=false", "then", "hybrid=true"),
    ("ttl",),
    ("ttl",),
    ("rollback",),
    ("sort",),
]


@dataclass(slots=True)
class _Writer:
    """Writes its keys round and round with its own times, every seventh write a delete, and one key for ever.

    Attributes:
        held: Key → (value, written at, in ms) of what was acknowledged.
        doubtful: Key → what a flush that was refused may have written besides.
    """

    home: Path
    prefix: str
    stopped: threading.Event
    paused: threading.Event
    resting: threading.Event = field(default_factory=threading.Event)
    held: dict[str, tuple[Any, int]] = field(default_factory=dict)
    doubtful: dict[str, tuple[Any, int]] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    position: dict[Any, int] = field(default_factory=dict)
    count: int = 0

    def run(self) -> None:
        """Until told to stop; rests while told to pause."""
        with connect(home=str(self.home)) as cluster:
            store = cluster.store(_NAME)
            while not self.stopped.is_set():
                if self.paused.is_set():
                    self.resting.set()
                    self.stopped.wait(0.01)
                    continue
                self.resting.clear()
                try:
                    self._write(store)
                except Refused as error:
                    # Writes are closed while the store is a batch store: they go on when it takes them again.
                    self.refusals.append(error.code)
                    self.stopped.wait(0.05)

    def _write(self, store: Store) -> None:
        with store.writer() as writer:
            while not (self.stopped.is_set() or self.paused.is_set()):
                written: dict[str, tuple[Any, int]] = {}
                for number in range(_BATCH):
                    self.count += 1
                    key = f"{self.prefix}{self.count % _KEYS}" if number else f"{self.prefix}-once-{self.count}"
                    value = None if self.count % 7 == 6 and number else {"name": self.prefix, "age": self.count}
                    written[key] = (value, int(time.time() * 1000))
                    if value is None:
                        writer.delete(key, written_at=written[key][1])
                    else:
                        writer.put(key, value, written_at=written[key][1])
                try:
                    position = writer.flush()
                except Refused:
                    self.doubtful |= written
                    raise
                self.position |= position
                self.held |= written
                for key in written:
                    self.doubtful.pop(key, None)
                self.stopped.wait(_PAUSE_SECONDS)


@dataclass(slots=True)
class _Load:
    """Writers and a reader at work."""

    anew: Anew
    writers: list[_Writer]
    reader: Reading
    paused: threading.Event

    def wait_for_writes(self, before: list[int], after: tuple[str, ...]) -> None:
        """Until each writer has written all its keys again."""
        pairs = list(zip(self.writers, before, strict=True))
        wait_until(lambda: all(w.count > count + _KEYS for w, count in pairs), f"writes to go on after {after}")

    def check(self, what: str) -> None:
        """Stop writing for a moment, and compare every key of the current version with the model."""
        self.paused.set()
        wait_until(lambda: all(writer.resting.is_set() for writer in self.writers), "the writers to rest")
        with connect(home=str(self.anew.home)) as cluster:
            store, view = cluster.store(_NAME), cluster.controller.snapshot(_NAME).store
            current = view.version(view.current["dc-0"])
            assert current is not None
            if current.config.hybrid:
                position = furthest(writer.position for writer in self.writers)
                self.anew.here("store", "wait", _NAME, "--position", position)
            found = {row.key: row.value for row in store.scan()}
        expected: dict[str, list[Any]] = {f"p{n}": [{"name": f"name {n}", "age": n + 20}] for n in range(20)}
        for writer in self.writers:
            for key in {**writer.held, **writer.doubtful}:
                # Of what a refused flush may have written nobody knows; before it there was what was acknowledged.
                allowed = [writer.held.get(key, (None, 0)), *([writer.doubtful[key]] if key in writer.doubtful else [])]
                lives = [value if at >= current.ttl_floor_ms else None for value, at in allowed]
                expected[key] = lives
        wrong = {
            key: (found.get(key), allowed) for key, allowed in expected.items() if found.get(key) not in allowed
        } | {key: (value, "nothing") for key, value in found.items() if key not in expected}
        assert wrong == {}, f"after {what}, version {current.number}: {len(wrong)} keys differ"
        assert self.reader.wrong == []
        self.paused.clear()


@contextmanager
def _load(anew: Anew) -> Iterator[_Load]:
    stopped, paused = threading.Event(), threading.Event()
    writers = [_Writer(anew.home, prefix, stopped, paused) for prefix in ("a", "b")]
    reader = Reading(anew.home, _NAME, stopped, [f"p{number}" for number in range(20)])
    runs: list[Callable[[], None]] = [*(writer.run for writer in writers), reader.run]
    threads = [threading.Thread(target=run) for run in runs]
    for thread in threads:
        thread.start()
    try:
        yield _Load(anew, writers, reader, paused)
    finally:
        stopped.set()
        for thread in threads:
            thread.join(30)


@pytest.fixture(scope="module")
def reconfigurations() -> list[Step]:
    """More than twenty, in random order."""
    steps = list(_STEPS)
    random.Random(_SEED).shuffle(steps)
    return steps


@pytest.mark.timeout(1_500)
@pytest.mark.case(
    "stores:H4", "stores:H5", "stores:H6", "stores:H9", "stores:I1", "stores:F8", "stores:E1", "rules:R10"
)
def test_reconfigurations_lose_nothing_and_fail_no_read(
    anew: Anew, people: Path, reconfigurations: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, by repush alone, with time to live and rollback among them: every key equals the model."""
    monkeypatch.chdir(Path(__file__).parents[2])
    # Long enough to roll back to the version before; else the nodes would hold twenty of them.
    anew.create(_NAME, "hybrid=true", "partitions=2", "rt_partitions=8", "backup_retention_seconds=90")
    anew.push(_NAME, people)
    with _load(anew) as load:
        wait_until(lambda: all(w.count > 2 * _KEYS for w in load.writers) and load.reader.batches > 0, "load")
        for step in reconfigurations:
            for change in _changes(step):
                before = [writer.count for writer in load.writers]
                _apply(anew, change)
                load.check(str(change))
                if "hybrid=false" not in change:
                    load.wait_for_writes(before, change)
        assert load.reader.batches > len(reconfigurations)
        assert {code for writer in load.writers for code in writer.refusals} <= {"topic_closed", "not_hybrid"}
        assert any(writer.refusals for writer in load.writers), "writes were closed once"
    verified = anew.here("store", "verify", _NAME)
    assert (verified["equal"], verified["differences"]) == (True, [])


def _changes(step: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [step[:1], step[2:]] if "then" in step else [step]


def _apply(anew: Anew, change: tuple[str, ...]) -> None:
    """One reconfiguration: the settings that change, then a repush."""
    match change:
        case ("rollback",):
            anew.here("rollback", _NAME)
        case ("ttl",):
            done = anew.here("repush", _NAME, "-D", "repush.ttl.enable=true", "-D", "repush.ttl.seconds=4")
            assert done["kind"] == "ttl_repush"
        case ("sort",):
            done = anew.here("repush", _NAME, "-D", "kafka.input.combiner.enabled=true")
            assert done["plan"]["path"] == "copartitioned"
        case _:
            anew.here("store", "update", _NAME, *(part for setting in change for part in ("--set", setting)))
            done = anew.here("repush", _NAME)
            assert done["status"] == "succeeded"
