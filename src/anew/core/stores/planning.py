"""The planner: pure functions from a snapshot of the catalog and the log to a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anew.core.errors import InvalidRequest, Refused
from anew.core.feed import NOWHERE, Feed, FeedKind, FeedPartition, PositionMap
from anew.core.moment import utc_text
from anew.core.plan import Change, Estimate, Pace
from anew.core.stores.copartition import feed_splits, groups_of, why_not_copartitioned
from anew.core.stores.floors import check_undying, live_range_start_ms, present_ttl_floor_ms, tombstone_cut_ms
from anew.core.stores.jobfeeds import check_supersedes, feeds_of_push
from anew.core.stores.names import parse_version
from anew.core.stores.plan import Fence, LogSplit, Plan, PushInput, Source, Splits, Target
from anew.core.stores.properties import INPUT_FABRIC, INPUT_TOPIC, RepushProperties
from anew.core.stores.store import RebuildKind, Store, Version, VersionStatus, pending_changes
from anew.core.suggest import did_you_mean

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
        pace: How the last rebuilds of this store got on, None before the first.
        now_ms: When the snapshot was taken.
        read_until_ms: Records that are appended behind ``ends`` get an append time that is not below this.
        to_come_ms: See `tombstone_cut_ms`; known before ``ends``.
    """

    store: Store
    ends: Mapping[FeedPartition, int]
    unreachable: Mapping[str, str]
    base_files: Mapping[int, int]
    pace: Pace | None
    now_ms: int
    read_until_ms: int = 0
    to_come_ms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RepushRequest:
    """A repush as it was asked for; no target fabrics means all of the store's.

    Attributes:
        from_replicas: See `anew.core.plan.Source`.
    """

    properties: RepushProperties = field(default_factory=RepushProperties)
    allow_not_serving: bool = False
    target_fabrics: tuple[str, ...] = ()
    defer_swap: bool = False
    from_replicas: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PushOptions:
    """How a full push is to be put into service; no target fabrics means all of the store's.

    Attributes:
        supersede_job: Whether the pushed rows may take the place of what a job wrote before the input's as-of time.
    """

    allow_undying: bool = False
    target_fabrics: tuple[str, ...] = ()
    defer_swap: bool = False
    supersede_job: bool = False


NO_OPTIONS = PushOptions()


def plan_repush(snapshot: Snapshot, request: RepushRequest) -> Plan:
    """The plan of a repush.

    Raises:
        InvalidRequest: ``unknown_fabric``, ``bad_version``, ``contradiction``.
        Refused: ``nothing_to_repush``, ``not_serving``, ``not_sealed``, ``ttl_impossible``, ``cannot_defer``,
            ``feeds_truncated``.
        Unreachable: through the snapshot's maker.
    """
    store = snapshot.store
    if request.properties.source_kafka is False:
        raise InvalidRequest(
            "contradiction", "a repush reads the store's own data", found="source.kafka = false", expected="true"
        )
    version, fabric = choose_source(snapshot, request)
    asked = request.properties
    feeds = store.feeds_of(version)
    end = PositionMap({at: snapshot.ends[at] for feed in feeds for at in feed.feed_partitions()})
    if version.stop is not None:
        end = PositionMap({at: min(offset, version.stop.get(at, offset)) for at, offset in end.items()})
    there = version.fabrics[fabric]
    ranges = split_ranges(there.start, end, asked.max_records_per_mapper)
    changes = tuple(Change(**change) for change in pending_changes(store.config, version.config))
    expired_before_ms = live_range_start_ms(store, version, asked, snapshot.now_ms)
    shuffled = why_not_copartitioned(version.config, store.config.frozen)
    plan = Plan(
        kind=RebuildKind.TTL_REPUSH if asked.ttl else RebuildKind.REPUSH,
        store=store.name,
        source=Source(
            version=version.number,
            fabric=fabric,
            broker=asked.input_broker,
            topic=version.name_in(store.name),
            start=there.start,
            end=end,
            config=version.config,
            manifest=there.manifest,
            ttl_floor_ms=version.ttl_floor_ms,
            tombstone_floor_ms=version.tombstone_floor_ms,
            from_replicas=request.from_replicas,
        ),
        target=_repush_target(snapshot, request, version, end, expired_before_ms),
        changes=changes,
        path="general" if shuffled else "copartitioned",
        why=(
            *_why(version, fabric),
            *_why_path(store, version, ranges, asked.max_records_per_mapper, shuffled),
            *_why_else(changes, asked, expired_before_ms),
            *_why_replicas(request.from_replicas),
        ),
        splits=Splits(
            base_files=snapshot.base_files.get(version.number, 0),
            log=len(ranges),
            max_records=asked.max_records_per_mapper,
            combiner=asked.combiner,
            ranges=ranges,
        ),
        estimate=estimate(snapshot, version, ranges),
        fence=_fence(store),
        allow_not_serving=request.allow_not_serving,
        planned_at_ms=snapshot.now_ms,
    )
    return plan.sealed()


def plan_push(
    snapshot: Snapshot, files: PushInput, input_bytes: int, at_as_of: PositionMap, options: PushOptions = NO_OPTIONS
) -> Plan:
    """The plan of a full push; an input without paths is an empty push.

    ``at_as_of`` holds, per feed partition, the first offset appended at or after `push_start_ms`; it is used only when
    the store has a version: before the first one a push starts at the low-water mark (rule R13).

    Raises:
        InvalidRequest: ``unknown_fabric``.
        Refused: ``undying_push``, ``cannot_defer``, ``fed_by_job``.
    """
    store, timed = snapshot.store, files.written_at is not None
    feeds = feeds_of_push(store)
    check_undying(store, timed=timed, empty=not files.paths, allowed=options.allow_undying)
    check_supersedes(store, feeds, allowed=options.supersede_job)
    start = _push_start(store, feeds, at_as_of)
    _check_deferral(store, feeds, wanted=options.defer_swap)
    rows = f"rows of {len(files.paths)} input path(s)" if files.paths else "no rows: an empty version"
    plan = Plan(
        kind=RebuildKind.FULL_PUSH,
        store=store.name,
        source=Source(start=start, end=start, input=files),
        target=Target(
            version=store.next_version,
            fabrics=targets(store, options.target_fabrics),
            config=store.config.frozen,
            feeds=tuple(feed.id for feed in feeds),
            start=start,
            stop=_known_stop(store, feeds),
            ttl_floor_ms=present_ttl_floor_ms(store),
            timed=timed or bool(feeds),
            defer_swap=options.defer_swap,
        ),
        why=(rows, "feeds are applied from the input's as-of time"),
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
    if version is not None and version.has({VersionStatus.FOLLOWING}):
        raise Refused(
            "not_serving",
            f"version {number} of {store.name} follows a job",
            found=VersionStatus.FOLLOWING.value,
            expected=f"current versions: {serving}",
            hint="a repush would serve before the job cuts over to it: cut over first",
        )
    if version is None or not version.readable_in(asked):
        raise Refused(
            "not_sealed",
            f"version {number} of {store.name} cannot be read" + ("" if asked is None else f" in {asked}"),
            found=store.status_of(number) or "no such version",
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
    return version, asked if asked is not None else next(f for f, there in version.fabrics.items() if there.readable)


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
    """What reading the version will cost, from its manifest, the ranges and the pace of rebuilds before."""
    manifest = version.manifest
    feed_records = sum(split.end - split.begin for split in ranges)
    base_records = 0 if manifest is None else manifest.rows + manifest.tombstones
    records = feed_records + base_records
    return Estimate(
        records=records,
        bytes=(0 if manifest is None else manifest.bytes) + feed_records * _BYTES_PER_FEED_RECORD,
        seconds=None if snapshot.pace is None else snapshot.pace.seconds_for(records),
    )


def _highest_current(store: Store, serving: dict[str, int], asked: str | None) -> tuple[Version, str]:
    candidates = {f: n for f, n in serving.items() if asked in (None, f)}
    if not candidates:
        raise Refused(
            "nothing_to_repush",
            f"{store.name} has no current version" + ("" if asked is None else f" in {asked}"),
            found={place: f"version {number}" if number else "no version" for place, number in store.current.items()},
            expected="a version that serves",
            hint=f"make the first one: anew push {store.name} FILE --key …",
        )
    number = max(candidates.values())
    version = store.version(number)
    if version is None or not version.readable:
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


def _push_start(store: Store, feeds: tuple[Feed, ...], at_as_of: PositionMap) -> PositionMap:
    lows = {at: feed.low_water[at.partition] for feed in feeds for at in feed.feed_partitions()}
    if not store.versions or not any(store.current.values()):
        return PositionMap(lows)
    return PositionMap({at: max(low, at_as_of.get(at, low)) for at, low in lows.items()})


def _repush_target(
    snapshot: Snapshot, request: RepushRequest, source: Version, end: PositionMap, expired_before_ms: int
) -> Target:
    """What a repush makes: it applies its source's feeds from where the scan ended, and the store's others besides.

    A feed that its source did not apply is applied from its low water. A batch version keeps the feeds of its source:
    what was closed and read to its stop is applied from there to there (rules R9, R10).
    """
    store, asked = snapshot.store, request.properties
    config = store.config.frozen
    feeds = _repush_feeds(store, source)
    _check_deferral(store, feeds, wanted=request.defer_swap)
    others = [feed for feed in feeds if feed.id not in source.feeds]
    _check_whole(store, source, others)
    fresh = {at: feed.low_water[at.partition] for feed in others for at in feed.feed_partitions()}
    read_all = all(offset == snapshot.ends[at] for at, offset in end.items())
    read_until_ms = snapshot.read_until_ms if read_all else 0
    cut_ms = tombstone_cut_ms(store, source, feeds, read_until_ms, snapshot.now_ms, snapshot.to_come_ms)
    return Target(
        version=store.next_version,
        fabrics=targets(store, request.target_fabrics),
        config=config,
        feeds=tuple(feed.id for feed in feeds),
        start=end.merged(fresh) if feeds else NOWHERE,
        stop=_known_stop(store, feeds),
        ttl_floor_ms=max(source.ttl_floor_ms, expired_before_ms),
        tombstone_floor_ms=cut_ms,
        timed=source.timed or bool(feeds),
        defer_swap=request.defer_swap,
        new_dictionary=asked.new_dictionary,
    )


def _repush_feeds(store: Store, source: Version) -> tuple[Feed, ...]:
    """The feeds that a repush applies: its source's, and the nearline writes of a store that takes them by now.

    The feeds of other jobs' generations, or of those that follow, are other versions' own (rule R9).
    """
    wanted = {*source.feeds, *(feed.id for feed in store.real_time_feeds if store.config.hybrid)}
    return tuple(feed for feed in store.feeds if feed.id in wanted)


def _check_whole(store: Store, source: Version, others: list[Feed]) -> None:
    """Raise where records are forgotten that other versions have in their bases and the source never had (rule R2)."""
    begun = [feed.id for feed in others if any(feed.low_water)]
    if begun:
        raise Refused(
            "feeds_truncated",
            f"version {source.number} of {store.name} lacks writes that no log holds any more",
            found=f"it does not apply {', '.join(begun)}, whose first records are forgotten",
            expected="a source that applies them",
            hint=f"push to it, or let it take no nearline writes: anew store update {store.name} --set hybrid=false"
            if source.has({VersionStatus.CURRENT})
            else f"repush the current version: anew repush {store.name}",
        )


def _check_deferral(store: Store, feeds: tuple[Feed, ...], *, wanted: bool) -> None:
    closing = not store.config.hybrid and any(feed.kind is FeedKind.RT for feed in feeds)
    if wanted and closing and _known_stop(store, feeds) is None:
        raise Refused(
            "cannot_defer",
            f"{store.name} is to end its nearline writes: these would stay closed until somebody swaps",
            found="--defer-swap with hybrid = false",
            expected="a swap as soon as the version is ready",
            hint="leave --defer-swap out, or end the writes with a rebuild of their own first",
        )


def _known_stop(store: Store, feeds: tuple[Feed, ...]) -> PositionMap | None:
    """Where closed feeds end: at the stop of the version that serves. None while one is open, or is to be.

    Not where a version in the making closed them: should it end badly, they are open again (rule R10).
    """
    if store.config.hybrid:
        return None
    stops: dict[FeedPartition, int] = {}
    for feed in feeds:
        if feed.kind is not FeedKind.RT:
            # No writer ends it: it has no stop.
            continue
        current = store.version(store.current.get(feed.fabric, 0))
        if current is None or current.config.hybrid or current.stop is None or feed.id not in current.feeds:
            return None
        stops |= {at: current.stop[at] for at in feed.feed_partitions()}
    return PositionMap(stops) if stops else None


def _why(version: Version, fabric: str) -> tuple[str, ...]:
    return (f"version {version.number} is {version.fabrics[fabric].status.value} in {fabric}",)


def _why_path(
    store: Store, version: Version, ranges: tuple[LogSplit, ...], max_records: int, shuffled: str | None
) -> tuple[str, ...]:
    if shuffled is not None:
        return (f"general path: all rows are partitioned and sorted again, because {shuffled}",)
    target = store.config.frozen
    alone = feed_splits(groups_of(version.config, target), target, store.feeds_of(version), ranges, max_records)
    feeds = "only feed records are shuffled" if alone is None else "each task reads its own feed partitions"
    return (f"co-partitioned path: base files stay sorted as they are, {feeds}",)


def _why_else(changes: tuple[Change, ...], asked: RepushProperties, expired_before_ms: int) -> tuple[str, ...]:
    texts = []
    if expired_before_ms:
        texts.append(f"records that were written before {utc_text(expired_before_ms)} expire")
    if asked.combiner:
        texts.append("combiner: a scan task keeps only the winners of each key in what it reads of a feed partition")
    if not changes:
        texts.append("no setting changes: the new version is sorted and folds in what was written since")
    return (*texts, *(f"{change.setting} changes" for change in changes))


def _why_replicas(places: tuple[tuple[int, int], ...]) -> tuple[str, ...]:
    if not places:
        return ()
    named = ", ".join(f"{partition}.{sub}" for partition, sub in places)
    return (f"the base is damaged: replicas are read instead in {named} (partition.sub-partition)",)


def _fence(store: Store) -> Fence:
    return Fence(
        store_uid=store.uid,
        current=dict(store.current),
        config_hash=store.config.frozen.hash,
        feeds=tuple(feed.id for feed in store.feeds),
    )
