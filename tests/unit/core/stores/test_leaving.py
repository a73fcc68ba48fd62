"""Versions that were reclaimed leave their store, and what is said of them stays true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anew.core.errors import NotFound, Refused
from anew.core.stores import lifecycle
from anew.core.stores.leaving import leavers, left, past
from anew.core.stores.retention import keeping, retirable
from anew.core.stores.store import RebuildKind, Store, Version, VersionStatus
from anew.testing.builders import FABRIC, a_config, a_store, a_version
from anew.testing.clock import NOON_MS

S = VersionStatus
K = RebuildKind
_HOUR_MS = 3_600_000
_YEAR_OF_HOURS = 8_760


def _repush(number: int, source: int, status: VersionStatus = S.BACKUP, kind: RebuildKind = K.REPUSH) -> Version:
    return a_version(number, status, kind=kind, source_version=source)


def _numbers(store: Store) -> list[int]:
    return [version.number for version in store.versions]


def test_only_what_was_reclaimed_everywhere_leaves() -> None:
    """The lowest numbers come first, as many as are asked for; files in one fabric keep a version there."""
    half = a_version(2, statuses={"dc-0": S.RECLAIMED, "dc-1": S.RETIRED})
    others = [a_version(number, status) for number, status in enumerate((S.FAILED, S.RETIRED, S.CURRENT), 5)]
    gone = [a_version(number, S.RECLAIMED) for number in (4, 3, 1)]
    store = a_store(versions=(half, *others, *gone))
    assert [version.number for version in leavers(store, 9)] == [1, 3, 4]
    assert [version.number for version in leavers(store, 2)] == [1, 3]


def test_a_store_knows_which_numbers_have_left() -> None:
    """Runs of numbers are kept, so that a number that never was is told from one that was reclaimed."""
    store = a_store(versions=tuple(a_version(n, S.RECLAIMED) for n in (3, 4, 6, 7, 8)), next_version=10)
    store = left(left(left(store, {4, 7}), {3}), {6, 8, 9})
    assert (_numbers(store), store.past_numbers) == ([], ((3, 4), (6, 8)))
    assert [number for number in range(1, 10) if store.has_left(number)] == [3, 4, 6, 7, 8]
    assert left(store, {5}) is store


def test_what_has_left_is_called_reclaimed_and_not_unknown() -> None:
    """Whoever asks for the version is told that it was reclaimed; a number that never was is unknown as before."""
    store = left(a_store(versions=(a_version(1, S.RECLAIMED), a_version(2)), current={"dc-0": 2}), {1})
    for ask in (
        lambda: lifecycle.existing(store, 1),
        lambda: lifecycle.swap(store, 1, "dc-0", NOON_MS),
        lambda: lifecycle.roll_back(store, 1, "dc-0", NOON_MS),
        lambda: lifecycle.hold(store, 1, NOON_MS + 1, NOON_MS),
    ):
        with pytest.raises(Refused) as caught:
            ask()
        assert (caught.value.code, caught.value.message) == ("version_gone", "version 1 of flights was reclaimed")
        assert caught.value.expected == "a version that is kept: 2"
    with pytest.raises(NotFound):
        lifecycle.existing(store, 3)
    assert [store.status_of(number) for number in (1, 2, 3)] == ["reclaimed", "current", None]


@pytest.mark.case("stores:H7")
@pytest.mark.parametrize("leaving", [{3}, {4}, {3, 4}, {4, 3, 1}])
@pytest.mark.parametrize("third", [K.REPUSH, K.TTL_REPUSH])
def test_a_chain_goes_on_past_what_has_left(leaving: set[int], third: RebuildKind) -> None:
    """What retention lets go, and why it keeps the rest, is the same whether reclaimed versions are there or left."""
    chain = (
        a_version(1, S.RECLAIMED),
        _repush(2, 1),
        _repush(3, 2, S.RECLAIMED, third),
        _repush(4, 3, S.RECLAIMED),
        _repush(5, 4),
        _repush(6, 5, S.CURRENT),
    )
    store = a_store(config=a_config(hybrid=True), versions=chain, current={"dc-0": 6})
    at_once, one_by_one = left(store, leaving), store
    for number in sorted(leaving, reverse=True):
        one_by_one = left(one_by_one, {number})
    for now_ms in (NOON_MS, NOON_MS + _HOUR_MS, NOON_MS + 8 * 24 * _HOUR_MS):
        for after in (at_once, one_by_one):
            assert retirable(after, now_ms) == retirable(store, now_ms)
            assert keeping(after, now_ms) == keeping(store, now_ms)


def test_the_places_of_replicas_do_not_outlive_them() -> None:
    """A past version is what it was, but for the nodes that held it."""
    version = a_version(1, S.RECLAIMED, assignment={0: ("node-1",)})
    assert past(version) == version.moved((FABRIC,), assignment={})


class _Counted(tuple[Version, ...]):
    """Versions that count how often one of them is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Version]:
        for version in super().__iter__():
            _Counted.looks += 1
            yield version


def _looks(store: Store, now_ms: int) -> int:
    _Counted.looks = 0
    counted = store.model_copy(update={"versions": _Counted(store.versions)})
    retirable(counted, now_ms)
    return _Counted.looks


def test_a_year_of_hourly_repushes_is_a_small_document() -> None:
    """8,760 repushes later the document is as large as after a day, and each look at what may go costs as much."""
    store = a_store(versions=(a_version(1),), current={"dc-0": 1}, next_version=2)
    seen: dict[int, tuple[int, int]] = {}
    for hour in range(1, _YEAR_OF_HOURS + 1):
        now_ms, number = NOON_MS + hour * _HOUR_MS, store.next_version
        made = _repush(number, number - 1, S.READY).model_copy(update={"created_at_ms": now_ms})
        store = store.model_copy(update={"versions": (*store.versions, made), "next_version": number + 1})
        store = lifecycle.swap(store, number, "dc-0", now_ms)
        if hour in (200, 400, _YEAR_OF_HOURS):
            seen[hour] = (len(store.model_dump_json()), _looks(store, now_ms))
        for gone in retirable(store, now_ms):
            store = lifecycle.reclaimed(lifecycle.retire(store, gone, now_ms), gone, FABRIC, now_ms)
        store = left(store, {version.number for version in leavers(store, 500)})
    assert store.next_version == _YEAR_OF_HOURS + 2
    assert store.past_numbers == ((1, store.versions[0].number - 1),)
    assert len(store.versions) <= 4
    assert max(size for size, _ in seen.values()) < 20_000
    assert len({looks for _, looks in seen.values()}) == 1


def test_what_may_go_is_found_in_a_few_looks_at_each_version() -> None:
    """Also where all versions of a year are there still, as in a catalog of an earlier release."""
    looks = {}
    for count in (100, 1_000):
        chain = (a_version(1), *(_repush(n, n - 1) for n in range(2, count)), _repush(count, count - 1, S.CURRENT))
        looks[count] = _looks(a_store(versions=chain, current={"dc-0": count}), NOON_MS + _HOUR_MS)
    assert looks[1_000] == 10 * looks[100] <= 10_000
