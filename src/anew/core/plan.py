"""A rebuild's plan: an immutable value, made by a pure function, that the dry run prints and the run executes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from anew.core.confighash import value_hash
from anew.core.feed import FeedPartition, Position, PositionMap
from anew.core.store import Frozen, ManifestRef, RebuildKind

_START_SECONDS, _MOST_TIMES = 60.0, 2.0
"""What took less may have been start alone: it says nothing of more than so many times its records."""
_PACE_OF = 5
"""From how many of the last rebuilds the expected pace is taken."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanValue(_Value):
    """What plans of all kinds are: an immutable value; ``id`` is the hash of everything else that is done.

    Attributes:
        asked: The hash of what was asked for, which has another plan at another moment; None: this very plan.
    """

    id: str = ""
    asked: str | None = None

    def sealed(self) -> Self:
        """This plan with the id that its value has."""
        return self.model_copy(update={"id": self.value_id()})

    def value_id(self) -> str:
        """The hash of the plan's value, without the id itself, and without what it was made for."""
        return f"plan-{value_hash(self.model_dump(mode='json', exclude={'id', 'asked'}))[:16]}"

    @property
    def request_hash(self) -> str:
        """By which the same request is known again, whose plan may have been made at another moment (rule R22)."""
        return self.id if self.asked is None else self.asked


class LogSplit(_Value):
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


class PushInput(_Value):
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
    options: dict[str, str] = {}
    key: tuple[str, ...]
    value: tuple[str, ...] = ()
    written_at: str | None = None
    on_duplicate_key: Literal["refuse", "last"] = "refuse"
    bad_rows_to: str | None = None
    as_of_ms: int = 0


class Source(_Value):
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


class Target(_Value):
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


class Change(_Value):
    """One setting that the new version changes."""

    setting: str
    now: Any
    wanted: Any


class Splits(_Value):
    """How the input is divided among Spark tasks, and whether the tasks of the log scan combine what they read."""

    base_files: int = 0
    log: int = 0
    max_records: int
    combiner: bool = False
    ranges: tuple[LogSplit, ...] = ()


class Estimate(_Value):
    """What the rebuild is expected to cost; seconds is None while nothing of its size has been measured yet."""

    records: int
    bytes: int
    seconds: float | None = None


class Pace(_Value):
    """How an earlier rebuild got on: how many records it read, and how many in a second, its start included."""

    records: int
    per_second: float

    def seconds_for(self, records: int) -> float | None:
        """How long so many records are expected to take; None: what was measured says nothing of them.

        Up to `_START_SECONDS` may have been Spark's start, whatever was read: fewer records take as long, and more than
        a multiple of them any time.
        """
        if records <= 0 or self.records <= 0 or self.per_second <= 0:
            return None
        took_seconds, times = self.records / self.per_second, records / self.records
        if took_seconds < _START_SECONDS:
            if times > _MOST_TIMES:
                return None
            times = max(times, 1.0)
        return round(took_seconds * times, 1)


def pace_of(past: Iterable[tuple[int, float | None]]) -> Pace | None:
    """The pace to expect: that of the largest of the last rebuilds; None where none was measured.

    Args:
        past: How many records each read, and how many in a second if that was measured, newest first.
    """
    measured = (Pace(records=records, per_second=speed) for records, speed in past if speed and records)
    return max(islice(measured, _PACE_OF), key=lambda pace: pace.records, default=None)


class Fence(_Value):
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
