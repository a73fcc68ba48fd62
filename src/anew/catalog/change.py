"""A change of the catalog is a value: what is put, with the preconditions that travel with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anew.catalog.forget import DropJob, DropStore, DropTable, DropTopic, Forget
from anew.core.admission import Rejection
from anew.core.jobs.batch import BatchRecord
from anew.core.jobs.deadletters import LetterPlace
from anew.core.jobs.job import Job
from anew.core.rebuild import Rebuild
from anew.core.stores.store import Store, Version
from anew.core.tables.config import SegmentConfig
from anew.core.tables.rebuild import Done
from anew.core.tables.segment import Segment
from anew.core.tables.table import Table
from anew.core.topics.topic import Topic
from anew.segments.record import SegmentList


@dataclass(frozen=True, slots=True)
class Operation:
    """Who did what when; kept for its retention. ``id`` is unique: the same id twice is the same change (rule R22)."""

    id: str
    at_ms: int
    actor: str
    what: str
    subject: str
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """An operation, and the revision that the catalog had with it."""

    revision: int
    operation: Operation


@dataclass(frozen=True, slots=True)
class PutStore:
    """Insert a store (``fence`` None) or replace it, if its revision is still ``fence``."""

    store: Store
    fence: int | None


@dataclass(frozen=True, slots=True)
class PutPastVersions:
    """Keep versions that have left their store, each as it is then; one that is known stays as it was."""

    store_uid: str
    versions: tuple[Version, ...]
    left_at_ms: int


@dataclass(frozen=True, slots=True)
class PutRebuild:
    """Insert a rebuild (``fence`` None) or replace all but its plan, if its revision is still ``fence``."""

    rebuild: Rebuild
    fence: int | None


@dataclass(frozen=True, slots=True)
class PutRequest:
    """Remember what a request id made; refused when the id is known with another body."""

    request_id: str
    body_hash: str
    result: str


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Something outside of the catalog that is to go: intent first, then the act (rule R22).

    ``kind`` is ``tree`` (a deep store directory), ``topic`` or ``truncate``; ``not_before_ms`` is the end of the grace.
    """

    id: str
    kind: str
    fabric: str
    target: str
    not_before_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class PutReclaim:
    """Note an intent to reclaim; the same id again is nothing."""

    reclaim: Reclaim


@dataclass(frozen=True, slots=True)
class DropReclaim:
    """The act is done."""

    id: str


@dataclass(frozen=True, slots=True)
class PutDeadLetters:
    """Record rejections; one that is known stays as it is (rule R21)."""

    store_uid: str
    rejections: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True)
class PutSetAside:
    """Note that dead letters were copied to their store's dead-letter topic, or cannot be."""

    rejections: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True)
class PutFlag:
    """Set a flag, or take it away (``value`` None)."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class SwapFlag:
    """Set a flag, or take it away (``value`` None), if it is still ``expected`` (None: not set); else a conflict."""

    name: str
    expected: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class CheckEmpty:
    """Refuse (``catalog_not_empty``) unless the catalog holds no store or table, live or deleted, and no rebuild."""


@dataclass(frozen=True, slots=True)
class PutRestored:
    """Insert a store of a lost catalog, deleted or not, at the revision that it says."""

    store: Store


@dataclass(frozen=True, slots=True)
class PutRestoredTable:
    """Insert a table of a lost catalog, deleted or not, at the revision that it says, and its segments at the same.

    ``slots``: slot → its segments, none where they were all dropped; each slot goes on from the table's revision too.
    """

    table: Table
    slots: Mapping[int, SegmentList]


@dataclass(frozen=True, slots=True)
class PutRestoredTopic:
    """Insert a topic of a lost catalog, deleted or not, at the revision that it says."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class PutRestoredJob:
    """Insert a job of a lost catalog, deleted or not, at the revision that it says."""

    job: Job


@dataclass(frozen=True, slots=True)
class RaiseCounter:
    """Let a sequence, or the catalog's ``revision``, go on above a number; it never goes back."""

    sequence: str
    at_least: int


@dataclass(frozen=True, slots=True)
class PutTable:
    """Insert a table (``fence`` None) or replace it, if its revision is still ``fence``."""

    table: Table
    fence: int | None


@dataclass(frozen=True, slots=True)
class PutConfig:
    """Keep a configuration of segments under its hash; one that is known stays as it is."""

    config: SegmentConfig


@dataclass(frozen=True, slots=True)
class PutSegment:
    """Insert a segment (``fence`` None) or replace it, if its revision is still ``fence``."""

    segment: Segment
    fence: int | None


@dataclass(frozen=True, slots=True)
class DropSegment:
    """Take a segment out, if its revision is still ``fence``."""

    table_uid: str
    name: str
    fence: int


@dataclass(frozen=True, slots=True)
class PutDone:
    """Note what became of a segment of a rebuild; what was noted before is replaced."""

    rebuild: str
    done: Done


@dataclass(frozen=True, slots=True)
class PutJob:
    """Insert a job (``fence`` None) or replace it, if its revision is still ``fence``."""

    job: Job
    fence: int | None


@dataclass(frozen=True, slots=True)
class PutBatch:
    """Record a batch of a generation behind the last one, if its driver still holds the generation.

    Its dead letters are kept beside it: they outlive the record.

    Attributes:
        rebuild: The generation's rebuild: while the record is put it runs, under the epoch that the record names.
    """

    job_uid: str
    generation: int
    record: BatchRecord
    rebuild: str


@dataclass(frozen=True, slots=True)
class DropBatches:
    """Forget the records of batches below a number."""

    job_uid: str
    generation: int
    below: int


@dataclass(frozen=True, slots=True)
class NoteReplayed:
    """Note of dead letters of a job that their records were given to their topics again."""

    job_uid: str
    places: tuple[LetterPlace, ...]
    at_ms: int


JobPut = PutJob | PutRestoredJob | PutBatch | DropBatches | NoteReplayed | DropJob


@dataclass(frozen=True, slots=True)
class PutTopic:
    """Insert a topic (``fence`` None) or replace it, if its revision is still ``fence``."""

    topic: Topic
    fence: int | None


Put = (
    Forget
    | DropJob
    | DropStore
    | DropTable
    | DropTopic
    | PutStore
    | PutPastVersions
    | PutRebuild
    | PutRequest
    | PutReclaim
    | DropReclaim
    | PutDeadLetters
    | PutSetAside
    | PutFlag
    | SwapFlag
    | CheckEmpty
    | PutRestored
    | PutRestoredTable
    | PutRestoredTopic
    | PutRestoredJob
    | RaiseCounter
    | PutTable
    | PutConfig
    | PutSegment
    | DropSegment
    | PutDone
    | PutJob
    | PutBatch
    | DropBatches
    | NoteReplayed
    | PutTopic
)


@dataclass(frozen=True, slots=True)
class Change:
    """All of ``puts`` or none, with one line of history."""

    operation: Operation
    puts: tuple[Put, ...]


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """What a request id made earlier."""

    body_hash: str
    result: str


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node's last report, as JSON, and when it came."""

    id: str
    fabric: str
    last_seen_ms: int
    report: str
    removed: bool = False


@dataclass(frozen=True, slots=True)
class TableSize:
    """How many segments, rows and bytes a table has."""

    segments: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A table at one moment.

    Attributes:
        slots: Slot → its revision, of every slot that ever had a segment.
        changed: Slot → its segments, where the revision is not the one that was known.
    """

    table: Table
    slots: dict[int, int]
    changed: dict[int, SegmentList]
