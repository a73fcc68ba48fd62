"""The store aggregate: configuration, schemas, feeds, versions and which of them each fabric serves.

Current pointers and version statuses of a store share one revision (rule R15): the aggregate is one document that
changes by compare-and-swap, and every change is a pure function in `anew.core.stores.lifecycle`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from anew.core.confighash import config_hash, value_hash
from anew.core.feed import NOWHERE, Feed, FeedKind, Feeds, Position
from anew.core.schedule import ScheduleState
from anew.core.settings import Takes
from anew.core.stores.oldversions import by_fabric
from anew.core.stores.settings import FROZEN_SETTINGS, STORE_SETTINGS


class VersionStatus(StrEnum):
    """Where a version stands in one fabric.

    *Pending*: it is sealed elsewhere, to be taken there later. *Following*: it applies the feed of a job's generation
    beside the version that serves, until the job cuts over to it (`anew.core.stores.following`).
    """

    BUILDING = "building"
    PENDING = "pending"
    FOLLOWING = "following"
    LOADING = "loading"
    READY = "ready"
    CURRENT = "current"
    BACKUP = "backup"
    DEFERRED = "deferred"
    ROLLED_BACK = "rolled_back"
    FAILED = "failed"
    KILLED = "killed"
    RETIRED = "retired"
    RECLAIMED = "reclaimed"


SERVABLE = frozenset(
    {
        VersionStatus.LOADING,
        VersionStatus.READY,
        VersionStatus.CURRENT,
        VersionStatus.BACKUP,
        VersionStatus.DEFERRED,
        VersionStatus.ROLLED_BACK,
        VersionStatus.FOLLOWING,
    }
)
"""Statuses in which nodes hold the version's replicas."""

IN_THE_MAKING = frozenset({VersionStatus.BUILDING, VersionStatus.LOADING, VersionStatus.READY})
"""Statuses of a version that a running rebuild works on. One that is pending, or follows, is in nobody's way."""

SEALED = SERVABLE
"""Statuses in which a version's base is complete and kept in that fabric."""


class RebuildKind(StrEnum):
    """What a rebuild makes, and from what."""

    FULL_PUSH = "full_push"
    REPUSH = "repush"
    TTL_REPUSH = "ttl_repush"
    STREAM_REPROCESSING = "stream_reprocessing"
    """The version of a parallel rewind: made of the records of a job's generation alone. No plan has this kind."""


_ADDED_LATER = {"partitioner_params": "{}", "partitioner_source": ""}
"""Frozen fields that earlier catalogs do not have, with the values that say nothing."""


def newest_schema_id(schemas: Mapping[int, str]) -> int:
    """The id of the value schema that a store got last: a registry's ids need not grow."""
    return tuple(schemas)[-1]


class Frozen(BaseModel):
    """The configuration that belongs to a version.

    ``partitioner_source`` is the code of a partitioner of the user's own, so that whoever has the configuration can
    place keys.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    partitions: int
    partitioner: str
    partitioner_params: str = "{}"
    partitioner_source: str = ""
    amplification_factor: int
    compression: str
    transport: str
    replicas: int
    hybrid: bool
    rewind_seconds: int
    rewind_from: str
    lag_limit_records: int
    lag_limit_seconds: int

    @property
    def hash(self) -> str:
        """The canonical config hash.

        Fields that came after the first release enter it where they say something, so that the hashes of configurations
        that need them not stay what they were.
        """
        stated = self.model_dump()
        return config_hash({name: stated[name] for name in stated if stated[name] != _ADDED_LATER.get(name)})

    @property
    def through_log(self) -> bool:
        """Whether the base goes through a version topic; else through files in the deep store."""
        return self.transport == "log"

    @property
    def sub_partitions(self) -> int:
        """How many sub-partitions there are in all; their numbers are ``partition * amplification_factor + sub``."""
        return self.partitions * self.amplification_factor


class StoreConfig(Frozen):
    """All settings of a store: the frozen ones as wanted for the next version, the fixed and the live ones."""

    rt_partitions: int
    rt_partitioner: str
    skew_limit_seconds: int
    backup_retention_seconds: int
    tombstone_grace_seconds: int
    quota_bytes: int
    max_value_bytes: int
    reads: bool
    writes: bool
    repush_schedule: str | None
    repush_when: str | None
    owner: str | None
    description: str | None

    @property
    def frozen(self) -> Frozen:
        """The part that a version made now would get."""
        return Frozen(**{name: getattr(self, name) for name in Frozen.model_fields})


class ManifestRef(BaseModel):
    """Where a sealed version's manifest lies and what it promises."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    checksum: str
    files: int
    rows: int
    tombstones: int
    bytes: int
    fingerprint: int


class VersionTopic(BaseModel):
    """The topic of a fabric's log that a version's base goes through.

    Attributes:
        uid: Chosen before it is made (rule R22); once it is ``ready``, what the log identifies it by.
        ready: Whether it was made.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    uid: str
    ready: bool = False


class VersionInFabric(BaseModel):
    """The life of a version in one fabric; what happens to it in another one changes nothing of it.

    Attributes:
        status: Where it stands.
        since_ms: When it got that status.
        error: What was wrong with it, or why it waits.
        manifest: Of its base, once it is sealed there. A base without a row has a manifest without a file.
        start: From where each feed is applied on top of the base.
        ready_target: Positions that every replica must reach before the swap, taken at one instant (rule R17).
        swap_from: The current version that the plan recorded: the swap's condition (rule R14).
        topic: The one that its base goes through; None where it goes to files.
        assignment: Partition → nodes that hold a replica, or are to.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: VersionStatus
    since_ms: int
    error: str | None = None
    manifest: ManifestRef | None = None
    start: Position = NOWHERE
    ready_target: Position | None = None
    swap_from: int = 0
    topic: VersionTopic | None = None
    assignment: dict[int, tuple[str, ...]] = {}

    @property
    def readable(self) -> bool:
        """Whether its base is complete there and no step of its reclaim has begun (rule R15)."""
        return self.manifest is not None and self.status in SEALED


class Version(BaseModel):
    """One build of a store with a frozen configuration.

    Attributes:
        number: Never used again for the same store name (rule R16).
        fabrics: Fabric → its life there, in the order in which the plan names them.
        feeds: Ids of the feeds that it applies; only ever grows (rule R9).
        replaces: Ids of feeds that it does not apply because others of its feeds take their place: what lacks these
            alone lacks nothing (rule R9). Repushes inherit it.
        stop: Up to where its feeds are applied, for a version whose feeds were closed (rule R10).
        ttl_floor_ms: Records written after 0 and before it have expired (rule R11); 0: nothing expires.
        tombstone_floor_ms: Below it, tombstones may have been dropped (rule R12); 0: none was.
        timed: Whether its records can have write times: it was pushed with them, or takes nearline writes.
        unpushed: Whether no push brought any of its rows: its base, or the one that it was repushed from in the end,
            was empty.
        defer_swap: Whether its swap waits until somebody asks for it.
        closing: Whether it ends nearline writes: from now on none is accepted, until ``stop`` is known and applied.
        plain_source: Where ``source_version`` has left the store: the nearest version behind it that is still there and
            that plain repushes alone led here from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    kind: RebuildKind
    config: Frozen
    config_hash: str
    fabrics: dict[str, VersionInFabric]
    created_at_ms: int
    rebuild: str
    epoch: int
    path: str
    source_version: int | None = None
    feeds: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    stop: Position | None = None
    ttl_floor_ms: int = 0
    tombstone_floor_ms: int = 0
    timed: bool = False
    # Left out of JSON where it says nothing: clients of the release before know no such field.
    unpushed: bool = Field(default=False, exclude_if=lambda unpushed: not unpushed)
    defer_swap: bool = False
    closing: bool = False
    plain_source: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_any_release(cls, stated: Any) -> Any:
        return by_fabric(stated) if isinstance(stated, dict) else stated

    @property
    def statuses(self) -> dict[str, VersionStatus]:
        """Fabric → status there."""
        return {fabric: there.status for fabric, there in self.fabrics.items()}

    def status_in(self, fabric: str) -> VersionStatus | None:
        """Where it stands in a fabric; None where it is not to be."""
        there = self.fabrics.get(fabric)
        return None if there is None else there.status

    def where(self, statuses: Collection[VersionStatus]) -> list[str]:
        """The fabrics in which it has one of the statuses."""
        return [fabric for fabric, there in self.fabrics.items() if there.status in statuses]

    def has(self, statuses: Collection[VersionStatus], fabrics: Collection[str] | None = None) -> bool:
        """Whether it has one of the statuses in one of the fabrics; in any of its own where none are named."""
        return any(
            there.status in statuses for fabric, there in self.fabrics.items() if fabrics is None or fabric in fabrics
        )

    @property
    def manifest(self) -> ManifestRef | None:
        """The manifest of the first fabric where it is sealed: what the base holds is the same in all."""
        return next((there.manifest for there in self.fabrics.values() if there.manifest is not None), None)

    @property
    def error(self) -> str | None:
        """What was wrong, or why it waits; what is not so in all fabrics names those where it is."""
        errors = {fabric: there.error for fabric, there in self.fabrics.items() if there.error is not None}
        if len(errors) == len(self.fabrics) and len(set(errors.values())) == 1:
            return next(iter(errors.values()))
        return "; ".join(f"{fabric}: {error}" for fabric, error in errors.items()) or None

    @property
    def readable(self) -> bool:
        """Whether its base can be read in some fabric."""
        return self.readable_in(None)

    def readable_in(self, fabric: str | None) -> bool:
        """Whether its base can be read in a fabric; for None in any."""
        return any(there.readable for name, there in self.fabrics.items() if fabric in (None, name))

    @property
    def reclaimed(self) -> bool:
        """Whether its files are gone in every fabric."""
        return all(there.status is VersionStatus.RECLAIMED for there in self.fabrics.values())

    @property
    def status(self) -> VersionStatus:
        """The status, while all fabrics agree; that of the first fabric otherwise."""
        return next(iter(self.fabrics.values())).status

    def moved(self, fabrics: Iterable[str], **changes: Any) -> Version:
        """The version with fields of its life in some fabrics replaced."""
        there = {fabric: self.fabrics[fabric].model_copy(update=changes) for fabric in fabrics}
        return self.model_copy(update={"fabrics": {**self.fabrics, **there}})

    def name_in(self, store: str) -> str:
        """The version's name, ``flights_v7``."""
        return f"{store}_v{self.number}"


class Store(BaseModel):
    """A named key-value dataset.

    Attributes:
        uid: Identifies the store where names come back (rule R16).
        revision: Grows with every change; the compare-and-swap's fence.
        key_schema_id: The key schema's number among all schemas of the catalog, for logs with wire headers.
        schemas: Value schema id → Avro schema text, in the order in which the store got them: the last is the newest
            (`newest_schema_id`), whatever its id. Every JSON of it keeps that order.
        current: Fabric → number of the version that it serves; 0 before the first.
        versions: All but those that were reclaimed and have left (`anew.core.stores.leaving`), which are rows of the
            catalog.
        past_numbers: The numbers of those that have left, as runs: the first and the last one of each.
        next_version: The number that the next version gets.
        read_until_ms: Version → until when some long read holds it (rule R15); it is not retired before.
        holds: The same for long reads that say when they end: version → hold → until when.
        paused: Why no scheduled rebuild, reclaim or gc starts, None when they may.
        schedule_held: Why no scheduled rebuild starts, None when it may: somebody rolled back.
        schedule: How far the scheduled repush has come, None before the first look.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    uid: str
    name: str
    revision: int
    created_at_ms: int
    key_schema: str
    key_schema_id: int = 1
    schemas: dict[int, str]
    config: StoreConfig
    fabrics: tuple[str, ...]
    current: dict[str, int]
    feeds: tuple[Feed, ...] = ()
    versions: tuple[Version, ...] = ()
    next_version: int = 1
    read_until_ms: dict[int, int] = {}
    holds: dict[int, dict[str, int]] = {}
    paused: str | None = None
    schedule_held: str | None = None
    schedule: ScheduleState | None = None
    deleted_at_ms: int | None = None
    past_numbers: tuple[tuple[int, int], ...] = ()

    @property
    def newest_schema_id(self) -> int:
        """The id of the value schema that writers use."""
        return newest_schema_id(self.schemas)

    def version(self, number: int) -> Version | None:
        """The version of that number, or None."""
        return next((version for version in self.versions if version.number == number), None)

    def has_left(self, number: int) -> bool:
        """Whether the version of that number was reclaimed and is a row of the catalog, or was one."""
        return any(first <= number <= last for first, last in self.past_numbers)

    def status_of(self, number: int) -> str | None:
        """Where the version of that number stands, also when it has left; None where there never was one."""
        version = self.version(number)
        if version is None:
            return VersionStatus.RECLAIMED.value if self.has_left(number) else None
        return version.status.value

    def feed(self, feed_id: str) -> Feed | None:
        """The feed of that id, or None."""
        return next((feed for feed in self.feeds if feed.id == feed_id), None)

    def feeds_of(self, version: Version) -> tuple[Feed, ...]:
        """The feeds that a version applies."""
        return self.feeds_with_schemas(version.feeds).feeds

    def feeds_with_schemas(self, ids: Collection[str]) -> Feeds:
        """The feeds of those ids, and the value schemas that are known with them."""
        return Feeds(tuple(feed for feed in self.feeds if feed.id in ids), tuple(self.schemas))

    @property
    def real_time_feeds(self) -> tuple[Feed, ...]:
        """Those of its feeds into which writers write."""
        return tuple(feed for feed in self.feeds if feed.kind is FeedKind.RT)

    def real_time_feeds_of(self, version: Version) -> tuple[Feed, ...]:
        """Those of the feeds that a version applies into which writers write."""
        return tuple(feed for feed in self.real_time_feeds if feed.id in version.feeds)

    def must_close(self, version: Version) -> bool:
        """Whether nearline writes are still to end for a version: batch, but their feeds have no end yet (R10)."""
        return not version.config.hybrid and version.stop is None and bool(self.real_time_feeds_of(version))

    def in_the_making(self, fabrics: Collection[str] | None = None) -> Version | None:
        """The version that a running rebuild works on in one of the fabrics (None: in any), or None."""
        return next((version for version in self.versions if version.has(IN_THE_MAKING, fabrics)), None)

    def deferred(self, fabrics: Collection[str] | None = None) -> Version | None:
        """The version whose swap waits in one of the fabrics (None: in any) until somebody asks for it, or None."""
        waiting = (v for v in self.versions if v.defer_swap and v.has({VersionStatus.DEFERRED}, fabrics))
        return next(waiting, None)

    def writable(self, feed: Feed) -> bool:
        """Whether nearline writes into the feed are accepted: the version that its fabric serves applies it to no end.

        Before the first version the configuration decides. While a version that ends the writes becomes ready none is
        accepted (rule R10). No writer writes into the feed of a job's generation.
        """
        closing = any(version.closing and version.has(IN_THE_MAKING) for version in self.versions)
        if closing or feed.kind is not FeedKind.RT:
            return False
        current = self.version(self.current.get(feed.fabric, 0))
        if current is None:
            return self.config.hybrid
        return current.config.hybrid and feed.id in current.feeds


def pending_changes(config: StoreConfig, running: Frozen | None) -> list[dict[str, Any]]:
    """What the next version would change: ``{"setting", "now", "wanted"}`` per setting."""
    if running is None:
        return []
    changes = [
        {"setting": name, "now": getattr(running, name), "wanted": getattr(config, name)}
        for name in FROZEN_SETTINGS
        if getattr(running, name) != getattr(config, name)
    ]
    if running.partitioner_source != config.partitioner_source:
        sources = {"now": source_digest(running), "wanted": source_digest(config)}
        changes.append({"setting": "partitioner_source", **sources})
    return changes


def source_digest(config: Frozen) -> str | None:
    """The hash by which the source of a partitioner is shown; None for the built-in one."""
    return value_hash(config.partitioner_source)[:16] if config.partitioner_source else None


def takes_effect(name: str) -> Takes:
    """When a change of the setting takes effect."""
    return STORE_SETTINGS[name].takes
