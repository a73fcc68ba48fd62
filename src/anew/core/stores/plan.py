"""The plan of a rebuild of a store: what is read, what is made, and what must still be so when it is run."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from anew.core.feed import FeedPartition, Position, PositionMap
from anew.core.plan import Change, Estimate, PlanValue, Value
from anew.core.stores.store import Frozen, ManifestRef, RebuildKind


class LogSplit(Value):
    """A range of one feed partition that one Spark task reads: [begin, end)."""

    feed: str
    partition: int
    begin: int
    end: int

    @property
    def id(self) -> str:
        """Its identity in the ledger: ``dc-0/flights_rt#1/3:0-300``."""
        return f"{self.at}:{self.begin}-{self.end}"

    @property
    def at(self) -> FeedPartition:
        """The feed partition that it is a range of."""
        return FeedPartition(self.feed, self.partition)


class PushInput(Value):
    """What a full push reads, and how.

    Attributes:
        paths: Files or directories, absolute; none for an empty push.
        format: csv, parquet, json or avro.
        options: Reader options, as given.
        key: Columns of the key.
        value: Columns of the value; none: all columns that the value schema names.
        written_at: The column that holds the write time, or None: batch records without a time.
        on_duplicate_key: ``refuse`` or ``last``.
        bad_rows_to: Where rows that do not fit are put, or None: they fail the push.
        as_of_ms: The "input as of" of rule R13.
    """

    paths: tuple[str, ...]
    format: str
    options: dict[str, str] = Field(default_factory=dict)
    key: tuple[str, ...]
    value: tuple[str, ...] = ()
    written_at: str | None = None
    on_duplicate_key: Literal["refuse", "last"] = "refuse"
    bad_rows_to: str | None = None
    as_of_ms: int = 0


class Source(Value):
    """What is read: a version's base and the feed records in [start, end), or the files of a push.

    Attributes:
        broker: Other addresses of the fabric's own brokers, through which alone the log is read.
        from_replicas: The (partition, sub-partition) pairs whose base is damaged: it is read from replicas instead.
    """

    version: int | None = None
    fabric: str | None = None
    broker: str | None = None
    topic: str | None = None
    start: Position = Field(default_factory=PositionMap)
    end: Position = Field(default_factory=PositionMap)
    config: Frozen | None = None
    manifest: ManifestRef | None = None
    ttl_floor_ms: int = 0
    tombstone_floor_ms: int = 0
    input: PushInput | None = None
    from_replicas: tuple[tuple[int, int], ...] = ()


class Target(Value):
    """What is made.

    Attributes:
        version: Its number.
        fabrics: Where it is made.
        config: Its frozen configuration.
        feeds: Ids of the feeds that it applies on top of its base.
        start: From where it applies them.
        stop: Up to where, for feeds that are closed already (rule R10).
        ttl_floor_ms: Its records written after 0 and before it have expired (rule R11).
        tombstone_floor_ms: Its tombstones from before it are dropped (rule R12).
        timed: Whether its records can have write times.
        defer_swap: Whether its swap waits until somebody asks for it.
        new_dictionary: Whether zstd_dict trains a new dictionary.
    """

    version: int
    fabrics: tuple[str, ...]
    config: Frozen
    feeds: tuple[str, ...] = ()
    start: Position = Field(default_factory=PositionMap)
    stop: Position | None = None
    ttl_floor_ms: int = 0
    tombstone_floor_ms: int = 0
    timed: bool = False
    defer_swap: bool = False
    new_dictionary: bool = True


class Splits(Value):
    """How the input is divided among Spark tasks, and whether the tasks of the log scan combine what they read."""

    base_files: int = 0
    log: int = 0
    max_records: int
    combiner: bool = False
    ranges: tuple[LogSplit, ...] = ()


class Fence(Value):
    """What must still be so when the plan is run; otherwise it is refused (exit 3)."""

    store_uid: str
    current: dict[str, int]
    config_hash: str
    feeds: tuple[str, ...]


class Plan(PlanValue):
    """The plan of a rebuild of a store."""

    kind: RebuildKind
    store: str
    source: Source
    target: Target
    changes: tuple[Change, ...] = ()
    path: Literal["general", "copartitioned"] = "general"
    why: tuple[str, ...] = ()
    splits: Splits
    estimate: Estimate
    segments: tuple[dict[str, Any], ...] = ()
    fence: Fence
    allow_not_serving: bool = False
    planned_at_ms: int

    @property
    def defers(self) -> bool:
        """Whether its swap does."""
        return self.target.defer_swap

    def summary(self) -> tuple[str, ...]:
        """See `PlanValue.summary`."""
        source = self.source.topic if self.source.topic is not None else "files"
        records = f"about {self.estimate.records} records, " if self.source.input is None else ""
        return f"{source} → {self.store}_v{self.target.version}, {records}{self.estimate.bytes} bytes", *self.why

    @property
    def subject_name(self) -> str:
        """The store's."""
        return self.store
