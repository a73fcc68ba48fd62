"""Which versions may go, and what of the logs may be forgotten. Pure functions of the store and the time."""

from __future__ import annotations

from collections.abc import Mapping

from anew.core.feed import FeedPartition
from anew.core.store import Store, Version, VersionStatus

_AT_ONCE = frozenset({VersionStatus.FAILED, VersionStatus.KILLED})
_KEPT_A_WHILE = frozenset({VersionStatus.BACKUP, VersionStatus.ROLLED_BACK})
_NEEDS_ITS_LOG = frozenset(
    {
        VersionStatus.BUILDING,
        VersionStatus.LOADING,
        VersionStatus.READY,
        VersionStatus.CURRENT,
        VersionStatus.BACKUP,
        VersionStatus.DEFERRED,
        VersionStatus.ROLLED_BACK,
    }
)


def retirable(store: Store, now_ms: int) -> dict[int, str]:
    """Versions that may be retired now, with the reason.

    Failed and killed versions go at once; backups and rolled-back ones when their retention has ended. Never a
    version that is current in any fabric, nor the source of one in the making, nor one that a long read holds.
    """
    making = store.in_the_making()
    source = None if making is None else making.source_version
    reasons = {version.number: _reason(store, version, now_ms) for version in store.versions}
    return {number: why for number, why in reasons.items() if why is not None and number != source}


def _reason(store: Store, version: Version, now_ms: int) -> str | None:
    statuses = set(version.statuses.values())
    if statuses <= _AT_ONCE:
        return f"{version.status.value}: {version.error}"
    if not statuses <= _AT_ONCE | _KEPT_A_WHILE:
        return None
    kept_until_ms = max(version.since_ms.values()) + store.config.backup_retention_seconds * 1000
    if now_ms < kept_until_ms:
        return None
    if now_ms < store.read_until_ms.get(version.number, 0):
        return None
    return f"its retention of {store.config.backup_retention_seconds} s has ended"


def low_water(store: Store, at_rewind: Mapping[FeedPartition, int]) -> dict[str, tuple[int, ...]]:
    """The low-water mark of each feed: below it no version needs a record (rule R2).

    The least start of any building, serving, backup or resumable version, and not above ``at_rewind``, the offsets of
    (now − rewind), which the next full push may start from. It never moves back. A store without a version keeps all.
    """
    needing = [version for version in store.versions if not _NEEDS_ITS_LOG.isdisjoint(version.statuses.values())]
    if not needing:
        return {feed.id: feed.low_water for feed in store.feeds}
    return {
        feed.id: tuple(
            max(low, min(at_rewind.get(at, 0), *(version.start.get(at, 0) for version in needing)))
            for low, at in zip(feed.low_water, feed.feed_partitions(), strict=True)
        )
        for feed in store.feeds
    }
