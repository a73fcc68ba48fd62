"""Logs, deep stores and catalogs as processes reach them: over a network that fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from anew.core.errors import OutcomeUnknown, Unreachable
from anew.deepstore.interface import DeepStore, StoredFile
from anew.log.interface import (
    Appended,
    Log,
    LogRead,
    Offsets,
    Retention,
    SetAside,
    TopicFacts,
    TopicPartition,
    TopicSpec,
)
from tests.simulation.network import THE_LOG, Called, Network
from tests.simulation.world import ProcessDied

_T = TypeVar("_T")

_HINTS_LOST = 0.1
_LOG_READ = Called(THE_LOG, "log_unreachable", "log_unreachable", changes=False)
_LOG_ACT = Called(THE_LOG, "log_unreachable", "append_unknown", changes=True)
_FILES_READ = Called("the deep store", "deep_store_unreachable", "deep_store_unreachable", changes=False)
_FILES_ACT = Called("the deep store", "deep_store_unreachable", "deep_store_unreachable", changes=True)


@dataclass(slots=True)
class LogWatch:
    """Is told of truncations before they happen, and of appends once they are acknowledged."""

    truncates: Callable[[TopicPartition, int], None] = lambda _at, _offset: None
    acknowledged: Callable[[TopicPartition, Appended, pa.RecordBatch], None] = lambda _at, _appended, _records: None


class FarLog:
    """A log over the network."""

    def __init__(self, network: Network, log: Log, watch: LogWatch) -> None:
        """Reach a log."""
        self._network, self._log, self._watch = network, log, watch

    def create_topic(self, spec: TopicSpec) -> TopicSpec:
        """See `Log.create_topic`."""
        return self._act(lambda: self._log.create_topic(spec))

    def set_open(self, spec: TopicSpec, *, is_open: bool, epoch: int) -> None:
        """See `Log.set_open`."""
        self._act(lambda: self._log.set_open(spec, is_open=is_open, epoch=epoch))

    def delete_topic(self, name: str, uid: str) -> None:
        """See `Log.delete_topic`."""
        self._act(lambda: self._log.delete_topic(name, uid))

    def add_partitions(self, name: str, uid: str, partitions: int) -> int:
        """See `Log.add_partitions`."""
        return self._act(lambda: self._log.add_partitions(name, uid, partitions))

    def set_retention(self, name: str, uid: str, retention: Retention) -> None:
        """See `Log.set_retention`."""
        self._act(lambda: self._log.set_retention(name, uid, retention))

    def partition_count(self, name: str, uid: str) -> int:
        """See `Log.partition_count`."""
        return self._network.outside(_LOG_READ, lambda: self._log.partition_count(name, uid))

    def topic(self, name: str) -> TopicSpec | None:
        """See `Log.topic`."""
        return self._network.outside(_LOG_READ, lambda: self._log.topic(name))

    def facts(self, name: str, uid: str) -> TopicFacts:
        """See `Log.facts`."""
        return self._network.outside(_LOG_READ, lambda: self._log.facts(name, uid))

    def apply_retention(self, at: TopicPartition, retention: Retention) -> int:
        """See `Log.apply_retention`."""
        return self._act(lambda: self._log.apply_retention(at, retention))

    def append(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        """See `Log.append`."""
        appended = self._network.outside(_LOG_ACT, lambda: self._log.append(at, records))
        self._watch.acknowledged(at, appended, records)
        return appended

    def append_raw(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        """See `Log.append_raw`."""
        return self._network.outside(_LOG_ACT, lambda: self._log.append_raw(at, records))

    def read_raw(self, at: TopicPartition, offset: int, max_records: int, end: int | None = None) -> LogRead:
        """See `Log.read_raw`."""
        return self._network.outside(_LOG_READ, lambda: self._log.read_raw(at, offset, max_records, end))

    def read(self, at: TopicPartition, offset: int, max_records: int, end: int | None = None) -> LogRead:
        """See `Log.read`."""
        return self._network.outside(_LOG_READ, lambda: self._log.read(at, offset, max_records, end))

    def fetch_ahead(self, places: Mapping[TopicPartition, int], *, raw: bool = False) -> None:
        """See `Log.fetch_ahead`."""
        self._log.fetch_ahead(places)

    def touched(self, topics: Collection[str]) -> Collection[str] | None:
        """See `Log.touched`; a hint may fail to come."""
        told = self._log.touched(topics)
        chance = self._network.world.random
        return None if told is None else {topic for topic in sorted(told) if chance.random() >= _HINTS_LOST}

    def offsets(self, at: TopicPartition) -> Offsets:
        """See `Log.offsets`."""
        return self._network.outside(_LOG_READ, lambda: self._log.offsets(at))

    def next_offset(self, at: TopicPartition) -> int:
        """See `Log.next_offset`."""
        return self._network.outside(_LOG_READ, lambda: self._log.next_offset(at))

    def offset_for_time(self, at: TopicPartition, appended_ms: int) -> int:
        """See `Log.offset_for_time`."""
        return self._network.outside(_LOG_READ, lambda: self._log.offset_for_time(at, appended_ms))

    def truncate_below(self, at: TopicPartition, offset: int) -> None:
        """See `Log.truncate_below`."""

        def act() -> None:
            self._watch.truncates(at, offset)
            self._log.truncate_below(at, offset)

        self._act(act)

    def set_aside(self, at: TopicPartition, letters: Sequence[SetAside], to: TopicPartition) -> int:
        """See `Log.set_aside`."""
        return self._network.outside(_LOG_ACT, lambda: self._log.set_aside(at, letters, to))

    def close(self) -> None:
        """See `Log.close`."""

    def _act(self, act: Callable[[], _T]) -> _T:
        # Only an append can have an unknown outcome; all else is done again by whoever wants it.
        try:
            return self._network.outside(_LOG_ACT, act)
        except OutcomeUnknown as error:
            raise Unreachable("log_unreachable", error.message) from error


class FarDeepStore:
    """A deep store over the network."""

    def __init__(self, network: Network, store: DeepStore, watch: Callable[[str], None]) -> None:
        """Reach a deep store; ``watch`` is told of each file before it is removed."""
        self._network, self._store, self._watch = network, store, watch

    @property
    def root_uri(self) -> str:
        """See `DeepStore.root_uri`."""
        return self._store.root_uri

    def check(self) -> None:
        """See `DeepStore.check`."""
        self._network.outside(_FILES_READ, self._store.check)

    def absolute(self, path: str) -> str:
        """See `DeepStore.absolute`."""
        return self._store.absolute(path)

    @contextmanager
    def write(self, path: str) -> Iterator[pa.NativeFile]:
        """See `DeepStore.write`."""
        self._network.outside(_FILES_READ, lambda: None)
        writing = self._store.write(path)
        stream = writing.__enter__()
        try:
            yield stream
        except ProcessDied:
            # What a killed process has open stays as it is.
            self._network.world.keep(writing)
            raise
        except BaseException as error:
            writing.__exit__(type(error), error, error.__traceback__)
            raise
        else:
            self._act(lambda: writing.__exit__(None, None, None))

    def put(self, path: str, content: bytes) -> None:
        """See `DeepStore.put`."""
        self._act(lambda: self._store.put(path, content))

    def open(self, path: str) -> pa.NativeFile:
        """See `DeepStore.open`."""
        return self._read(lambda: self._store.open(path))

    def get(self, path: str) -> bytes:
        """See `DeepStore.get`."""
        return self._read(lambda: self._store.get(path))

    def stat(self, path: str) -> StoredFile | None:
        """See `DeepStore.stat`."""
        return self._read(lambda: self._store.stat(path))

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """See `DeepStore.list`."""
        return self._read(lambda: iter(list(self._store.list(prefix))))

    def checksum(self, path: str) -> str:
        """See `DeepStore.checksum`."""
        return self._read(lambda: self._store.checksum(path))

    def download(self, path: str, target: Path, expected_checksum: str) -> None:
        """See `DeepStore.download`."""
        self._read(lambda: self._store.download(path, target, expected_checksum))

    def delete(self, path: str) -> None:
        """See `DeepStore.delete`."""

        def act() -> None:
            self._watch(path)
            self._store.delete(path)

        self._act(act)

    def delete_tree(self, prefix: str) -> int:
        """See `DeepStore.delete_tree`; it may end in the middle."""

        def act() -> int:
            found = [stored.path for stored in self._store.list(prefix)]
            for path in found:
                self._watch(path)
            if found and self._network.world.random.random() < self._partly():
                self._store.delete(found[0])
                raise Unreachable("deep_store_unreachable", "the connection was cut in the middle")
            return self._store.delete_tree(prefix)

        return self._act(act)

    def _partly(self) -> float:
        faults = self._network.faults.get(self._network.world.acting.kind)
        return 0.0 if faults is None else faults.lose

    def _read(self, act: Callable[[], _T]) -> _T:
        return self._network.outside(_FILES_READ, act)

    def _act(self, act: Callable[[], _T]) -> _T:
        # The same act again changes nothing, so that an unknown outcome is one that is tried again.
        try:
            return self._network.outside(_FILES_ACT, act)
        except OutcomeUnknown as error:
            raise Unreachable("deep_store_unreachable", error.message) from error


def rebound(replacements: dict[Any, Any]) -> Iterator[None]:
    """Let every module of the product that imported one of these functions use its replacement; see `rebinding`."""
    changed = _uses_of(tuple(replacements), len(sys.modules))
    for module, attribute, value in changed:
        setattr(module, attribute, next(new for original, new in replacements.items() if original is value))
    try:
        yield
    finally:
        for module, attribute, value in changed:
            setattr(module, attribute, value)


@cache
def _uses_of(originals: tuple[Any, ...], _modules: int) -> list[tuple[Any, str, Any]]:
    """Where modules of the product have these functions; it is looked for again when there are more modules."""
    wanted = {id(original) for original in originals}
    # Copies, in one step: what a killed process left is forgotten at any moment, and may import something then.
    named = [module for name, module in sys.modules.copy().items() if name.startswith("anew.")]
    return [(m, name, value) for m in named for name, value in vars(m).copy().items() if id(value) in wanted]


rebinding = contextmanager(rebound)
