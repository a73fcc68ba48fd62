"""The catalog that the controller is written against."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, Protocol

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


class TimedKey(NamedTuple):
    """The place of a row in a list by time: its time in ms, and its id among those of the same time."""

    at_ms: int
    id: str


class JobsCatalog(Protocol):
    """The part of the catalog that is about stream jobs."""

    def job(self, name: str) -> Job | None:
        """The live job of that name."""

    def job_by_uid(self, uid: str) -> Job | None:
        """The job of that identity, deleted or not."""

    def jobs(self) -> list[Job]:
        """All live jobs by name."""

    def deleted_jobs(self) -> list[Job]:
        """Jobs that were deleted, by name."""

    def jobs_page(self, after: str, limit: int) -> list[Job]:
        """Some of the live jobs, the next ones by name, see `Catalog.stores_page`."""

    def next_generation(self, name: str) -> int:
        """The first generation number that no job of this name has used (rule R20); 1 for a new name."""

    def put_batch(self, put: PutBatch) -> None:
        """Record a batch, and its dead letters, without a line of history; the same again is nothing.

        Raises:
            Refused: ``epoch_outdated``, ``rebuild_ended``: another driver took over, or none is to run; what
                `check_next` raises.
        """

    def batches(self, job_uid: str, generation: int, limit: int) -> list[BatchRecord]:
        """The records of the last batches of a generation, in their order, at most so many."""

    def batches_from(self, job_uid: str, generation: int, first: int, limit: int) -> list[BatchRecord]:
        """The records of the batches of a generation from a number on, in their order, at most so many."""

    def job_dead_letters(
        self, job_uid: str, generation: int | None, after: LetterPlace | None, limit: int
    ) -> list[KeptLetter]:
        """Records that a generation of a job, or (None) any, has left out: the next ones by place, at most so many.

        They are kept for as long as the job is known, whatever became of the records of its batches.
        """

    def job_dead_letter_counts(self, job_uid: str) -> dict[int, int]:
        """Generation → how many records it has left out; those without any are not named."""


class Catalog(JobsCatalog, Protocol):
    """The metadata database. Safe to call from several threads and processes; every method may block on I/O.

    Errors common to all: `Unreachable` code ``catalog_unreachable`` when the database does not answer in time (nothing
    was changed), `OutcomeUnknown` code ``commit_unknown`` when the answer to a commit was lost. `commit` then looks the
    operation up by itself, and leaves it unknown only while the catalog does not answer at all.
    """

    def revision(self) -> int:
        """Grows with every commit and every change of a node's report that matters to others."""

    def commit(self, change: Change) -> bool:
        """Apply a change, all or nothing; stores and rebuilds get the next revision.

        Returns:
            False when an operation of that id was committed before (nothing is done again), else True.

        Raises:
            Refused: ``revision_conflict``: somebody else was faster; load, decide and try again.
            Refused: ``store_exists``, ``table_exists``, ``topic_exists``, ``job_exists``: one of that name is there
                already.
            Refused: ``catalog_not_empty``: what `CheckEmpty` asks for is not so.
            InvalidRequest: ``request_id_reused``: the request id is known with another body.
        """

    def put_rebuild(self, rebuild: Rebuild, fence: int) -> None:
        """Replace a rebuild without a line of history: signs of life and progress.

        Raises:
            Refused: ``revision_conflict``.
        """

    def store(self, name: str) -> Store | None:
        """The live store of that name."""

    def store_by_uid(self, uid: str) -> Store | None:
        """The store of that identity, deleted or not."""

    def stores(self) -> list[Store]:
        """All live stores by name."""

    def stores_page(self, after: str, limit: int) -> list[Store]:
        """Some of the live stores, the next ones by name: at most so many of those behind a name, all for an empty one.

        Names, and the keys of all other pages, are in the order in which the database compares texts.
        """

    def deleted_stores(self) -> list[Store]:
        """Stores that were deleted and still have something to reclaim."""

    def past_versions(
        self, store_uid: str, limit: int, *, number: int | None = None, below: int | None = None
    ) -> list[Version]:
        """Versions that were reclaimed and have left the store of that identity, the greatest numbers first.

        Args:
            store_uid: The store.
            limit: How many at most.
            number: Only this one, unless None.
            below: Only those with lesser numbers, unless None.
        """

    def next_version(self, name: str) -> int:
        """The first version number that no store of this name has used (rule R16); 1 for a new name."""

    def forgettable(self, forget: Forget) -> int:
        """How many rows a `Forget` would remove."""

    def unnamed_rebuilds(self, before_ms: int, named_from_ms: int = 0) -> Iterator[str]:
        """The ids of ended rebuilds that nothing asks about any more, the oldest first, without holding them all.

        A rebuild is asked about while a version that it made is in its store, while a segment that it made does not say
        itself which load it belongs to, and while a request names it. How many queries this takes depends on how many
        rebuilds are old, and not on how many stores and tables there are.

        Args:
            before_ms: Only those that were begun before it.
            named_from_ms: Requests from before this time do not count: they are due themselves.
        """

    def next_number(self, sequence: str) -> int:
        """A number from a named sequence that is never given again (schema ids, incarnations), from 1."""

    def rebuild(self, rebuild_id: str) -> Rebuild | None:
        """The rebuild of that id, whatever it is of.

        Raises:
            Failed: ``unknown_kind``: a later release made it.
        """

    def rebuilds(
        self, *, subject_uid: str | None, running_only: bool, limit: int | None = None, after: TimedKey | None = None
    ) -> list[Rebuild]:
        """Rebuilds of any kind, newest first, at most so many.

        Args:
            subject_uid: Of one store or table, or of all for None.
            running_only: Whether those that have ended are left out.
            limit: How many at most, all for None.
            after: Only those that come behind the one with this time of creation and id, unless None.
        """

    def request(self, request_id: str) -> KnownRequest | None:
        """What the request id made."""

    def put_node(self, node: NodeRecord) -> None:
        """Keep a node's report."""

    def nodes(self) -> list[NodeRecord]:
        """All nodes that were not removed."""

    def nodes_page(self, after: str, limit: int) -> list[NodeRecord]:
        """Some of the nodes that were not removed, the next ones by id, see `stores_page`."""

    def reclaims(self, due_at_ms: int | None) -> list[Reclaim]:
        """Intents to reclaim, all or those whose grace has ended."""

    def reclaims_page(self, after: TimedKey | None, limit: int) -> list[Reclaim]:
        """Some of the intents to reclaim, the next ones by the end of their grace and id: behind a key, unless None."""

    def flags(self) -> dict[str, str]:
        """All flags that are set: name → value."""

    def dead_letter_counts(self, *, waiting: bool = False) -> dict[str, int]:
        """How many dead letters each store (uid) has; with ``waiting``: that were not set aside yet, none left out."""

    def waiting_dead_letters(self, store_uid: str, limit: int) -> list[Rejection]:
        """A store's dead letters that were not set aside yet, by feed, partition and offset.

        Args:
            store_uid: The store.
            limit: How many of each feed partition at most: one that cannot be read holds up no other.
        """

    def events(self, after: int, limit: int, subject: str | None = None) -> list[Event]:
        """What was committed after a revision of the catalog and is not forgotten, the oldest first, at most so much.

        Only what was done to one subject, unless None.

        Not every revision has an operation: a node that comes or goes moves the catalog too.
        """

    def history(self, subject: str | None, limit: int, *, after: str | None = None) -> list[Operation]:
        """The last operations, newest first.

        Args:
            subject: Of one subject, by its name, or of all for None.
            limit: How many at most.
            after: Only those before the one of this id, unless None; none where that is forgotten.
        """

    def table(self, name: str) -> Table | None:
        """The live table of that name."""

    def table_by_uid(self, uid: str) -> Table | None:
        """The table of that identity, deleted or not."""

    def tables(self) -> list[Table]:
        """All live tables by name."""

    def tables_page(self, after: str, limit: int) -> list[Table]:
        """Some of the live tables, the next ones by name, see `stores_page`."""

    def deleted_tables(self) -> list[Table]:
        """Tables that were deleted, by name."""

    def table_config(self, config_hash: str) -> SegmentConfig | None:
        """The configuration of that hash."""

    def table_config_hashes(self) -> set[str]:
        """The hashes of all configurations that are kept."""

    def table_snapshot(self, uid: str, known: Mapping[int, int]) -> TableSnapshot | None:
        """A table, deleted or not, with its slots as they are at one moment.

        A slot's revision grows with each change of its segments, dropping them included. The segments are read of those
        slots alone whose revision is not the ``known`` one (slot → revision): what did not change costs nothing.
        """

    def segment(self, table_uid: str, name: str) -> Segment | None:
        """The segment of that name."""

    def segments(self, table_uid: str, names: Collection[str] | None = None) -> list[Segment]:
        """A table's segments by name; only those named, as far as they are there, unless None."""

    def segments_page(self, table_uid: str, after: str, limit: int, *, other_than: str | None = None) -> list[Segment]:
        """Some of a table's segments, the next ones by name, see `stores_page`.

        Args:
            table_uid: The table.
            after: Only those behind this name.
            limit: How many at most.
            other_than: Only those whose hash is missing or not this one, unless None.
        """

    def stale_segments(self, table_uid: str, wanted: str) -> Iterator[StaleSegment]:
        """The segments whose hash is missing or not the wanted one, in any order, without holding them all."""

    def table_size(self, table_uid: str) -> TableSize:
        """How much a table's segments hold together."""

    def segments_done(self, rebuild_id: str, names: Collection[str] | None = None) -> list[Done]:
        """What became of the segments of a rebuild so far, by name; only of those named unless None."""

    def topic(self, name: str) -> Topic | None:
        """The live topic of our own of that name."""

    def topic_by_uid(self, uid: str) -> Topic | None:
        """The topic of that identity, deleted or not."""

    def topics(self) -> list[Topic]:
        """All live topics by name."""

    def topics_page(self, after: str, limit: int) -> list[Topic]:
        """Some of the live topics, the next ones by name, see `stores_page`."""

    def deleted_topics(self) -> list[Topic]:
        """Topics that were deleted, by name."""

    def close(self) -> None:
        """Let go of connections."""
