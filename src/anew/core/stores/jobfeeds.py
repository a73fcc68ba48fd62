"""The feeds of stream jobs in a store: adding and dropping them, which versions apply them, who else wrote there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from anew.core.errors import Refused
from anew.core.feed import Feed, FeedKind, FeedPartition
from anew.core.stamp import Origin
from anew.core.stores.names import generation_topic
from anew.core.stores.store import IN_THE_MAKING, SERVABLE, Store, Version, VersionStatus

FOLLOWING = frozenset({VersionStatus.FOLLOWING})
_LIVES = SERVABLE | {VersionStatus.BUILDING, VersionStatus.PENDING}
"""Statuses of versions that serve, or may again: a feed that is added to a store is added to all of them."""
_COUNTS = IN_THE_MAKING | {VersionStatus.CURRENT, VersionStatus.PENDING, VersionStatus.DEFERRED}
"""Statuses of versions whose rows readers have, or are to get."""


def generation_feed(store: Store, origin: Origin, fabric: str, *, topic_uid: str, incarnation: int) -> Feed:
    """The feed of a job's generation, announced: its topic is to be made.

    Args:
        store: What the job writes into.
        origin: The generation.
        fabric: Where it writes.
        topic_uid: A fresh id, which the topic is to be made with.
        incarnation: The next number of `anew.core.stores.names.incarnation_counter`.
    """
    return Feed(
        kind=FeedKind.GENERATION,
        fabric=fabric,
        topic=generation_topic(store.name, origin),
        topic_uid=topic_uid,
        incarnation=incarnation,
        partitions=store.config.rt_partitions,
        origin=origin.encoded.hex(),
        key_schema_id=store.key_schema_id,
        skew_limit_ms=store.config.skew_limit_seconds * 1000,
        low_water=(0,) * store.config.rt_partitions,
    )


def add_feed(store: Store, feed: Feed) -> Store:
    """Add a generation's feed to the store and to each of its versions that lives, from its first record (rule R9).

    A version that follows another generation of the same job does not apply it: it replaces it. The same feed again
    changes nothing.

    Raises:
        Refused: ``feed_exists``: another feed has its id.
    """
    if is_known(store, feed):
        return store
    return share_feed(store.model_copy(update={"feeds": (*store.feeds, feed)}), feed)


def share_feed(store: Store, feed: Feed) -> Store:
    """Let each version that lives apply a feed of the store, from its first record; see `add_feed`."""
    start = dict.fromkeys(feed.feed_partitions(), 0)

    def changed(version: Version) -> Version:
        if feed.id in version.feeds:
            return version
        own = followed_feed(store, version)
        if own is not None and job_of(own) == job_of(feed):
            return version.model_copy(update={"replaces": (*version.replaces, feed.id)})
        return _with_feed(version, feed, start) if version.has(_LIVES) else version

    return store.model_copy(update={"versions": tuple(map(changed, store.versions))})


def followed_feed(store: Store, version: Version) -> Feed | None:
    """The feed of the generation that a version follows; None for a version that does not follow.

    It is the first one of a job that the version names: feeds of other jobs were added to it later, as to all versions.
    """
    if not version.has(FOLLOWING):
        return None
    found = (store.feed(feed) for feed in version.feeds)
    return next((feed for feed in found if feed is not None and feed.kind is FeedKind.GENERATION), None)


def drop_feed(store: Store, feed_id: str) -> Store:
    """Take a feed out of the store, whose topic may go then; one that is not there changes nothing.

    Raises:
        Refused: ``feed_in_use``: a version names it (rule R9).
    """
    users = [v.name_in(store.name) for v in store.versions if feed_id in v.feeds and not v.reclaimed]
    if users:
        raise Refused(
            "feed_in_use",
            f"versions of {store.name} apply the feed {feed_id}",
            found=", ".join(users),
            expected="a feed that no version names",
            hint="wait until they are reclaimed",
        )
    return store.model_copy(update={"feeds": tuple(feed for feed in store.feeds if feed.id != feed_id)})


def other_writers(store: Store, ours: Collection[str], ends: Mapping[FeedPartition, int]) -> list[str]:
    """What wrote into a store besides some feeds of one job, in words; none where these wrote all that there is.

    Args:
        store: The store.
        ours: Ids of the job's feeds.
        ends: The end of each partition of the feeds of nearline writes.
    """
    found = [
        f"nearline writes in {feed.id}"
        for feed in store.real_time_feeds
        if any(feed.low_water) or any(ends[at] for at in feed.feed_partitions())
    ]
    applied = {feed for version in store.versions if version.has({VersionStatus.CURRENT}) for feed in version.feeds}
    found += [
        f"the feed of {Origin.decode(feed.origin_bytes)}"
        for feed in store.feeds
        if feed.kind is FeedKind.GENERATION and feed.id in applied and feed.id not in ours
    ]
    alive = [version for version in store.versions if version.has(_COUNTS)]
    return found + [pushed_rows(store, version) for version in alive if was_pushed(version)]


def check_alone(store: Store, ours: Collection[str], ends: Mapping[FeedPartition, int]) -> None:
    """Refuse where anything but some feeds of one job wrote into a store: a version of them alone would lack it.

    Raises:
        Refused: ``store_has_other_writers``, with what was found.
    """
    others = other_writers(store, ours, ends)
    if others:
        raise has_other_writers(store, others)


def feeds_of_push(store: Store) -> tuple[Feed, ...]:
    """The feeds that a full push applies: all nearline writes, and the jobs' feeds that belong to the store.

    Those are the ones that a version applies which serves. Before the first one, those that no version has to itself
    because it follows a job (rule R9).
    """
    serving = [version for version in store.versions if version.number in store.current.values()]
    shared = {feed for version in serving for feed in version.feeds}
    if not serving:
        own = {feed for version in store.versions if version.has(FOLLOWING) for feed in version.feeds}
        shared = {feed.id for feed in store.feeds} - own
    return tuple(feed for feed in store.feeds if feed.kind is FeedKind.RT or feed.id in shared)


def check_supersedes(store: Store, feeds: Iterable[Feed], *, allowed: bool) -> None:
    """Refuse a full push into a store that a job feeds, unless it is meant.

    What the job wrote before the input's as-of time would not be in the new version.

    Raises:
        Refused: ``fed_by_job``.
    """
    jobs = generations_of(feeds)
    if not jobs or allowed:
        return
    raise Refused(
        "fed_by_job",
        f"{store.name} is fed by {', '.join(jobs)}: a full push would take the place of what it has written",
        found=f"the feed of {', '.join(jobs)}",
        expected="a store that no job feeds",
        hint="rewind the job instead; or say that the input has all that it wrote: --supersede-job",
    )


def generations_of(feeds: Iterable[Feed]) -> list[str]:
    """The generations whose feeds are among some, as ``clicks@3``."""
    return [str(Origin.decode(feed.origin_bytes)) for feed in feeds if feed.kind is FeedKind.GENERATION]


def job_of(feed: Feed) -> str | None:
    """The name of the job whose feed it is; None for nearline writes."""
    return Origin.decode(feed.origin_bytes).name if feed.kind is FeedKind.GENERATION else None


def jobs_among(store: Store, feeds: Iterable[str]) -> set[str | None]:
    """The names of the jobs whose feeds are among some."""
    found = (store.feed(feed) for feed in feeds)
    return {job_of(feed) for feed in found if feed is not None} - {None}


def is_known(store: Store, feed: Feed) -> bool:
    """Whether a store has the feed already.

    Raises:
        Refused: ``feed_exists``.
    """
    present = store.feed(feed.id)
    if present is not None and (present.kind, present.origin) != (feed.kind, feed.origin):
        raise Refused("feed_exists", f"{store.name} has another feed {feed.id}", found=present.origin)
    return present is not None


def _with_feed(version: Version, feed: Feed, start: Mapping[FeedPartition, int]) -> Version:
    fabrics = {
        fabric: there.model_copy(update={"start": there.start.merged(start)})
        for fabric, there in version.fabrics.items()
    }
    return version.model_copy(update={"feeds": (*version.feeds, feed.id), "fabrics": fabrics})


def was_pushed(version: Version) -> bool:
    """Whether a push may have brought rows of a version; one that is being made will say what it has."""
    manifest = version.manifest
    return not version.unpushed and (manifest is None or manifest.rows + manifest.tombstones > 0)


def pushed_rows(store: Store, version: Version) -> str:
    """What a version has that no feed brought, in words."""
    return f"rows that {version.name_in(store.name)} was pushed with"


def has_other_writers(store: Store, others: list[str]) -> Refused:
    """The refusal of a version of a job's records alone, with what it would lack."""
    return Refused(
        "store_has_other_writers",
        f"not only the job wrote into {store.name}: a version of the job's records alone would lack the rest",
        found=", ".join(others),
        expected="a store that the job alone has written into",
        hint="give the job a store of its own",
    )
