"""The planner: pure functions from a snapshot of the catalog and the log to a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anew.core.errors import InvalidRequest, Refused
from anew.core.feed import FeedPartition, PositionMap
from anew.core.plan import Change, Estimate, Fence, LogSplit, Plan, PushInput, Source, Splits, Target
from anew.core.properties import INPUT_FABRIC, INPUT_TOPIC, RepushProperties
from anew.core.settings import did_you_mean
from anew.core.store import (
    SEALED,
    RebuildKind,
    Store,
    Version,
    VersionStatus,
    parse_version,
    pending_changes,
)

_BYTES_PER_FEED_RECORD = 200
"""Only for the estimate: a log's records are not weighed before they are read."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a plan depends on, read at one moment.

    Attributes:
        store: The aggregate.
        ends: The end of each feed partition.
        unreachable: Fabrics that did not answer, with the reason.
        base_files: Base files of each sealed version.
        records_per_second: What the last rebuild of this store reached, None before the first.
        now_ms: When the snapshot was taken.
    """

    store: Store
    ends: Mapping[FeedPartition, int]
    unreachable: Mapping[str, str]
    base_files: Mapping[int, int]
    records_per_second: float | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class RepushRequest:
    """A repush as it was asked for; no target fabrics means all of the store's."""

    properties: RepushProperties = field(default_factory=RepushProperties)
    allow_not_serving: bool = False
    target_fabrics: tuple[str, ...] = ()


def plan_repush(snapshot: Snapshot, request: RepushRequest) -> Plan:
    """The plan of a repush.

    Raises:
        InvalidRequest: ``unknown_fabric``, ``bad_version``, ``contradiction``.
        Refused: ``nothing_to_repush``, ``not_serving``, ``not_sealed``.
        Unreachable: through the snapshot's maker.
    """
    store = snapshot.store
    if request.properties.source_kafka is False:
        raise InvalidRequest(
            "contradiction", "a repush reads the store's own data", found="source.kafka = false", expected="true"
        )
    version, fabric = choose_source(snapshot, request)
    feeds = store.feeds_of(version)
    end = PositionMap({at: snapshot.ends[at] for feed in feeds for at in feed.feed_partitions()})
    if version.stop is not None:
        end = PositionMap({at: min(offset, version.stop.get(at, offset)) for at, offset in end.items()})
    ranges = split_ranges(version.start, end, request.properties.max_records_per_mapper)
    changes = tuple(Change(**change) for change in pending_changes(store.config, version.config))
    plan = Plan(
        kind=RebuildKind.REPUSH,
        store=store.name,
        source=Source(
            version=version.number,
            fabric=fabric,
            topic=version.name_in(store.name),
            start=version.start,
            end=end,
            config=version.config,
            manifest=version.manifest,
            ttl_floor_ms=version.ttl_floor_ms,
            tombstone_floor_ms=version.tombstone_floor_ms,
        ),
        target=Target(
            version=store.next_version,
            fabrics=targets(store, request.target_fabrics),
            config=store.config.frozen,
            start=end,
        ),
        changes=changes,
        why=_why(version, fabric, changes),
        splits=Splits(
            base_files=snapshot.base_files.get(version.number, 0),
            log=len(ranges),
            max_records=request.properties.max_records_per_mapper,
            ranges=ranges,
        ),
        estimate=estimate(snapshot, version, ranges),
        fence=_fence(store),
        allow_not_serving=request.allow_not_serving,
        planned_at_ms=snapshot.now_ms,
    )
    return plan.sealed()


def plan_push(snapshot: Snapshot, files: PushInput, input_bytes: int, at_as_of: PositionMap) -> Plan:
    """The plan of a full push.

    ``at_as_of`` holds, per feed partition, the first offset appended at or after `push_start_ms`; it is used only when
    the store has a version: before the first one a push starts at the low-water mark (rule R13).
    """
    store = snapshot.store
    start = _push_start(store, at_as_of)
    plan = Plan(
        kind=RebuildKind.FULL_PUSH,
        store=store.name,
        source=Source(start=start, end=start, input=files),
        target=Target(
            version=store.next_version,
            fabrics=targets(store, ()),
            config=store.config.frozen,
            start=start,
        ),
        why=(f"rows of {len(files.paths)} input path(s)", "feeds are applied from the input's as-of time"),
        splits=Splits(max_records=0),
        estimate=Estimate(records=0, bytes=input_bytes),
        fence=_fence(store),
        planned_at_ms=snapshot.now_ms,
    )
    return plan.sealed()


def push_start_ms(store: Store, as_of_ms: int, now_ms: int) -> int:
    """From when on a full push's version applies nearline writes: min(as of, SOP − rewind) (rule R13)."""
    return min(as_of_ms, now_ms - store.config.rewind_seconds * 1000)


def choose_source(snapshot: Snapshot, request: RepushRequest) -> tuple[Version, str]:
    """The version and fabric to read.

    Without options: the highest version that is current in some fabric, from the first fabric where it is.

    Raises:
        InvalidRequest: ``unknown_fabric``, ``bad_version``.
        Refused: ``nothing_to_repush``, ``not_serving``, ``not_sealed``, ``fabric_unreachable``.
    """
    store, asked = snapshot.store, request.properties.input_fabric
    if asked is not None:
        _check_fabric(store, asked, INPUT_FABRIC)
        if asked in snapshot.unreachable:
            raise Refused(
                "fabric_unreachable",
                f"the fabric {asked} cannot be reached",
                found=snapshot.unreachable[asked],
                expected="a log that answers",
            )
    serving = {fabric: number for fabric, number in store.current.items() if number}
    if request.properties.input_topic is None:
        return _highest_current(store, serving, asked)
    number = _topic_number(store, request.properties.input_topic)
    version = store.version(number)
    if version is None or not SEALED.issuperset(version.statuses.values()) or version.manifest is None:
        raise Refused(
            "not_sealed",
            f"version {number} of {store.name} cannot be read",
            found="no such version" if version is None else version.status.value,
            expected="a sealed version that was not reclaimed",
        )
    where = [fabric for fabric, current in serving.items() if current == number and asked in (None, fabric)]
    if where:
        return version, where[0]
    if not request.allow_not_serving:
        raise Refused(
            "not_serving",
            f"version {number} serves nowhere" if asked is None else f"version {number} does not serve in {asked}",
            found=f"{store.name}_v{number}",
            expected=f"current versions: {serving}",
            hint="to read it all the same: --allow-not-serving",
        )
    return version, asked if asked is not None else next(iter(version.statuses))


def split_ranges(start: PositionMap, end: PositionMap, max_records: int) -> tuple[LogSplit, ...]:
    """The ranges that the tasks of a log scan read: disjoint, contiguous, together [start, end), none empty."""
    return tuple(
        LogSplit(feed=at.feed, partition=at.partition, begin=begin, end=min(begin + max_records, stop))
        for at, stop in end.items()
        for begin in range(start.get(at, 0), stop, max_records)
    )


def targets(store: Store, asked: tuple[str, ...]) -> tuple[str, ...]:
    """The fabrics that get the new version; all of the store's unless some were named."""
    for fabric in asked:
        _check_fabric(store, fabric, "--target-fabrics")
    return asked if asked else store.fabrics


def estimate(snapshot: Snapshot, version: Version, ranges: tuple[LogSplit, ...]) -> Estimate:
    """What reading the version will cost, from its manifest, the ranges and the last rebuild's speed."""
    manifest = version.manifest
    feed_records = sum(split.end - split.begin for split in ranges)
    base_records = 0 if manifest is None else manifest.rows + manifest.tombstones
    records = feed_records + base_records
    speed = snapshot.records_per_second
    return Estimate(
        records=records,
        bytes=(0 if manifest is None else manifest.bytes) + feed_records * _BYTES_PER_FEED_RECORD,
        seconds=None if speed is None or speed <= 0 else round(records / speed, 1),
    )


def _highest_current(store: Store, serving: dict[str, int], asked: str | None) -> tuple[Version, str]:
    candidates = {f: n for f, n in serving.items() if asked in (None, f)}
    if not candidates:
        raise Refused(
            "nothing_to_repush",
            f"{store.name} has no current version" + ("" if asked is None else f" in {asked}"),
            found=store.current,
            expected="a version that serves",
            hint=f"make the first one: anew push {store.name} FILE --key …",
        )
    number = max(candidates.values())
    version = store.version(number)
    if version is None or version.statuses[next(iter(version.statuses))] is VersionStatus.RECLAIMED:
        raise Refused("nothing_to_repush", f"the current version {number} of {store.name} is gone", found=number)
    return version, next(fabric for fabric, current in candidates.items() if current == number)


def _topic_number(store: Store, topic: str) -> int:
    if topic.isdigit():
        raise InvalidRequest(
            "bad_version", f"{INPUT_TOPIC} names a version topic", found=topic, expected=f"{store.name}_v<N>"
        )
    return parse_version(topic, store.name)


def _check_fabric(store: Store, fabric: str, where: str) -> None:
    if fabric not in store.fabrics:
        raise InvalidRequest(
            "unknown_fabric",
            f"{where} names a fabric that {store.name} does not have",
            found=fabric,
            expected=", ".join(store.fabrics),
            hint=did_you_mean(fabric, store.fabrics),
        )


def _push_start(store: Store, at_as_of: PositionMap) -> PositionMap:
    lows = {at: feed.low_water[at.partition] for feed in store.feeds for at in feed.feed_partitions()}
    if not store.versions or not any(store.current.values()):
        return PositionMap(lows)
    return PositionMap({at: max(low, at_as_of.get(at, low)) for at, low in lows.items()})


def _why(version: Version, fabric: str, changes: tuple[Change, ...]) -> tuple[str, ...]:
    source = f"version {version.number} is {version.statuses[fabric].value} in {fabric}"
    if not changes:
        return (source, "no setting changes: the new version is sorted and folds in what was written since")
    return (source, "general path: rows are partitioned and sorted again", *(f"{c.setting} changes" for c in changes))


def _fence(store: Store) -> Fence:
    return Fence(
        store_uid=store.uid,
        current=dict(store.current),
        config_hash=store.config.frozen.hash,
        feeds=tuple(feed.id for feed in store.feeds),
    )
