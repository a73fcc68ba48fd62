"""Which versions may go, and what of the logs may be forgotten. Pure functions of the store and the time.

A plain repush holds the same data as its source. So of a chain of them only the two ends are worth keeping: the
current version, and the real version that the chain began with, as what can be gone back to. The ones between, the
*intermediates*, go after a short wait (case H7). A time to live drops data, so that its source is a real backup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from anew.core.feed import Feed, FeedPartition, PositionMap
from anew.core.moment import utc_text
from anew.core.rowretention import REPUSH_SOURCE_WAIT_SECONDS
from anew.core.stores.leaving import source_in_store
from anew.core.stores.lifecycle import rollback_targets
from anew.core.stores.longreads import last_hold_ms
from anew.core.stores.store import IN_THE_MAKING, SERVABLE, RebuildKind, Store, Version, VersionStatus

_ABOVE_ALL = 1 << 63
"""An offset that no log comes to."""

_AT_ONCE = frozenset({VersionStatus.FAILED, VersionStatus.KILLED})
_GONE = frozenset({VersionStatus.RETIRED, VersionStatus.RECLAIMED})
_NEEDS_ITS_LOG = SERVABLE | {VersionStatus.BUILDING, VersionStatus.PENDING}


def retirable(
    store: Store, now_ms: int, repush_source_wait_seconds: int = REPUSH_SOURCE_WAIT_SECONDS
) -> dict[int, str]:
    """Versions that may be retired now, each with the reason; what is not here and not gone is in `keeping`.

    Failed and killed versions go at once; intermediates after the wait, unless one is the only version that a fabric
    could go back to; backups and rolled-back versions when their retention has ended; a version whose swap was refused
    then too, or as soon as a later one is current everywhere. Never what is current, in the making, the source of
    what is in the making, or deferred as it was asked for, nor what a long read holds. In several fabrics, a version
    goes when each lets it go; one that is pending in a fabric stays until it is taken there, or overtaken.
    """
    terms = _terms(store, now_ms, repush_source_wait_seconds)
    return {number: term.ended for number, term in terms.items() if not term.holds_at(now_ms)}


def keeping(store: Store, now_ms: int, repush_source_wait_seconds: int = REPUSH_SOURCE_WAIT_SECONDS) -> dict[int, str]:
    """Versions that `retirable` leaves alone, each with the reason and until when, where a time is known."""
    terms = _terms(store, now_ms, repush_source_wait_seconds)
    return {number: term.text for number, term in terms.items() if term.holds_at(now_ms)}


@dataclass(frozen=True, slots=True)
class _Term:
    """For how long something keeps a version, and why; ``until_ms`` is None where only an event ends it."""

    until_ms: int | None
    why: str
    ended: str = ""

    @property
    def text(self) -> str:
        return self.why if self.until_ms is None else f"{self.why}, until {utc_text(self.until_ms)}"

    def holds_at(self, now_ms: int) -> bool:
        return self.until_ms is None or now_ms < self.until_ms


def _longest(terms: Iterable[_Term]) -> _Term:
    return max(terms, key=lambda term: float("inf") if term.until_ms is None else term.until_ms)


def _terms(store: Store, now_ms: int, wait_seconds: int) -> dict[int, _Term]:
    """Version → what keeps it the longest; not for versions whose reclaim has begun."""
    by_number = {version.number: version for version in store.versions}
    versions = [version for version in by_number.values() if not version.has(_GONE)]
    between = {fabric: _intermediates(by_number, current) for fabric, current in store.current.items()}
    sources = {making.source_version: making for making in by_number.values() if making.has(IN_THE_MAKING)}
    by_fabric = {
        version.number: {
            fabric: _term_of_intermediate(store, version, fabric, wait_seconds)
            if version.number in between.get(fabric, ()) and there.status is VersionStatus.BACKUP
            else _term_of_status(store, version, fabric)
            for fabric, there in version.fabrics.items()
        }
        for version in versions
    }
    for fabric in store.fabrics:
        _keep_one_target(store, versions, fabric, by_fabric, now_ms)
    return {
        version.number: _longest(
            [*by_fabric[version.number].values(), *_claims(store, version, sources.get(version.number), now_ms)]
        )
        for version in versions
    }


def _keep_one_target(
    store: Store, versions: list[Version], fabric: str, by_fabric: dict[int, dict[str, _Term]], now_ms: int
) -> None:
    """Where no version would remain to go back to, the newest intermediate stays like a real backup.

    What lacks a feed of the current version is no target: a rollback to it would be refused (rule R9).
    """
    targets = rollback_targets(store, versions, fabric)
    if any(_longest(by_fabric[version.number].values()).holds_at(now_ms) for version in targets):
        return
    for version in sorted(targets, key=lambda version: version.number, reverse=True):
        only = _retention(store, version, fabric, f"the only version to go back to in {fabric}")
        if only.holds_at(now_ms):
            by_fabric[version.number][fabric] = only
            return


def _intermediates(by_number: Mapping[int, Version], current: int) -> set[int]:
    """The plain repushes that the current version was made from by plain repushes alone.

    The walk goes on through versions that are gone, and past those that have left, and ends at a full push, at a repush
    with a time to live, or where the chain is broken.
    """
    passed: set[int] = set()
    version = by_number.get(current)
    while version is not None and version.kind is RebuildKind.REPUSH and version.number not in passed:
        passed.add(version.number)
        source = source_in_store(version, by_number)
        version = None if source is None else by_number[source]
    return {number for number in passed if number < current}


def _term_of_status(store: Store, version: Version, fabric: str) -> _Term:
    there = version.fabrics[fabric]
    status = there.status
    if status in _AT_ONCE:
        return _Term(0, status.value, f"{status.value}: {there.error}")
    if status is VersionStatus.CURRENT:
        return _Term(None, f"current in {fabric}")
    if status in IN_THE_MAKING:
        return _Term(None, f"in the making: {status.value} in {fabric}")
    if status is VersionStatus.FOLLOWING:
        return _Term(None, f"follows a job in {fabric}, until the job cuts over to it or gives it up")
    if status is VersionStatus.PENDING:
        if store.current.get(fabric, 0) > version.number:
            return _Term(
                0, "overtaken", f"not taken, and version {store.current[fabric]} is current in {fabric} by now"
            )
        return _Term(None, f"pending in {fabric}, until it is taken there or overtaken")
    if status is not VersionStatus.DEFERRED:
        return _retention(store, version, fabric, f"{status.value.replace('_', ' ')} in {fabric}")
    if version.defer_swap:
        return _Term(None, f"deferred in {fabric}, as it was asked for, until somebody swaps or kills it")
    if all(store.current.get(each, 0) > version.number for each in version.fabrics):
        return _Term(0, "overtaken", f"not swapped, and version {store.current[fabric]} is current in {fabric} by now")
    return _retention(store, version, fabric, f"deferred in {fabric}")


def _term_of_intermediate(store: Store, version: Version, fabric: str, wait_seconds: int) -> _Term:
    seconds = min(wait_seconds, store.config.backup_retention_seconds)
    same = f"version {store.current[fabric]} holds the same data"
    until_ms = version.fabrics[fabric].since_ms + seconds * 1000
    return _Term(until_ms, f"backup in {fabric}, though {same}", f"{same}, and it was a backup for {seconds} s")


def _retention(store: Store, version: Version, fabric: str, why: str) -> _Term:
    seconds = store.config.backup_retention_seconds
    return _Term(version.fabrics[fabric].since_ms + seconds * 1000, why, f"its retention of {seconds} s has ended")


def _claims(store: Store, version: Version, making: Version | None, now_ms: int) -> Iterator[_Term]:
    """What keeps a version now whatever its status is; ``making`` is made from it."""
    if making is not None:
        yield _Term(None, f"the source of version {making.number}, which is in the making")
    holds = store.holds.get(version.number, {})
    held_until_ms = max(store.read_until_ms.get(version.number, 0), *holds.values(), 0)
    last_ms = last_hold_ms(version)
    if last_ms is not None:
        # What was held while the version was current ends with the rest.
        held_until_ms = min(held_until_ms, last_ms)
    if now_ms < held_until_ms:
        most = "" if last_ms is None else f" (at most until {utc_text(last_ms)})"
        yield _Term(held_until_ms, f"held by a long read{most}")


def low_water(store: Store, at_rewind: Mapping[FeedPartition, int]) -> dict[str, tuple[int, ...]]:
    """The low-water mark of each feed: below it no version needs a record (rule R2).

    The least start of any building, pending, following, serving, backup or resumable version that applies the feed, in
    any fabric, and not above ``at_rewind``, the offsets of (now − rewind), which the next full push may start from. It
    never moves back. A feed that no version applies keeps all.
    """
    starts = [
        (version.feeds, there.start)
        for version in store.versions
        for there in version.fabrics.values()
        if there.status in _NEEDS_ITS_LOG
    ]
    return {
        feed.id: _low_water_of(feed, [start for feeds, start in starts if feed.id in feeds], at_rewind)
        for feed in store.feeds
    }


def _low_water_of(feed: Feed, starts: list[PositionMap], at_rewind: Mapping[FeedPartition, int]) -> tuple[int, ...]:
    if not starts:
        return feed.low_water
    return tuple(
        max(low, min(at_rewind.get(at, 0), *(start.get(at, 0) for start in starts)))
        for low, at in zip(feed.low_water, feed.feed_partitions(), strict=True)
    )


def may_forget(store: Store) -> list[FeedPartition]:
    """The feed partitions whose low-water mark can move: no version needs what lies above it for a while.

    Of all others nobody has to ask how much was appended when (`low_water` leaves their marks where they are).
    """
    unbounded = {at: _ABOVE_ALL for feed in store.feeds for at in feed.feed_partitions()}
    marks = low_water(store, unbounded)
    return [
        at
        for feed in store.feeds
        for at, mark, low in zip(feed.feed_partitions(), marks[feed.id], feed.low_water, strict=True)
        if mark > low
    ]
