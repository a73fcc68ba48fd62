"""Feeds and positions: which topics a version applies on top of its base, and how far.

A feed's identity includes its topic's incarnation (rule R3): a topic that was lost or made again is a new feed,
from offset 0. ``offset`` is one partition's, a position is the map.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, model_validator

_BEYOND = 2**63


@dataclass(frozen=True, slots=True, order=True)
class FeedPartition:
    """One partition of a feed; ``feed`` is `Feed.id`."""

    feed: str
    partition: int

    def __str__(self) -> str:
        return f"{self.feed}/{self.partition}"


class Settled(BaseModel):
    """Up to where in a feed partition it is decided which value schemas count (rule R21).

    Attributes:
        below: Of the records before this offset, those that name a later schema or an unknown one are dead letters.
        newest_schema_id: The store's newest value schema when that was decided.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: int
    below: int
    newest_schema_id: int


class FeedKind(StrEnum):
    """Who writes into a feed: ``rt``: writers of a store; ``generation``: one generation of a stream job.

    What a generation's records are stamped with is in `anew.core.identity`.
    """

    RT = "rt"
    GENERATION = "generation"


class Feed(BaseModel):
    """A topic that versions apply on top of their base.

    Attributes:
        kind: Who writes into it.
        fabric: Whose log holds the topic.
        topic: The topic's name, ``<store>_rt``.
        topic_uid: The identity that the log keeps with the topic; until it is ready the one that it is to be made with.
        incarnation: Which topic of that name and fabric this is, from 1; greater is later.
        partitions: How many partitions the topic has; never changes (rule R8).
        partitioner: How producers place keys: ``xxhash64``, or ``any`` (all partitions must be read).
        origin: The encoded origin of its records, as hex.
        key_schema_id: By which number the log's wire format names the schema of its keys.
        skew_limit_ms: How far ahead of its append time a record's given time may be (rule R6). Fixed with the feed, so
            that every reader of a record decides alike (rule R21).
        low_water: Per partition the least offset that any version may still need (rule R2).
        ready: Whether the topic is known to exist in the log.
        open: Whether the topic accepts writes, as it was known last.
        moving: Whether it is being opened or closed: until that is done the log may say either.
        settled: What was decided about values whose schema nobody knew, in the order of offsets of each partition.
        partitions_in_log: How many partitions somebody gave the topic besides us; None: as many as it was made with.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Left out of JSON where it is as it always was: nodes and clients of the release before know no such field.
    kind: FeedKind = Field(default=FeedKind.RT, exclude_if=lambda kind: kind is FeedKind.RT)
    fabric: str
    topic: str
    topic_uid: str
    incarnation: int
    partitions: int
    partitioner: str = "xxhash64"
    origin: str
    key_schema_id: int = 1
    skew_limit_ms: int
    low_water: tuple[int, ...]
    ready: bool = False
    open: bool = True
    moving: bool = False
    settled: tuple[Settled, ...] = ()
    partitions_in_log: int | None = None

    @model_validator(mode="after")
    def _placed_by_key(self) -> Feed:
        """A job's rows are accounted for by the partition that their key says (rule R19)."""
        if self.kind is FeedKind.GENERATION and self.partitioner != "xxhash64":
            raise ValueError(f"the records of a job are placed by xxhash64, not by {self.partitioner}")
        return self

    @property
    def id(self) -> str:
        """The feed's identity, ``dc-0/flights_rt#1``."""
        return f"{self.fabric}/{self.topic}#{self.incarnation}"

    @property
    def origin_bytes(self) -> bytes:
        """The encoded origin."""
        return bytes.fromhex(self.origin)

    @property
    def closed(self) -> bool:
        """Whether the log is known to accept no write: what it acknowledged lies below its end."""
        return not self.open and not self.moving

    def settled_in(self, partition: int) -> list[Settled]:
        """What was decided of one partition, in the order of offsets."""
        return [settled for settled in self.settled if settled.partition == partition]

    def with_settled(self, partition: int, below: int, newest_schema_id: int) -> Feed:
        """Decide for the records before an offset that were not decided before; one entry for each newest schema."""
        before = self.settled_in(partition)
        if before and before[-1].below >= below:
            return self
        decided = Settled(partition=partition, below=below, newest_schema_id=newest_schema_id)
        replaced = before[-1:] if before and before[-1].newest_schema_id == newest_schema_id else []
        kept = tuple(settled for settled in self.settled if settled not in replaced)
        return self.model_copy(update={"settled": (*kept, decided)})

    def feed_partitions(self) -> list[FeedPartition]:
        """All its partitions in order."""
        return [FeedPartition(self.id, partition) for partition in range(self.partitions)]


@dataclass(frozen=True, slots=True)
class Feeds:
    """A store's feeds, and what is known together with them of the values in them.

    Attributes:
        feeds: The feeds.
        schemas: The ids of the store's value schemas, in the order in which the store got them.
    """

    feeds: tuple[Feed, ...]
    schemas: tuple[int, ...]

    def feed(self, feed_id: str) -> Feed:
        """The feed of that id."""
        return next(feed for feed in self.feeds if feed.id == feed_id)


class PositionMap(Mapping[FeedPartition, int]):
    """A position: feed partition → next offset to read. Immutable; JSON form ``{"feed": {"0": 12}}``."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Mapping[FeedPartition, int] | None = None) -> None:
        self._offsets: dict[FeedPartition, int] = {} if offsets is None else dict(sorted(offsets.items()))

    def __getitem__(self, key: FeedPartition) -> int:
        return self._offsets[key]

    def __iter__(self) -> Iterator[FeedPartition]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositionMap) and self._offsets == other._offsets

    def __hash__(self) -> int:
        return hash(tuple(self._offsets.items()))

    def __repr__(self) -> str:
        return f"PositionMap({self.to_json()})"

    def with_offset(self, at: FeedPartition, offset: int) -> PositionMap:
        """This position with one partition's offset replaced."""
        return PositionMap({**self._offsets, at: offset})

    def merged(self, other: Mapping[FeedPartition, int]) -> PositionMap:
        """This position with the offsets of ``other`` in place of its own."""
        return PositionMap({**self._offsets, **other})

    def reaches(self, other: Mapping[FeedPartition, int]) -> bool:
        """Whether this is at or past ``other`` in each of its partitions; a missing partition is not."""
        return all(self._offsets.get(at, -1) >= offset for at, offset in other.items())

    def records_to(self, end: Mapping[FeedPartition, int]) -> int:
        """How many offsets lie between this and ``end``, summed over the partitions of ``end``."""
        return sum(max(0, offset - self._offsets.get(at, 0)) for at, offset in end.items())

    def to_json(self) -> dict[str, dict[str, int]]:
        """``{feed: {partition: offset}}`` with partitions as text, as in the face."""
        nested: dict[str, dict[str, int]] = {}
        for at, offset in self._offsets.items():
            nested.setdefault(at.feed, {})[str(at.partition)] = offset
        return nested

    @classmethod
    def from_json(cls, nested: Any) -> PositionMap:
        """The inverse of `to_json`.

        Raises:
            ValueError: It has another shape.
        """
        if isinstance(nested, PositionMap):
            return nested
        if not isinstance(nested, Mapping):
            raise ValueError(f"a position is an object of feeds, found {nested!r}")
        return cls(
            {
                FeedPartition(str(feed), int(partition)): _offset(offset)
                for feed, offsets in nested.items()
                for partition, offset in _offsets_of(offsets).items()
            }
        )


def _offsets_of(offsets: Any) -> Mapping[Any, Any]:
    if not isinstance(offsets, Mapping):
        raise ValueError(f"a feed's position is an object of partitions, found {offsets!r}")
    return offsets


def _offset(offset: Any) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or not -_BEYOND <= offset < _BEYOND:
        raise ValueError(f"an offset is a whole number of 64 bits, found {offset!r}")
    return offset


Position = Annotated[
    PositionMap,
    PlainValidator(PositionMap.from_json),
    PlainSerializer(lambda position: position.to_json(), return_type=dict[str, dict[str, int]]),
]
"""`PositionMap` as the field of a pydantic model."""

NOWHERE = PositionMap()
