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

from anew.catalog.change import Change, Event, KnownRequest, NodeRecord, Operation, Reclaim, TableSize, TableSnapshot
from anew.catalog.forget import Forget
from anew.catalog.interface import TimedKey
from anew.core.admission import Rejection
from anew.core.errors import OutcomeUnknown, Unreachable
from anew.core.jobs.batch import BatchRecord
from anew.core.jobs.job import Job
from anew.core.rebuild import Rebuild
from anew.core.stores.store import Store, Version
from anew.core.tables.config import SegmentConfig
from anew.core.tables.rebuild import Done
from anew.core.tables.segment import Segment, StaleSegment
from anew.core.tables.table import Table
from anew.core.topics.topic import Topic
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
from anew.testing.memory.catalog import MemoryCatalog
from tests.simulation.network import THE_LOG, Called, Network
from tests.simulation.world import ProcessDied

_T = TypeVar("_T")

_HINTS_LOST = 0.1
_LOG_READ = Called(THE_LOG, "log_unreachable", "log_unreachable", changes=False)
_LOG_ACT = Called(THE_LOG, "log_unreachable", "append_unknown", changes=True)
_CATALOG_READ = Called("the catalog", "catalog_unreachable", "commit_unknown", changes=False)
_COMMIT = Called("the catalog", "catalog_unreachable", "commit_unknown", changes=True)
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

    def fetch_ahead(self, places: Mapping[TopicPartition, int]) -> None:
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


class FarCatalog:
    """A catalog over the network."""

    def __init__(self, network: Network, catalog: MemoryCatalog) -> None:
        """Reach a catalog."""
        self._network, self._catalog = network, catalog

    def revision(self) -> int:
        """See `Catalog.revision`."""
        return self._read(self._catalog.revision)

    def commit(self, change: Change) -> bool:
        """See `Catalog.commit`."""
        return self._network.outside(_COMMIT, lambda: self._catalog.commit(change))

    def put_rebuild(self, rebuild: Rebuild, fence: int) -> None:
        """See `Catalog.put_rebuild`."""
        self._network.outside(_COMMIT, lambda: self._catalog.put_rebuild(rebuild, fence))

    def store(self, name: str) -> Store | None:
        """See `Catalog.store`."""
        return self._read(lambda: self._catalog.store(name))

    def store_by_uid(self, uid: str) -> Store | None:
        """See `Catalog.store_by_uid`."""
        return self._read(lambda: self._catalog.store_by_uid(uid))

    def stores(self) -> list[Store]:
        """See `Catalog.stores`."""
        return self._read(self._catalog.stores)

    def stores_page(self, after: str, limit: int) -> list[Store]:
        """See `Catalog.stores_page`."""
        return self._read(lambda: self._catalog.stores_page(after, limit))

    def job(self, name: str) -> Job | None:
        """See `JobsCatalog.job`."""
        return self._read(lambda: self._catalog.job(name))

    def job_by_uid(self, uid: str) -> Job | None:
        """See `JobsCatalog.job_by_uid`."""
        return self._read(lambda: self._catalog.job_by_uid(uid))

    def jobs(self) -> list[Job]:
        """See `JobsCatalog.jobs`."""
        return self._read(self._catalog.jobs)

    def deleted_jobs(self) -> list[Job]:
        """See `JobsCatalog.deleted_jobs`."""
        return self._read(self._catalog.deleted_jobs)

    def jobs_page(self, after: str, limit: int) -> list[Job]:
        """See `JobsCatalog.jobs_page`."""
        return self._read(lambda: self._catalog.jobs_page(after, limit))

    def put_batch(self, job_uid: str, generation: int, record: BatchRecord) -> None:
        """See `JobsCatalog.put_batch`."""
        self._network.outside(_COMMIT, lambda: self._catalog.put_batch(job_uid, generation, record))

    def batches(self, job_uid: str, generation: int, limit: int) -> list[BatchRecord]:
        """See `JobsCatalog.batches`."""
        return self._read(lambda: self._catalog.batches(job_uid, generation, limit))

    def deleted_stores(self) -> list[Store]:
        """See `Catalog.deleted_stores`."""
        return self._read(self._catalog.deleted_stores)

    def past_versions(
        self, store_uid: str, limit: int, *, number: int | None = None, below: int | None = None
    ) -> list[Version]:
        """See `Catalog.past_versions`."""
        return self._read(lambda: self._catalog.past_versions(store_uid, limit, number=number, below=below))

    def forgettable(self, forget: Forget) -> int:
        """See `Catalog.forgettable`."""
        return self._read(lambda: self._catalog.forgettable(forget))

    def unnamed_rebuilds(self, before_ms: int, named_from_ms: int = 0) -> Iterator[str]:
        """See `Catalog.unnamed_rebuilds`."""
        return iter(self._read(lambda: list(self._catalog.unnamed_rebuilds(before_ms, named_from_ms))))

    def next_version(self, name: str) -> int:
        """See `Catalog.next_version`."""
        return self._read(lambda: self._catalog.next_version(name))

    def next_number(self, sequence: str) -> int:
        """See `Catalog.next_number`."""
        return self._network.outside(_COMMIT, lambda: self._catalog.next_number(sequence))

    def rebuild(self, rebuild_id: str) -> Rebuild | None:
        """See `Catalog.rebuild`."""
        return self._read(lambda: self._catalog.rebuild(rebuild_id))

    def rebuilds(
        self, *, subject_uid: str | None, running_only: bool, limit: int | None = None, after: TimedKey | None = None
    ) -> list[Rebuild]:
        """See `Catalog.rebuilds`."""
        return self._read(
            lambda: self._catalog.rebuilds(subject_uid=subject_uid, running_only=running_only, limit=limit, after=after)
        )

    def request(self, request_id: str) -> KnownRequest | None:
        """See `Catalog.request`."""
        return self._read(lambda: self._catalog.request(request_id))

    def put_node(self, node: NodeRecord) -> None:
        """See `Catalog.put_node`."""
        self._network.outside(_COMMIT, lambda: self._catalog.put_node(node))

    def nodes(self) -> list[NodeRecord]:
        """See `Catalog.nodes`."""
        return self._read(self._catalog.nodes)

    def nodes_page(self, after: str, limit: int) -> list[NodeRecord]:
        """See `Catalog.nodes_page`."""
        return self._read(lambda: self._catalog.nodes_page(after, limit))

    def reclaims_page(self, after: TimedKey | None, limit: int) -> list[Reclaim]:
        """See `Catalog.reclaims_page`."""
        return self._read(lambda: self._catalog.reclaims_page(after, limit))

    def reclaims(self, due_at_ms: int | None) -> list[Reclaim]:
        """See `Catalog.reclaims`."""
        return self._read(lambda: self._catalog.reclaims(due_at_ms))

    def flags(self) -> dict[str, str]:
        """See `Catalog.flags`."""
        return self._read(self._catalog.flags)

    def dead_letter_counts(self, *, waiting: bool = False) -> dict[str, int]:
        """See `Catalog.dead_letter_counts`."""
        return self._read(lambda: self._catalog.dead_letter_counts(waiting=waiting))

    def waiting_dead_letters(self, store_uid: str, limit: int) -> list[Rejection]:
        """See `Catalog.waiting_dead_letters`."""
        return self._read(lambda: self._catalog.waiting_dead_letters(store_uid, limit))

    def events(self, after: int, limit: int, subject: str | None = None) -> list[Event]:
        """See `Catalog.events`."""
        return self._read(lambda: self._catalog.events(after, limit, subject))

    def history(self, subject: str | None, limit: int, *, after: str | None = None) -> list[Operation]:
        """See `Catalog.history`."""
        return self._read(lambda: self._catalog.history(subject, limit, after=after))

    # This world has no tables: asking for them takes no time and no chance, so that histories stay what they were.

    def table(self, name: str) -> Table | None:
        """See `Catalog.table`."""
        return self._catalog.table(name)

    def table_by_uid(self, uid: str) -> Table | None:
        """See `Catalog.table_by_uid`."""
        return self._catalog.table_by_uid(uid)

    def tables(self) -> list[Table]:
        """See `Catalog.tables`."""
        return self._catalog.tables()

    def tables_page(self, after: str, limit: int) -> list[Table]:
        """See `Catalog.tables_page`."""
        return self._catalog.tables_page(after, limit)

    def deleted_tables(self) -> list[Table]:
        """See `Catalog.deleted_tables`."""
        return self._catalog.deleted_tables()

    def topic(self, name: str) -> Topic | None:
        """See `Catalog.topic`."""
        return self._catalog.topic(name)

    def topic_by_uid(self, uid: str) -> Topic | None:
        """See `Catalog.topic_by_uid`."""
        return self._catalog.topic_by_uid(uid)

    def topics(self) -> list[Topic]:
        """See `Catalog.topics`."""
        return self._catalog.topics()

    def topics_page(self, after: str, limit: int) -> list[Topic]:
        """See `Catalog.topics_page`."""
        return self._catalog.topics_page(after, limit)

    def deleted_topics(self) -> list[Topic]:
        """See `Catalog.deleted_topics`."""
        return self._catalog.deleted_topics()

    def table_config(self, config_hash: str) -> SegmentConfig | None:
        """See `Catalog.table_config`."""
        return self._catalog.table_config(config_hash)

    def table_config_hashes(self) -> set[str]:
        """See `Catalog.table_config_hashes`."""
        return self._catalog.table_config_hashes()

    def table_snapshot(self, uid: str, known: Mapping[int, int]) -> TableSnapshot | None:
        """See `Catalog.table_snapshot`."""
        return self._catalog.table_snapshot(uid, known)

    def segment(self, table_uid: str, name: str) -> Segment | None:
        """See `Catalog.segment`."""
        return self._catalog.segment(table_uid, name)

    def segments(self, table_uid: str, names: Collection[str] | None = None) -> list[Segment]:
        """See `Catalog.segments`."""
        return self._catalog.segments(table_uid, names)

    def segments_page(self, table_uid: str, after: str, limit: int, *, other_than: str | None = None) -> list[Segment]:
        """See `Catalog.segments_page`."""
        return self._catalog.segments_page(table_uid, after, limit, other_than=other_than)

    def stale_segments(self, table_uid: str, wanted: str) -> Iterator[StaleSegment]:
        """See `Catalog.stale_segments`."""
        return self._catalog.stale_segments(table_uid, wanted)

    def table_size(self, table_uid: str) -> TableSize:
        """See `Catalog.table_size`."""
        return self._catalog.table_size(table_uid)

    def segments_done(self, rebuild_id: str, names: Collection[str] | None = None) -> list[Done]:
        """See `Catalog.segments_done`."""
        return self._catalog.segments_done(rebuild_id, names)

    def close(self) -> None:
        """See `Catalog.close`."""

    def _read(self, act: Callable[[], _T]) -> _T:
        return self._network.outside(_CATALOG_READ, act)


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
