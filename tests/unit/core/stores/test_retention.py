"""Retention and low water on small stores, case by case."""

from __future__ import annotations

import pytest

from anew.core.feed import FeedPartition, PositionMap
from anew.core.moment import utc_text
from anew.core.rowretention import REPUSH_SOURCE_WAIT_SECONDS
from anew.core.stores.retention import keeping, low_water, may_forget, retirable
from anew.core.stores.store import RebuildKind, Store, Version, VersionStatus
from anew.testing.builders import a_config, a_feed, a_store, a_version
from anew.testing.clock import NOON_MS

S = VersionStatus
K = RebuildKind
_WEEK_MS = 7 * 86_400_000
_WAIT_MS = REPUSH_SOURCE_WAIT_SECONDS * 1000
_FEED = a_feed(partitions=2)


def _store(*versions: Version, current: int = 0) -> Store:
    return a_store(config=a_config(hybrid=True), versions=versions, feeds=(_FEED,), current={"dc-0": current})


@pytest.mark.case("stores:H8")
def test_only_what_nobody_needs_may_go() -> None:
    """Failed and killed versions go at once, others after their retention, what serves or is being made never."""
    versions = [
        a_version(number, status)
        for number, status in enumerate(
            [S.FAILED, S.KILLED, S.BACKUP, S.ROLLED_BACK, S.CURRENT, S.DEFERRED, S.RETIRED, S.RECLAIMED, S.LOADING], 1
        )
    ]
    store = _store(*versions, current=5)
    assert sorted(retirable(store, NOON_MS)) == [1, 2]
    assert sorted(retirable(store, NOON_MS + _WEEK_MS - 1)) == [1, 2]
    assert sorted(retirable(store, NOON_MS + _WEEK_MS)) == [1, 2, 3, 4, 6]
    assert retirable(store, NOON_MS + _WEEK_MS)[3] == "its retention of 604800 s has ended"


@pytest.mark.case("stores:H8")
def test_what_is_kept_is_explained() -> None:
    """Each version that is kept says why and until when, where a time is known; what is gone is not spoken of."""
    versions = [
        a_version(number, status)
        for number, status in enumerate(
            [S.BACKUP, S.ROLLED_BACK, S.CURRENT, S.DEFERRED, S.RETIRED, S.READY, S.KILLED], 1
        )
    ]
    until = utc_text(NOON_MS + _WEEK_MS)
    assert keeping(_store(*versions, current=3), NOON_MS) == {
        1: f"backup in dc-0, until {until}",
        2: f"rolled back in dc-0, until {until}",
        3: "current in dc-0",
        4: f"deferred in dc-0, until {until}",
        6: "in the making: ready in dc-0",
    }


@pytest.mark.case("stores:H8")
def test_the_source_of_a_running_rebuild_stays() -> None:
    """A backup whose retention has ended stays as long as a version is made from it."""
    backup = a_version(1, S.BACKUP)
    making = a_version(3, S.BUILDING, source_version=1)
    late_ms = NOON_MS + _WEEK_MS
    running = _store(backup, a_version(2), making, current=2)
    assert retirable(running, late_ms) == {}
    assert keeping(running, late_ms)[1] == "the source of version 3, which is in the making"
    failed = making.moved(("dc-0",), status=S.FAILED)
    assert sorted(retirable(_store(backup, a_version(2), failed, current=2), late_ms)) == [1, 3]


@pytest.mark.case("rules:R15")
def test_a_long_read_holds_a_version() -> None:
    """Until it is released or its time is over, a version that is being read stays, an intermediate as well."""
    store = _store(*_chain(K.FULL_PUSH, K.REPUSH, K.REPUSH), current=3)
    held = store.model_copy(update={"read_until_ms": {2: NOON_MS + 2 * _WAIT_MS}})
    assert retirable(held, NOON_MS + 2 * _WAIT_MS - 1) == {}
    why = keeping(held, NOON_MS)[2]
    assert why.startswith("held by a long read (at most until ")
    assert why.endswith(f"until {utc_text(NOON_MS + 2 * _WAIT_MS)}")
    assert sorted(retirable(held, NOON_MS + 2 * _WAIT_MS)) == [2]
    assert "same data" in retirable(held, NOON_MS + 2 * _WAIT_MS)[2]


def test_retention_is_a_live_setting() -> None:
    """A shorter retention lets versions go that were made under a longer one."""
    store = _store(a_version(1, S.BACKUP), a_version(2), current=2)
    shorter = store.model_copy(update={"config": a_config(hybrid=True, backup_retention_seconds=0)})
    assert (sorted(retirable(store, NOON_MS)), sorted(retirable(shorter, NOON_MS))) == ([], [1])


def _chain(*kinds: RebuildKind) -> list[Version]:
    """Versions 1, 2, …, each made from the one before and swapped in at once; the last is current."""
    return [
        a_version(
            number,
            S.CURRENT if number == len(kinds) else S.BACKUP,
            kind=kind,
            source_version=None if kind is K.FULL_PUSH else number - 1,
        )
        for number, kind in enumerate(kinds, 1)
    ]


def _moved(version: Version, status: VersionStatus, since_ms: int = NOON_MS) -> Version:
    return version.moved(("dc-0",), status=status, since_ms=since_ms)


@pytest.mark.case("stores:H7")
def test_an_intermediate_of_plain_repushes_goes_after_a_short_wait() -> None:
    """Of a full push and two plain repushes the middle one goes after the wait, the push after its retention."""
    store = _store(*_chain(K.FULL_PUSH, K.REPUSH, K.REPUSH), current=3)
    assert retirable(store, NOON_MS + _WAIT_MS - 1) == {}
    assert keeping(store, NOON_MS)[2] == (
        f"backup in dc-0, though version 3 holds the same data, until {utc_text(NOON_MS + _WAIT_MS)}"
    )
    assert retirable(store, NOON_MS + _WAIT_MS) == {2: "version 3 holds the same data, and it was a backup for 3600 s"}
    assert sorted(retirable(store, NOON_MS + _WEEK_MS)) == [1, 2]
    assert sorted(retirable(store, NOON_MS + 60_000, repush_source_wait_seconds=60)) == [2]


@pytest.mark.case("stores:H7")
@pytest.mark.parametrize(
    ("kinds", "gone"),
    [
        ((K.FULL_PUSH, K.REPUSH, K.REPUSH, K.REPUSH), [2, 3]),
        ((K.FULL_PUSH, K.REPUSH, K.REPUSH, K.TTL_REPUSH), []),
        ((K.FULL_PUSH, K.TTL_REPUSH, K.REPUSH, K.REPUSH), [3]),
        ((K.FULL_PUSH, K.REPUSH, K.TTL_REPUSH, K.REPUSH, K.REPUSH), [4]),
        ((K.FULL_PUSH, K.REPUSH, K.FULL_PUSH), []),
        ((K.FULL_PUSH, K.REPUSH), []),
    ],
)
def test_only_plain_repushes_hold_the_same_data(kinds: tuple[RebuildKind, ...], gone: list[int]) -> None:
    """The source of a repush with a time to live, that repush itself, and what came before a push are real backups."""
    assert sorted(retirable(_store(*_chain(*kinds), current=len(kinds)), NOON_MS + _WAIT_MS)) == gone


@pytest.mark.case("stores:H7")
def test_a_broken_chain_leaks_nothing() -> None:
    """Where a source is gone the repushes that were passed are still intermediates, on either side of the gap."""
    first, second, third, fourth, fifth = _chain(K.FULL_PUSH, K.REPUSH, K.REPUSH, K.REPUSH, K.REPUSH)
    reclaimed = _moved(third, S.RECLAIMED)
    late_ms = NOON_MS + _WAIT_MS
    assert sorted(retirable(_store(first, second, reclaimed, fourth, fifth, current=5), late_ms)) == [2, 4]
    assert sorted(retirable(_store(first, fourth, fifth, current=5), late_ms)) == [4]


@pytest.mark.case("stores:H7", "stores:H8")
def test_the_only_version_to_go_back_to_stays_for_its_retention() -> None:
    """When no real backup remains, the newest intermediate is kept like one, and no longer than one."""
    first, second, third, fourth = _chain(K.FULL_PUSH, K.REPUSH, K.REPUSH, K.REPUSH)
    store = _store(_moved(first, S.RECLAIMED), second, third, fourth, current=4)
    late_ms = NOON_MS + _WAIT_MS
    assert sorted(retirable(store, late_ms)) == [2]
    assert keeping(store, late_ms)[3] == f"the only version to go back to in dc-0, until {utc_text(NOON_MS + _WEEK_MS)}"
    assert sorted(retirable(store, NOON_MS + _WEEK_MS - 1)) == [2]
    assert sorted(retirable(store, NOON_MS + _WEEK_MS)) == [2, 3]


@pytest.mark.case("stores:H8")
def test_what_lies_above_the_current_version_is_nothing_to_go_back_to() -> None:
    """A rollback goes down: a backup with a greater number does not replace the only one below."""
    first, second, third, fourth = _chain(K.FULL_PUSH, K.REPUSH, K.REPUSH, K.REPUSH)
    versions = [_moved(first, S.RECLAIMED), second, _moved(third, S.CURRENT), _moved(fourth, S.BACKUP)]
    assert retirable(_store(*versions, current=3), NOON_MS + _WAIT_MS) == {}


@pytest.mark.case("stores:H8")
def test_a_retention_that_is_shorter_than_the_wait_ends_it() -> None:
    """No backup outlives its retention, not by the wait either."""
    config = a_config(hybrid=True, backup_retention_seconds=60)
    store = _store(*_chain(K.FULL_PUSH, K.REPUSH, K.REPUSH), current=3).model_copy(update={"config": config})
    assert retirable(store, NOON_MS + 59_999) == {}
    assert sorted(retirable(store, NOON_MS + 60_000)) == [1, 2]


@pytest.mark.case("stores:H7")
def test_a_source_that_waits_is_something_to_go_back_to() -> None:
    """An older intermediate goes although the real backup is gone, when a newer one still waits."""
    first, second, third, fourth = _chain(K.FULL_PUSH, K.REPUSH, K.REPUSH, K.REPUSH)
    newer = _moved(third, S.BACKUP, NOON_MS + _WAIT_MS)
    store = _store(_moved(first, S.RETIRED), second, newer, fourth, current=4)
    assert sorted(retirable(store, NOON_MS + _WAIT_MS)) == [2]


@pytest.mark.case("stores:H9")
def test_a_rolled_back_version_is_kept_for_its_own_retention() -> None:
    """What was rolled back from is no intermediate and no target: it stays for its retention, and so does the rest."""
    first, second, third = _chain(K.FULL_PUSH, K.REPUSH, K.REPUSH)
    store = _store(first, _moved(second, S.CURRENT), _moved(third, S.ROLLED_BACK, NOON_MS + 5), current=2)
    assert retirable(store, NOON_MS + _WAIT_MS) == {}
    assert sorted(retirable(store, NOON_MS + _WEEK_MS)) == [1]
    assert sorted(retirable(store, NOON_MS + _WEEK_MS + 5)) == [1, 3]
    swapped = _store(_moved(first, S.CURRENT), *[_moved(v, S.BACKUP) for v in (second, third)], current=1)
    assert retirable(swapped, NOON_MS + _WAIT_MS) == {}


@pytest.mark.case("stores:H10")
def test_a_deferred_swap_that_was_asked_for_is_never_given_up() -> None:
    """A version whose swap waits for somebody stays, however long; one whose swap was refused does not."""
    asked, refused = a_version(2, S.DEFERRED, defer_swap=True), a_version(2, S.DEFERRED)
    late_ms = NOON_MS + 50 * _WEEK_MS
    assert sorted(retirable(_store(a_version(1), asked, current=1), late_ms)) == []
    assert "until somebody swaps" in keeping(_store(a_version(1), asked, current=1), late_ms)[2]
    assert sorted(retirable(_store(a_version(1), refused, current=1), NOON_MS + _WEEK_MS - 1)) == []
    assert sorted(retirable(_store(a_version(1), refused, current=1), NOON_MS + _WEEK_MS)) == [2]
    overtaken = _store(refused, a_version(3), current=3)
    assert retirable(overtaken, NOON_MS) == {2: "not swapped, and version 3 is current in dc-0 by now"}


@pytest.mark.case("stores:H8")
def test_a_version_goes_when_every_fabric_lets_it_go() -> None:
    """In each fabric its own status, its own time and its own chain count; the longest claim decides."""

    def two(number: int, statuses: tuple[VersionStatus, VersionStatus], later_ms: int = 0) -> Version:
        made = a_version(
            number,
            kind=K.FULL_PUSH if number == 1 else K.REPUSH,
            source_version=number - 1 or None,
            statuses=dict(zip(("dc-0", "dc-1"), statuses, strict=True)),
        )
        return made.moved(("dc-1",), since_ms=NOON_MS + later_ms)

    def store(*versions: Version, current: tuple[int, int]) -> Store:
        pointers = dict(zip(("dc-0", "dc-1"), current, strict=True))
        return a_store(versions=versions, current=pointers, fabrics=("dc-0", "dc-1"))

    first = two(1, (S.BACKUP, S.BACKUP))
    apart = store(first, two(2, (S.BACKUP, S.CURRENT)), two(3, (S.CURRENT, S.READY)), current=(3, 2))
    assert retirable(apart, NOON_MS + _WAIT_MS) == {}
    later = store(first, two(2, (S.BACKUP, S.BACKUP), 9), two(3, (S.CURRENT, S.CURRENT)), current=(3, 3))
    assert sorted(retirable(later, NOON_MS + _WAIT_MS + 8)) == []
    assert sorted(retirable(later, NOON_MS + _WAIT_MS + 9)) == [2]
    here_alone = first.model_copy(update={"fabrics": {"dc-0": first.fabrics["dc-0"]}})
    lacking = store(here_alone, two(2, (S.BACKUP, S.BACKUP)), two(3, (S.CURRENT, S.CURRENT)), current=(3, 3))
    assert retirable(lacking, NOON_MS + _WAIT_MS) == {}
    assert "go back to in dc-1" in keeping(lacking, NOON_MS + _WAIT_MS)[2]
    failed_there = store(two(1, (S.BACKUP, S.FAILED)), two(2, (S.CURRENT, S.FAILED)), current=(2, 0))
    assert sorted(retirable(failed_there, NOON_MS)) == []
    half = two(2, (S.DEFERRED, S.DEFERRED))
    assert sorted(retirable(store(half, two(3, (S.CURRENT, S.CURRENT)), current=(3, 3)), NOON_MS)) == [2]
    assert sorted(retirable(store(first, half, two(3, (S.CURRENT, S.FAILED)), current=(3, 1)), NOON_MS)) == []


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


@pytest.mark.case("rules:R2")
def test_only_what_may_be_forgotten_is_asked_about() -> None:
    """A mark that no version lets move is asked about in no log: what is asked is what `low_water` may move."""
    first, second = _FEED.feed_partitions()
    serving = _starting(1, S.CURRENT, 70)
    assert may_forget(_store(serving)) == [first, second]
    marked = _FEED.model_copy(update={"low_water": (70, 50)})
    assert may_forget(_store(serving).model_copy(update={"feeds": (marked,)})) == [second]
    assert may_forget(_store(_starting(1, S.BACKUP, 0), serving)) == []
    assert may_forget(_store()) == []


@pytest.mark.case("rules:R2")
def test_a_version_without_a_feed_does_not_hold_it_back() -> None:
    """Only versions that apply a feed need its records; where none does, all are kept."""
    other = _FEED.model_copy(update={"incarnation": 2})
    backup, serving = a_version(1, S.BACKUP), _starting(2, S.CURRENT, 70)
    store = _store(backup, serving).model_copy(update={"feeds": (_FEED, other)})
    unbounded = _NOTHING | dict.fromkeys(other.feed_partitions(), 10**9)
    assert low_water(store, unbounded) == {_FEED.id: (70, 70), other.id: (0, 0)}


@pytest.mark.case("rules:R2")
def test_each_fabric_holds_the_log_back() -> None:
    """A version is applied from its start in every fabric that may still read it, and in a pending one too."""
    positions = dict.fromkeys(_FEED.feed_partitions(), 70)
    two = a_version(1, statuses={"dc-0": S.CURRENT, "dc-1": S.PENDING}, feeds=(_FEED.id,), start=PositionMap(positions))
    early = two.moved(("dc-1",), start=PositionMap(dict.fromkeys(positions, 20)))
    assert low_water(_store(early), _NOTHING) == {_FEED.id: (20, 20)}
    assert low_water(_store(early.moved(("dc-1",), status=S.FAILED)), _NOTHING) == {_FEED.id: (70, 70)}


def test_a_pending_version_stays_until_it_is_overtaken() -> None:
    """What a fabric has still to take is kept for it, unless a later version serves there by now."""
    pending = a_version(1, statuses={"dc-0": S.BACKUP, "dc-1": S.PENDING})
    store = _store(pending, a_version(2), current=2).model_copy(update={"current": {"dc-0": 2, "dc-1": 0}})
    late_ms = NOON_MS + 9 * _WEEK_MS
    assert retirable(store, late_ms) == {}
    assert "pending in dc-1" in keeping(store, late_ms)[1]
    overtaken = store.model_copy(update={"current": {"dc-0": 2, "dc-1": 2}})
    assert sorted(retirable(overtaken, late_ms)) == [1]
