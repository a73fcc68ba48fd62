"""The floors that are frozen into a version: what has expired (rule R11), which tombstones may go (rule R12)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from anew.core.errors import InvalidRequest, Refused
from anew.core.feed import Feed, FeedKind
from anew.core.stores.properties import TTL_ENABLE, TTL_SECONDS, TTL_START, RepushProperties
from anew.core.stores.store import SERVABLE, Store, Version, VersionStatus


def live_range_start_ms(store: Store, source: Version, asked: RepushProperties, now_ms: int) -> int:
    """Records written after 0 and before it have expired; 0 when nothing is to expire (cases F1–F4).

    Raises:
        InvalidRequest: ``bad_setting``: the live range would begin in the future.
        Refused: ``ttl_impossible``: the source's records have no write times.
    """
    if not asked.ttl:
        return 0
    if not (source.timed or source.config.hybrid or store.config.hybrid):
        raise ttl_impossible(
            f"version {source.number} of {store.name} was pushed without write times and takes no nearline writes",
            f"push it with --written-at COLUMN, or make it hybrid: anew store update {store.name} --set hybrid=true",
        )
    if asked.ttl_start_ms is None:
        seconds = store.config.rewind_seconds if asked.ttl_seconds is None else asked.ttl_seconds
        return max(now_ms - seconds * 1000, 0)
    if asked.ttl_start_ms > now_ms:
        raise InvalidRequest(
            "bad_setting",
            "the live range would begin in the future: all that is written until then would expire as well",
            found=f"{TTL_START} = {asked.ttl_start_ms}",
            expected=f"at most the time of planning, {now_ms}",
            hint=f"the unit is ms; or say how long a record lives: {TTL_SECONDS}",
        )
    return asked.ttl_start_ms


def ttl_impossible(found: str, hint: str) -> Refused:
    """The refusal of a time to live that cannot hold (case F4)."""
    return Refused(
        "ttl_impossible",
        "a time to live cannot hold here",
        found=found,
        expected=f"{TTL_ENABLE} on a repush of records that have write times",
        hint=hint,
    )


def tombstone_cut_ms(
    store: Store,
    source: Version,
    feeds: Collection[Feed],
    read_until_ms: int,
    now_ms: int,
    to_come_ms: Mapping[str, int],
) -> int:
    """The tombstones that a repush drops are older than this: min(now − grace, read until), never less than before.

    A job's records carry event times: what is appended tomorrow may be dated last week. So in a store with feeds of
    jobs only tombstones are dropped that are older than all that the jobs have yet to write; where nothing is known of
    that, none beyond those that were dropped before. A feed counts that the new version does not apply: it may get it.
    The same holds where the new version applies a feed that its source did not.

    Args:
        store: Whose settings decide.
        source: The version that is repushed.
        feeds: Those that the new version applies.
        read_until_ms: The append time up to which every one of them had been read at the plan's ``end``.
        now_ms: The time.
        to_come_ms: Feed of a job → no record that will still come into it has an earlier time; one that is not named:
            nothing is known.
    """
    jobs = [feed.id for feed in store.feeds if feed.kind is FeedKind.GENERATION]
    if any(feed not in to_come_ms for feed in jobs) or any(feed.id not in source.feeds for feed in feeds):
        return source.tombstone_floor_ms
    grace_ms = store.config.tombstone_grace_seconds * 1000
    cut_ms = min(now_ms - grace_ms, read_until_ms, *(to_come_ms[feed] for feed in jobs))
    return max(cut_ms, source.tombstone_floor_ms, 0)


def present_tombstone_floor_ms(store: Store) -> int:
    """Below it a late record of a key without a cell is turned away by some version that serves, or may (rule R12).

    A rewind in place that writes records from before needs a version of its own.
    """
    living = SERVABLE | {VersionStatus.BUILDING, VersionStatus.PENDING}
    return max((version.tombstone_floor_ms for version in store.versions if version.has(living)), default=0)


def check_undying(store: Store, *, timed: bool, empty: bool, allowed: bool) -> None:
    """Refuse a full push that would bring data that can never expire into a store that promised to (case F9).

    Raises:
        Refused: ``undying_push``.
    """
    floor_ms = present_ttl_floor_ms(store)
    if floor_ms == 0 or timed or empty or allowed:
        return
    raise Refused(
        "undying_push",
        f"{store.name} was repushed with a time to live; rows without write times would never expire",
        found="a full push without --written-at",
        expected=f"write times, because records written before {floor_ms} have expired",
        hint="name the column with --written-at, or say that it is meant: --allow-undying",
    )


def present_ttl_floor_ms(store: Store) -> int:
    """The greatest floor of what serves: a full push takes it over, so that its replay brings nothing back (R11)."""
    current = (store.version(number) for number in store.current.values())
    return max((version.ttl_floor_ms for version in current if version is not None), default=0)
