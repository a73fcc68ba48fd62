"""Versions that follow a stream job beside the version that serves: begin, cut over, cut back. Pure functions.

A generation appends into a feed of its own. In a *simple* rewind the feed is added to all versions that live
(`anew.core.stores.jobfeeds`). In a *parallel* rewind it belongs to one version alone, which *follows* beside the
version that serves (`begin_following`): its base is empty, and it names the feeds that it does not apply because its
own replaces them (rule R9). It neither displaces pushes and repushes nor is displaced by them. The job cuts over to it,
and back.

The condition of a cut-over is the feed of the generation that lives, and no version's number: a repush of the version
that serves, which applies the same feed, changes nothing for the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anew.core.errors import Refused
from anew.core.feed import Feed, FeedPartition, PositionMap
from anew.core.stores.floors import present_ttl_floor_ms
from anew.core.stores.jobfeeds import (
    FOLLOWING,
    check_alone,
    has_other_writers,
    is_known,
    job_of,
    jobs_among,
    pushed_rows,
    share_feed,
    was_pushed,
)
from anew.core.stores.lifecycle import existing, lacking, moved, replaced
from anew.core.stores.store import (
    ManifestRef,
    RebuildKind,
    Store,
    Version,
    VersionInFabric,
    VersionStatus,
)
from anew.core.stores.transitions import VersionEvent


@dataclass(frozen=True, slots=True)
class Follower:
    """A version that is to follow a generation.

    Attributes:
        feed: The generation's feed, from `generation_feed`.
        replaces: The ids of the feeds of the same job that it does not apply.
        from_first_record: Whether the generation reads each partition of its inputs from the first record that there
            ever was. From any other start, keys that were not written since would be missing in the new version.
        rebuild: The id of what makes the version, which its history names.
        empty: The ids of other feeds without a record, into which nobody will write: their generations are over. It
            applies none of them, and lacks nothing.
        path: Its directory in the deep store: ``version_path(store.uid, store.next_version, rebuild, 1)`` of
            ``anew.segments.layout``.
    """

    feed: Feed
    replaces: tuple[str, ...]
    from_first_record: bool
    rebuild: str
    path: str
    empty: tuple[str, ...] = ()


def begin_following(store: Store, made: Follower, ends: Mapping[FeedPartition, int], now_ms: int) -> Store:
    """Add a version that follows a generation, and the generation's feed, which belongs to it alone (rule R9).

    Its base is empty, and is to be written (`base_written`). It has the configuration that a push would get, and the
    floor of what has expired (rule R11): what expired does not come back. The same again changes nothing.

    Args:
        store: The store.
        made: The version.
        ends: See `other_writers`.
        now_ms: The time.

    Raises:
        Refused: ``writes_disabled``, ``base_would_be_missing``, ``not_of_the_job``, ``store_has_other_writers``,
            ``feed_exists``.
    """
    if is_known(store, made.feed):
        return store
    _check_follower(store, made)
    check_alone(store, (*made.replaces, *made.empty), ends)
    feeds = (*_nearline_feeds(store), made.feed)
    start = PositionMap({at: feed.low_water[at.partition] for feed in feeds for at in feed.feed_partitions()})
    config = store.config.frozen
    # Without a node: the next rounds place the replicas.
    unplaced: dict[int, tuple[str, ...]] = dict.fromkeys(range(config.partitions), ())
    there = VersionInFabric(status=VersionStatus.FOLLOWING, since_ms=now_ms, start=start, assignment=unplaced)
    version = Version(
        number=store.next_version,
        kind=RebuildKind.STREAM_REPROCESSING,
        config=config,
        config_hash=config.hash,
        fabrics={made.feed.fabric: there},
        created_at_ms=now_ms,
        rebuild=made.rebuild,
        epoch=1,
        path=made.path,
        feeds=tuple(feed.id for feed in feeds),
        replaces=(*made.replaces, *made.empty),
        ttl_floor_ms=present_ttl_floor_ms(store),
        timed=True,
        unpushed=True,
    )
    changes = {
        "feeds": (*store.feeds, made.feed),
        "versions": (*store.versions, version),
        "next_version": version.number + 1,
    }
    return store.model_copy(update=changes)


def base_written(store: Store, number: int, fabric: str, manifest: ManifestRef) -> Store:
    """The empty base of a version that follows lies in a fabric: nodes may load it. Later words change nothing."""
    version = existing(store, number)
    there = version.fabrics.get(fabric)
    if there is None or there.status is not VersionStatus.FOLLOWING or there.manifest is not None:
        return store
    return replaced(store, version.moved((fabric,), manifest=manifest))


def bases_to_write(store: Store) -> list[tuple[Version, str]]:
    """The versions that follow and have no base yet, each with the fabric."""
    return [
        (version, fabric)
        for version in store.versions
        for fabric in version.where(FOLLOWING)
        if version.fabrics[fabric].manifest is None
    ]


def give_up_following(store: Store, number: int, why: str, now_ms: int) -> Store:
    """The job does without a version that follows: its files go as those of a rebuild that was killed.

    Raises:
        Refused: ``not_following``.
    """
    version = _following(store, number)
    return replaced(store, moved(version, VersionEvent.KILL, version.where(FOLLOWING), now_ms, error=why))


def join_serving(store: Store, number: int, feed: Feed, now_ms: int) -> Store:
    """A first generation joins what serves: something else came to serve while a version of its own followed it.

    A push, or another job, began in the empty store as well, and was faster. The version that follows is given up, and
    the feed is added to all versions, as it would have been had the generation begun now.

    Raises:
        Refused: ``not_following``.
    """
    given_up = give_up_following(store, number, "another version serves: the generation has joined it", now_ms)
    return share_feed(given_up, feed)


def cut_over(store: Store, number: int, live: str | None, now_ms: int) -> Store:
    """A version that follows becomes current in its fabrics; the one before becomes a backup.

    Whether it has caught up is for the caller to judge (rule R17).

    Args:
        store: The store.
        number: The version.
        live: The id of the feed of the generation that lives, which the current version must apply; None: no version
            serves yet.
        now_ms: The time.

    Raises:
        Refused: ``not_following``, ``not_sealed``, ``generation_moved``, ``feeds_missing`` (rule R9),
            ``store_has_other_writers``: a push has brought rows meanwhile.
    """
    version = _following(store, number)
    for fabric in version.where(FOLLOWING):
        if version.fabrics[fabric].manifest is None:
            raise Refused(
                "not_sealed",
                f"the base of {version.name_in(store.name)} is not in {fabric} yet",
                found="no manifest",
                expected="an empty base",
                hint="the controller writes it: try again",
            )
        before = _serving(store, fabric, live)
        if before is not None:
            if missing := lacking(before, version, fabric):
                raise _feeds_missing(store, version, missing)
            if was_pushed(before):
                raise has_other_writers(store, [pushed_rows(store, before)])
            store = replaced(store, moved(before, VersionEvent.SWAP_OUT, (fabric,), now_ms))
        after = moved(existing(store, number), VersionEvent.CUT_IN, (fabric,), now_ms, error=None)
        store = replaced(store, after).model_copy(update={"current": {**store.current, fabric: number}})
    return store


def cut_back_target(store: Store, fabric: str) -> Version | None:
    """The newest backup of a fabric that applies a feed which its current version replaced; None: none is left."""
    current = store.version(store.current.get(fabric, 0))
    if current is None:
        return None
    backups = [v for v in store.versions if v.status_in(fabric) is VersionStatus.BACKUP]
    found = [v for v in backups if set(v.feeds) & set(current.replaces)]
    return max(found, key=lambda version: version.number, default=None)


def cut_back(store: Store, live: str, now_ms: int) -> Store:
    """The reverse of a cut-over, wherever a version serves that applies the feed of the generation that lives.

    What was replaced serves again, and what served follows on: the job may cut over to it again. That holds no
    schedule: nothing was found bad that a repush would build on.

    Args:
        store: The store.
        live: The id of the feed of the generation that lives until now.
        now_ms: The time.

    Raises:
        Refused: ``generation_moved``, ``replaced_version_gone``, ``feeds_missing`` (rule R9).
    """
    fabrics = [fabric for fabric in store.fabrics if _applies(store.version(store.current.get(fabric, 0)), live)]
    if not fabrics:
        raise _generation_moved(store, live, dict(store.current))
    for fabric in fabrics:
        current, target = existing(store, store.current[fabric]), cut_back_target(store, fabric)
        if target is None:
            raise Refused(
                "replaced_version_gone",
                f"what {current.name_in(store.name)} took the place of in {fabric} is gone",
                found={v.number: v.fabrics[fabric].status.value for v in store.versions if fabric in v.fabrics},
                expected=f"a backup that applies {', '.join(current.replaces) or 'what was replaced'}",
                hint="rewind the job",
            )
        # Within a job, what replaced a feed is replaced by it.
        jobs = jobs_among(store, set(current.replaces) & set(target.feeds))
        missing = [feed for feed in lacking(current, target, fabric) if not jobs_among(store, (feed,)) & jobs]
        if missing:
            raise _feeds_missing(store, target, missing)
        store = replaced(store, moved(current, VersionEvent.CUT_OUT, (fabric,), now_ms))
        store = replaced(store, moved(existing(store, target.number), VersionEvent.SWAP_IN, (fabric,), now_ms))
        store = store.model_copy(update={"current": {**store.current, fabric: target.number}})
    return store


def _check_follower(store: Store, made: Follower) -> None:
    if not store.config.writes:
        raise Refused("writes_disabled", f"{store.name} takes no writes", found="writes = false", expected="true")
    if not made.from_first_record:
        raise Refused(
            "base_would_be_missing",
            "a version with an empty base lacks the keys that were not written since the start of its generation",
            found="a start after the first record",
            expected="a start at the first record that each partition ever had",
            hint="--from oldest, where its topics have lost no record; from another start in place of the live "
            "generation: --simple; else submit a new job with a new store",
        )
    job = job_of(made.feed)
    strange = [feed for feed in made.replaces if jobs_among(store, (feed,)) != {job}]
    if strange:
        raise Refused(
            "not_of_the_job",
            f"a generation replaces feeds of its own job {job} alone",
            found=", ".join(strange),
            expected=", ".join(f.id for f in store.feeds if job_of(f) == job) or "no feed",
        )


def _nearline_feeds(store: Store) -> list[Feed]:
    """The feeds of nearline writes that a version made now applies: of a store that takes them, or did (rule R10)."""
    serving = [version for version in store.versions if version.has({VersionStatus.CURRENT})]
    applied = {feed for version in serving for feed in version.feeds}
    return [feed for feed in store.real_time_feeds if store.config.hybrid or feed.id in applied]


def _following(store: Store, number: int) -> Version:
    version = existing(store, number)
    if not version.has(FOLLOWING):
        raise Refused(
            "not_following",
            f"version {number} of {store.name} follows no job",
            found=version.status.value,
            expected=VersionStatus.FOLLOWING.value,
        )
    return version


def _serving(store: Store, fabric: str, live: str | None) -> Version | None:
    """The version that a fabric serves, if it is of the generation that is said to live.

    Raises:
        Refused: ``generation_moved``.
    """
    current = store.version(store.current.get(fabric, 0))
    if current is None and live is None:
        return None
    if live is None or not _applies(current, live):
        raise _generation_moved(store, live, {fabric: store.current.get(fabric, 0)})
    return current


def _applies(version: Version | None, feed: str) -> bool:
    return version is not None and feed in version.feeds


def _generation_moved(store: Store, live: str | None, current: dict[str, int]) -> Refused:
    serving = {fabric: store.version(number) for fabric, number in current.items()}
    return Refused(
        "generation_moved",
        f"{store.name} does not serve the generation that the cut is made from",
        found={fabric: "no version" if v is None else ", ".join(v.feeds) or "no feed" for fabric, v in serving.items()},
        expected="no version yet" if live is None else f"a version that applies {live}",
        hint="look at the job again",
    )


def _feeds_missing(store: Store, version: Version, missing: Iterable[str]) -> Refused:
    return Refused(
        "feeds_missing",
        f"{version.name_in(store.name)} does not apply all that the current version does",
        found=sorted(version.feeds),
        expected=sorted({*version.feeds, *missing}),
        hint="what was written there since would be lost: rewind the job again",
    )
