"""Which part of its feeds a replica of a version applies: the partitions that can hold its keys, from start to stop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from anew.core.feed import Feed, FeedPartition, PositionMap
from anew.core.partition import feed_partitions_read
from anew.core.partitioners import XXHASH64
from anew.core.stores.store import Frozen


class AppliesFeeds(Protocol):
    """A version, as the catalog or a node has it."""

    @property
    def config(self) -> Frozen:
        """Its frozen configuration."""

    @property
    def feeds(self) -> tuple[str, ...]:
        """The ids of the feeds that it applies."""

    @property
    def stop(self) -> PositionMap | None:
        """Up to where (rule R10); None: without end."""


def feed_partitions_applied(
    version: AppliesFeeds, feeds: Iterable[Feed], partition: int
) -> list[tuple[Feed, FeedPartition]]:
    """What a replica of one partition reads: the partitions of the version's ready feeds that can hold its keys."""
    found = []
    config = version.config
    for feed in feeds:
        if feed.id not in version.feeds or not feed.ready:
            continue
        alike = feed.partitioner == config.partitioner == XXHASH64
        numbers = feed_partitions_read(partition, config.partitions, feed.partitions, alike=alike)
        found += [(feed, FeedPartition(feed.id, number)) for number in numbers]
    return found


def start_of(start: PositionMap, feed: Feed, at: FeedPartition) -> int:
    """From where a version applies a feed partition; a feed that ``start`` does not name is read from its low water."""
    return start.get(at, feed.low_water[at.partition])


def stop_of(version: AppliesFeeds, at: FeedPartition) -> int | None:
    """Up to where the version applies a feed partition (rule R10); None: without end."""
    return None if version.stop is None else version.stop.get(at)
