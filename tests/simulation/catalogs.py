"""A catalog over the network of the simulation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from anew.catalog.change import (
    Change,
    Event,
    KnownRequest,
    NodeRecord,
    Operation,
    PutBatch,
    Reclaim,
    TableSize,
    TableSnapshot,
)
from anew.catalog.forget import Forget
from anew.catalog.interface import TimedKey
from anew.core.admission import Rejection
from anew.core.jobs.batch import BatchRecord
from anew.core.jobs.deadletters import KeptLetter, LetterPlace
from anew.core.jobs.job import Job
from anew.core.rebuild import Rebuild
from anew.core.stores.store import Store, Version
from anew.core.tables.config import SegmentConfig
from anew.core.tables.rebuild import Done
from anew.core.tables.segment import Segment, StaleSegment
from anew.core.tables.table import Table
from anew.core.topics.topic import Topic
from anew.testing.memory.catalog import MemoryCatalog
from tests.simulation.network import Called, Network

_T = TypeVar("_T")
_CATALOG_READ = Called("the catalog", "catalog_unreachable", "commit_unknown", changes=False)
_COMMIT = Called("the catalog", "catalog_unreachable", "commit_unknown", changes=True)


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

    def next_generation(self, name: str) -> int:
        """See `JobsCatalog.next_generation`."""
        return self._read(lambda: self._catalog.next_generation(name))

    def put_batch(self, put: PutBatch) -> None:
        """See `JobsCatalog.put_batch`."""
        self._network.outside(_COMMIT, lambda: self._catalog.put_batch(put))

    def batches(self, job_uid: str, generation: int, limit: int) -> list[BatchRecord]:
        """See `JobsCatalog.batches`."""
        return self._read(lambda: self._catalog.batches(job_uid, generation, limit))

    def batches_from(self, job_uid: str, generation: int, first: int, limit: int) -> list[BatchRecord]:
        """See `JobsCatalog.batches_from`."""
        return self._read(lambda: self._catalog.batches_from(job_uid, generation, first, limit))

    def job_dead_letters(
        self, job_uid: str, generation: int | None, after: LetterPlace | None, limit: int
    ) -> list[KeptLetter]:
        """See `JobsCatalog.job_dead_letters`."""
        return self._read(lambda: self._catalog.job_dead_letters(job_uid, generation, after, limit))

    def job_dead_letter_counts(self, job_uid: str) -> dict[int, int]:
        """See `JobsCatalog.job_dead_letter_counts`."""
        return self._read(lambda: self._catalog.job_dead_letter_counts(job_uid))

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
