"""Each refusal of the life cycle, and what it leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from anew.core.errors import NotFound, Refused
from anew.core.feed import NOWHERE, PositionMap
from anew.core.stores import lifecycle
from anew.core.stores.plan import Plan, Source
from anew.core.stores.store import ManifestRef, Store, Version, VersionStatus
from anew.core.stores.transitions import VersionEvent
from anew.testing.builders import FABRIC, a_config, a_feed, a_plan, a_store, a_version
from anew.testing.clock import NOON_MS

S = VersionStatus
_FEED = a_feed(partitions=2)
_MANIFEST = ManifestRef(path="m", checksum="c", files=1, rows=1, tombstones=0, bytes=1, fingerprint=1)


def _at(offset: int) -> PositionMap:
    return PositionMap(dict.fromkeys(_FEED.feed_partitions(), offset))


def _hybrid(*low_water: int) -> Store:
    feed = _FEED.model_copy(update={"low_water": low_water if low_water else (0, 0)})
    return a_store(config=a_config(hybrid=True), feeds=(feed,))


def _plan_of(store: Store, **changes: Any) -> Plan:
    plan = a_plan(store, store.next_version, **changes)
    feeds = tuple(feed.id for feed in store.feeds)
    return plan.model_copy(update={"fence": plan.fence.model_copy(update={"feeds": feeds})}).sealed()


def _refusal(store: Store, plan: Plan) -> str:
    with pytest.raises(Refused) as caught:
        lifecycle.begin(store, plan, a_version(plan.target.version, S.BUILDING), NOON_MS)
    assert caught.value.found is not None or caught.value.expected is not None
    return caught.value.code


def test_a_plan_begins_where_nothing_moved() -> None:
    """The version is added in status building and its number is never given again."""
    store = _hybrid()
    after = lifecycle.begin(store, _plan_of(store), a_version(1, S.BUILDING), NOON_MS)
    assert [(v.number, v.status) for v in after.versions] == [(1, S.BUILDING)]
    assert after.next_version == 2


@pytest.mark.parametrize(
    "change",
    [
        {"uid": "another"},
        {"current": {FABRIC: 3}},
        {"next_version": 2},
        {"config": a_config(hybrid=True, partitions=8)},
        {"feeds": (a_feed(partitions=2, incarnation=2),)},
    ],
)
def test_a_plan_is_outdated_when_anything_moved(change: dict[str, Any]) -> None:
    """Another store, pointer, number, configuration or feed: the plan is refused, naming both sides."""
    store = _hybrid()
    assert _refusal(store.model_copy(update=change), _plan_of(store)) == "plan_outdated"


def test_live_settings_do_not_outdate_a_plan() -> None:
    """A change that no version freezes leaves the plan valid."""
    store = _hybrid()
    changed = store.model_copy(update={"config": a_config(hybrid=True, owner="somebody", max_value_bytes=5)})
    assert lifecycle.begin(changed, _plan_of(store), a_version(1, S.BUILDING), NOON_MS).next_version == 2


def test_a_store_whose_writes_are_off_takes_no_push() -> None:
    """Nothing is begun in a store that takes no writes."""
    store = a_store(config=a_config(writes=False))
    assert _refusal(store, _plan_of(store)) == "writes_disabled"


def test_one_rebuild_at_a_time() -> None:
    """While a version is in the making another one is refused, and the refusal names the rebuild."""
    store = a_store(versions=(a_version(1, S.LOADING),), next_version=2)
    with pytest.raises(Refused) as caught:
        lifecycle.begin(store, _plan_of(store), a_version(2, S.BUILDING), NOON_MS)
    assert (caught.value.code, caught.value.hint) == (
        "rebuild_running",
        "wait for it, or: anew rebuild kill rebuild-1",
    )


@pytest.mark.case("rules:R2")
@pytest.mark.parametrize("low_water", [(6, 0), (0, 6)])
def test_a_start_below_low_water_is_refused(low_water: tuple[int, int]) -> None:
    """A plan that starts below a feed's mark in any partition is refused; at the mark it begins."""
    store = _hybrid(*low_water)
    assert _refusal(store, _plan_of(store, start=_at(5))) == "truncated_above_start"
    begun = lifecycle.begin(store, _plan_of(store, start=_at(6)), a_version(1, S.BUILDING), NOON_MS)
    assert begun.next_version == 2


@pytest.mark.case("rules:R15")
@pytest.mark.parametrize("status", [S.RETIRED, S.RECLAIMED, S.FAILED])
def test_a_source_that_is_being_reclaimed_is_refused(status: VersionStatus) -> None:
    """A plan made while its source was kept does not begin once the source's reclaim has begun."""
    source = a_version(1, S.ROLLED_BACK, manifest=_MANIFEST)
    store = a_store(versions=(source, a_version(2)), next_version=3, current={FABRIC: 2})
    plan = _plan_of(store, source=Source(version=1, fabric=FABRIC, topic="flights_v1", manifest=_MANIFEST))
    assert lifecycle.begin(store, plan, a_version(3, S.BUILDING), NOON_MS).next_version == 4
    gone = source.moved((FABRIC,), status=status)
    assert _refusal(store.model_copy(update={"versions": (gone, a_version(2))}), plan) == "plan_outdated"


@pytest.mark.case("rules:R9")
def test_a_swap_needs_all_feeds_of_the_current_version() -> None:
    """A version that would forget a feed of the one that serves is not swapped in, forwards or back."""
    serving = a_version(1, feeds=("dc-0/s_rt#1", "dc-1/s_rt#1"))
    backup = a_version(2, S.BACKUP, feeds=("dc-0/s_rt#1",))
    store = a_store(versions=(serving, backup), current={FABRIC: 1})
    for move in (lifecycle.swap, lifecycle.roll_back):
        with pytest.raises(Refused) as caught:
            move(store, 2, FABRIC, NOON_MS)
        assert (caught.value.code, caught.value.expected) == ("feeds_missing", ["dc-0/s_rt#1", "dc-1/s_rt#1"])


@pytest.mark.case("rules:R9")
def test_a_rebuild_that_lacks_a_feed_is_deferred() -> None:
    """A version that got ready without a feed of the one that serves stays deferred and says which feed."""
    serving = a_version(1, feeds=("dc-0/s_rt#1", "dc-1/s_rt#1"))
    ready = a_version(2, S.READY, feeds=("dc-0/s_rt#1",), swap_from=1)
    store = a_store(versions=(serving, ready), current={FABRIC: 1})
    after = lifecycle.existing(lifecycle.swap_when_ready(store, 2, FABRIC, NOON_MS), 2)
    assert (after.status, "dc-1/s_rt#1" in str(after.error)) == (S.DEFERRED, True)


@pytest.mark.case("rules:R17")
def test_the_target_is_frozen_once() -> None:
    """A second aim, by another controller, does not move the target that replicas are already judged by."""
    store = a_store(versions=(a_version(1, S.LOADING),))
    aimed = lifecycle.aim(store, 1, FABRIC, _at(5))
    assert lifecycle.aim(aimed, 1, FABRIC, _at(9)) == aimed


@pytest.mark.parametrize("status", [S.BUILDING, S.LOADING, S.FAILED, S.KILLED, S.RETIRED, S.RECLAIMED])
def test_what_is_not_complete_never_serves(status: VersionStatus) -> None:
    """A version that is not sealed and ready, or is gone, cannot be swapped in."""
    store = a_store(versions=(a_version(1, status),))
    with pytest.raises(Refused) as caught:
        lifecycle.swap(store, 1, FABRIC, NOON_MS)
    assert (caught.value.code, caught.value.found) == ("bad_transition", status.value)


def test_unknown_and_current_versions_are_refused() -> None:
    """A version that is not there is not found; the one that serves is not swapped again; no backup, no rollback."""
    store = a_store(versions=(a_version(1),), current={FABRIC: 1})
    with pytest.raises(NotFound) as missing:
        lifecycle.swap(store, 9, FABRIC, NOON_MS)
    with pytest.raises(Refused) as again:
        lifecycle.swap(store, 1, FABRIC, NOON_MS)
    with pytest.raises(Refused) as back:
        lifecycle.rollback_target(store, FABRIC)
    assert (missing.value.code, missing.value.expected) == ("unknown_version", "1")
    assert (again.value.code, back.value.code) == ("already_current", "no_backup")


def test_sealing_twice_alike_is_sealing_once() -> None:
    """The same manifest again changes nothing; what serves elsewhere is not failed by a late end."""
    store = a_store(versions=(a_version(1, S.BUILDING),))
    sealed = lifecycle.seal(store, 1, _MANIFEST, NOWHERE, NOON_MS)
    assert lifecycle.seal(sealed, 1, _MANIFEST, NOWHERE, NOON_MS + 5) == sealed
    serving = a_store(versions=(a_version(1),), current={FABRIC: 1})
    assert lifecycle.end_badly(serving, 1, VersionEvent.FAIL, "late", NOON_MS) == serving


def _stopped(number: int, status: VersionStatus, stop: int | None, **changes: Any) -> Version:
    end = None if stop is None else _at(stop)
    return a_version(number, status, feeds=(_FEED.id,), stop=end, **changes)


_CLOSING = {"closing": True}


@pytest.mark.case("rules:R9", "rules:R10")
@pytest.mark.parametrize(
    ("serving", "other", "far_enough"),
    [
        (_stopped(1, S.CURRENT, None), _stopped(2, S.BACKUP, None), True),
        (_stopped(1, S.CURRENT, None), _stopped(2, S.BACKUP, 9), False),
        (_stopped(1, S.CURRENT, None), _stopped(2, S.ROLLED_BACK, 9, **_CLOSING), False),
        (_stopped(1, S.CURRENT, None), _stopped(2, S.DEFERRED, 9, **_CLOSING), False),
        (_stopped(1, S.CURRENT, None), _stopped(2, S.READY, 9), False),
        (_stopped(1, S.CURRENT, None), _stopped(2, S.READY, 9, **_CLOSING), True),
        (_stopped(1, S.CURRENT, 9), _stopped(2, S.BACKUP, 9), True),
        (_stopped(1, S.CURRENT, 9), _stopped(2, S.BACKUP, 8), False),
        (_stopped(2, S.CURRENT, 9), _stopped(1, S.BACKUP, 10), True),
        (_stopped(1, S.CURRENT, 9), _stopped(2, S.BACKUP, None), True),
        (_stopped(1, S.CURRENT, 9), a_version(2, S.BACKUP), False),
        (_stopped(1, S.CURRENT, 9), a_version(2, S.READY, closing=True), False),
        (a_version(1), _stopped(2, S.BACKUP, 0), True),
    ],
)
def test_a_swap_asks_how_far_a_feed_is_applied(serving: Version, other: Version, far_enough: bool) -> None:  # noqa: FBT001 - a case
    """A version that ends before the one that serves does is not swapped in, unless it keeps writes closed just now."""
    store = a_store(versions=(serving, other), current={FABRIC: serving.number}, feeds=(_FEED,))
    assert lifecycle.missing_feeds(store, other, FABRIC) == ([] if far_enough else [_FEED.id])
    if not far_enough:
        with pytest.raises(Refused) as caught:
            lifecycle.swap(store, other.number, FABRIC, NOON_MS)
        assert caught.value.code == "feeds_missing"


@pytest.mark.case("rules:R10")
@pytest.mark.parametrize("status", [S.FAILED, S.KILLED, S.RETIRED, S.DEFERRED])
def test_no_end_is_frozen_for_a_version_that_ended(status: VersionStatus) -> None:
    """A controller that read the ends of closed logs finds the version gone: writes go on, and nothing is frozen."""
    making = a_version(1, S.LOADING, feeds=(_FEED.id,), closing=True)
    frozen = lifecycle.existing(lifecycle.freeze_stop(a_store(versions=(making,)), 1, _at(5)), 1)
    assert (frozen.stop, frozen.fabrics[FABRIC].ready_target) == (_at(5), _at(5))
    again = lifecycle.freeze_stop(a_store(versions=(frozen,)), 1, _at(6))
    assert lifecycle.existing(again, 1).stop == _at(5)
    ended = a_store(versions=(making.moved((FABRIC,), status=status),))
    assert lifecycle.freeze_stop(ended, 1, _at(5)) == ended
    unasked = a_store(versions=(making.model_copy(update={"closing": False}),))
    assert lifecycle.freeze_stop(unasked, 1, _at(5)) == unasked


# -- in several fabrics ----------------------------------------------------------------------------------------------

_OTHER = "dc-1"


def _in_two(status: VersionStatus, other: VersionStatus, number: int = 1, **changes: Any) -> Version:
    return a_version(number, statuses={FABRIC: status, _OTHER: other}, **changes)


def _two(*versions: Version, **changes: Any) -> Store:
    return a_store(fabrics=(FABRIC, _OTHER), current={FABRIC: 0, _OTHER: 0}, versions=versions, **changes)


def test_a_version_that_is_put_off_is_in_nobodys_way() -> None:
    """What a fabric cannot take now is sealed in the others, pending there, and displaces or refuses no rebuild."""
    put_off = lifecycle.put_off(_two(_in_two(S.BUILDING, S.BUILDING)), 1, _OTHER, "its log does not answer", NOON_MS)
    sealed = lifecycle.existing(lifecycle.seal(put_off, 1, _MANIFEST, _at(5), NOON_MS), 1)
    here, there = sealed.fabrics[FABRIC], sealed.fabrics[_OTHER]
    assert (here.status, here.manifest, here.start, here.error) == (S.LOADING, _MANIFEST, _at(5), None)
    assert (there.status, there.manifest, there.error) == (S.PENDING, None, "its log does not answer")
    pending = _two(_in_two(S.CURRENT, S.PENDING), _in_two(S.KILLED, S.PENDING, 2))
    assert (pending.in_the_making(), pending.deferred()) == (None, None)


def test_a_fabric_takes_what_was_put_off() -> None:
    """Its base has come: nodes there load it, and it swaps on its own; what serves elsewhere is left alone."""
    store = _two(_in_two(S.CURRENT, S.PENDING, error="away")).model_copy(update={"current": {FABRIC: 1, _OTHER: 0}})
    taken = lifecycle.take(store, 1, _OTHER, _MANIFEST, _at(5), NOON_MS + 9)
    there = lifecycle.existing(taken, 1).fabrics[_OTHER]
    assert (there.status, there.manifest, there.start, there.error) == (S.LOADING, _MANIFEST, _at(5), None)
    assert (there.since_ms, lifecycle.existing(taken, 1).status_in(FABRIC)) == (NOON_MS + 9, S.CURRENT)
    caught_up = lifecycle.caught_up(taken, 1, _OTHER, NOON_MS)
    assert lifecycle.swap_when_ready(caught_up, 1, _OTHER, NOON_MS).current == {FABRIC: 1, _OTHER: 1}
    with pytest.raises(Refused) as again:
        lifecycle.take(taken, 1, FABRIC, _MANIFEST, _at(5), NOON_MS)
    assert again.value.code == "bad_transition"


@pytest.mark.parametrize("event", [VersionEvent.FAIL, VersionEvent.KILL])
def test_what_ends_in_one_fabric_goes_on_in_the_other(event: VersionEvent) -> None:
    """Status and error are those of that fabric; the version can be read and held where it is whole."""
    store = _two(_in_two(S.LOADING, S.LOADING, manifest=_MANIFEST))
    after = lifecycle.existing(lifecycle.end_badly(store, 1, event, "no room", NOON_MS + 9, _OTHER), 1)
    here, there = after.fabrics[FABRIC], after.fabrics[_OTHER]
    assert (here.status, here.error, here.since_ms) == (S.LOADING, None, NOON_MS)
    assert (there.error, there.since_ms) == ("no room", NOON_MS + 9)
    assert (after.readable, after.readable_in(_OTHER), after.error) == (True, False, f"{_OTHER}: no room")


def test_errors_of_several_fabrics_name_them() -> None:
    """What is so in all fabrics is told as it is, anything else with where it was."""
    both = a_version(1, S.FAILED, statuses={FABRIC: S.FAILED, _OTHER: S.FAILED})
    assert both.moved((FABRIC, _OTHER), error="no room").error == "no room"
    assert both.moved((_OTHER,), error="damaged").error == f"{_OTHER}: damaged"
    told = both.moved((FABRIC,), error="no room").moved((_OTHER,), error="damaged").error
    assert told == f"{FABRIC}: no room; {_OTHER}: damaged"


def test_files_go_fabric_by_fabric() -> None:
    """A version has left none behind only when each fabric has reclaimed it."""
    retired = _two(_in_two(S.RETIRED, S.RETIRED))
    half = lifecycle.reclaimed(retired, 1, FABRIC, NOON_MS)
    assert lifecycle.existing(half, 1).statuses == {FABRIC: S.RECLAIMED, _OTHER: S.RETIRED}
    assert not lifecycle.existing(half, 1).reclaimed
    assert lifecycle.existing(lifecycle.reclaimed(half, 1, _OTHER, NOON_MS), 1).reclaimed


def test_what_moves_elsewhere_outdates_no_plan() -> None:
    """A plan is judged by the current versions of the fabrics that it reads and makes: others may swap meanwhile."""
    store = _two(config=a_config())
    plan = a_plan(store).model_copy(update={"target": a_plan(store).target.model_copy(update={"fabrics": (FABRIC,)})})
    swapped = store.model_copy(update={"current": {FABRIC: 0, _OTHER: 7}})
    made = a_version(1, S.BUILDING)
    assert lifecycle.begin(swapped, plan.sealed(), made, NOON_MS).versions == (made,)
    here = store.model_copy(update={"current": {FABRIC: 7, _OTHER: 0}})
    with pytest.raises(Refused) as caught:
        lifecycle.begin(here, plan.sealed(), made, NOON_MS)
    assert (caught.value.code, caught.value.found) == ("plan_outdated", {FABRIC: 7})


@pytest.mark.case("rules:R9")
def test_a_feed_that_is_replaced_is_not_missing() -> None:
    """A version that names the feeds whose place its own take may serve without them; any other one may not."""
    serving = a_version(1, feeds=("dc-0/s@1#1", "dc-0/s_rt#1"))
    ready = a_version(2, S.READY, feeds=("dc-0/s@2#1", "dc-0/s_rt#1"), swap_from=1)
    store = a_store(versions=(serving, ready), current={FABRIC: 1})
    assert lifecycle.missing_feeds(store, ready, FABRIC) == ["dc-0/s@1#1"]
    replacing = ready.model_copy(update={"replaces": ("dc-0/s@1#1",)})
    store = store.model_copy(update={"versions": (serving, replacing)})
    assert lifecycle.swap_when_ready(store, 2, FABRIC, NOON_MS).current == {FABRIC: 2}
