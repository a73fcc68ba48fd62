"""Retention and low water on small stores, case by case."""

from __future__ import annotations

import pytest

from anew.core.feed import FeedPartition, PositionMap
from anew.core.retention import low_water, retirable
from anew.core.store import Store, Version, VersionStatus
from anew.testing.builders import a_config, a_feed, a_store, a_version
from anew.testing.clock import NOON_MS

S = VersionStatus
_WEEK_MS = 7 * 86_400_000
_FEED = a_feed(partitions=2)


def _store(*versions: Version, current: int = 0) -> Store:
    return a_store(config=a_config(hybrid=True), versions=versions, feeds=(_FEED,), current={"dc-0": current})


def test_only_what_nobody_needs_may_go() -> None:
    """Failed and killed versions go at once, backups after their retention, what serves or is being made never."""
    versions = [
        a_version(number, status)
        for number, status in enumerate(
            [S.FAILED, S.KILLED, S.BACKUP, S.ROLLED_BACK, S.CURRENT, S.DEFERRED, S.RETIRED, S.RECLAIMED, S.LOADING], 1
        )
    ]
    store = _store(*versions, current=5)
    assert sorted(retirable(store, NOON_MS)) == [1, 2]
    assert sorted(retirable(store, NOON_MS + _WEEK_MS - 1)) == [1, 2]
    assert sorted(retirable(store, NOON_MS + _WEEK_MS)) == [1, 2, 3, 4]
    assert "retention" in retirable(store, NOON_MS + _WEEK_MS)[3]


def test_the_source_of_a_running_rebuild_stays() -> None:
    """A backup whose retention has ended stays as long as a version is made from it."""
    backup = a_version(1, S.BACKUP)
    making = a_version(3, S.BUILDING, source_version=1)
    late_ms = NOON_MS + _WEEK_MS
    assert retirable(_store(backup, a_version(2), making, current=2), late_ms) == {}
    failed = making.model_copy(update={"statuses": {"dc-0": S.FAILED}})
    assert sorted(retirable(_store(backup, a_version(2), failed, current=2), late_ms)) == [1, 3]


def test_retention_is_a_live_setting() -> None:
    """A shorter retention lets versions go that were made under a longer one."""
    store = _store(a_version(1, S.BACKUP), a_version(2), current=2)
    shorter = store.model_copy(update={"config": a_config(hybrid=True, backup_retention_seconds=0)})
    assert (sorted(retirable(store, NOON_MS)), sorted(retirable(shorter, NOON_MS))) == ([], [1])


def _starting(number: int, status: VersionStatus, offset: int) -> Version:
    start = PositionMap(dict.fromkeys(_FEED.feed_partitions(), offset))
    return a_version(number, status, feeds=(_FEED.id,), start=start)


_NOTHING = dict.fromkeys(_FEED.feed_partitions(), 10**9)


@pytest.mark.case("rules:R2")
@pytest.mark.parametrize("status", [S.BUILDING, S.LOADING, S.READY, S.CURRENT, S.BACKUP, S.DEFERRED, S.ROLLED_BACK])
def test_every_version_that_may_be_read_holds_the_log_back(status: VersionStatus) -> None:
    """The mark is the least start of any version that is built, serves, or may be gone back to."""
    store = _store(_starting(1, status, 30), _starting(2, S.CURRENT, 70))
    assert low_water(store, _NOTHING) == {_FEED.id: (30, 30)}


@pytest.mark.case("rules:R2")
@pytest.mark.parametrize("status", [S.FAILED, S.KILLED, S.RETIRED, S.RECLAIMED])
def test_versions_that_are_gone_hold_nothing_back(status: VersionStatus) -> None:
    """What can never be read again does not keep the log."""
    store = _store(_starting(1, status, 30), _starting(2, S.CURRENT, 70))
    assert low_water(store, _NOTHING) == {_FEED.id: (70, 70)}


@pytest.mark.case("rules:R2")
def test_the_next_full_push_holds_the_log_back() -> None:
    """The mark is never above the offset of (now - rewind), per partition, and never moves back."""
    store = _store(_starting(1, S.CURRENT, 70))
    at_rewind = {FeedPartition(_FEED.id, 0): 40, FeedPartition(_FEED.id, 1): 90}
    assert low_water(store, at_rewind) == {_FEED.id: (40, 70)}
    moved = store.model_copy(update={"feeds": (_FEED.model_copy(update={"low_water": (50, 50)}),)})
    assert low_water(moved, at_rewind) == {_FEED.id: (50, 70)}
    assert low_water(moved, {}) == {_FEED.id: (50, 50)}


@pytest.mark.case("rules:R2", "rules:R13")
def test_before_the_first_version_everything_is_kept() -> None:
    """Nearline writes made before the first push are applied on top of it, so that none is forgotten before."""
    assert low_water(_store(), _NOTHING) == {_FEED.id: (0, 0)}
    assert low_water(_store(_starting(1, S.FAILED, 0)), _NOTHING) == {_FEED.id: (0, 0)}
