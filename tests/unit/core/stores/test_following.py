"""Versions that follow a job: what begins them, what they are no part of, cut-overs and cut-backs."""

from __future__ import annotations

from typing import Any

import pytest

from anew.core.errors import Refused
from anew.core.feed import PositionMap
from anew.core.merge import Cell, merge_all
from anew.core.stamp import Origin, OriginKind, Stamp
from anew.core.stores import lifecycle
from anew.core.stores.displacing import displaced
from anew.core.stores.following import (
    base_written,
    bases_to_write,
    begin_following,
    cut_back,
    cut_back_target,
    cut_over,
    give_up_following,
)
from anew.core.stores.jobfeeds import add_feed
from anew.core.stores.planning import RepushRequest, Snapshot, plan_repush
from anew.core.stores.properties import RepushProperties
from anew.core.stores.retention import keeping, low_water, may_forget, retirable
from anew.core.stores.store import RebuildKind, Store, VersionStatus
from anew.testing.builders import FABRIC, a_config, a_feed, a_version
from anew.testing.clock import NOON_MS
from tests.unit.core.stores.jobs import EMPTY, FULL, fed_store, feed_of, follower_of, following_store, with_manifest

S = VersionStatus
_OLD, _NEW = feed_of(1), feed_of(2)
_YEAR_MS = 366 * 86_400_000


def _status(store: Store, number: int) -> VersionStatus:
    return lifecycle.existing(store, number).status


def _refused(act: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        act()
    return caught.value


@pytest.mark.case("rules:R9")
def test_a_version_that_follows_has_its_feed_to_itself() -> None:
    """Its base is to be empty, it applies its own feed from the first record, and names the feeds that it replaces."""
    store = begin_following(fed_store(1), follower_of(_NEW, _OLD), {}, NOON_MS)
    made = lifecycle.existing(store, 2)
    assert (made.statuses, made.kind, made.feeds) == (
        {FABRIC: S.FOLLOWING},
        RebuildKind.STREAM_REPROCESSING,
        (_NEW.id,),
    )
    assert (made.replaces, made.unpushed, made.timed) == ((_OLD.id,), True, True)
    assert made.fabrics[FABRIC].start == PositionMap(dict.fromkeys(_NEW.feed_partitions(), 0))
    assert lifecycle.existing(store, 1).feeds == (_OLD.id,)
    assert [feed.id for feed in store.feeds] == [_OLD.id, _NEW.id]
    assert (store.current, store.next_version) == ({FABRIC: 1}, 3)
    assert begin_following(store, follower_of(_NEW, _OLD), {}, NOON_MS + 9) == store


def test_its_base_is_written_once() -> None:
    """Until the empty base lies there the version is one to be written; a second word about it changes nothing."""
    store = begin_following(fed_store(1), follower_of(_NEW, _OLD), {}, NOON_MS)
    assert [(version.number, fabric) for version, fabric in bases_to_write(store)] == [(2, FABRIC)]
    written = base_written(store, 2, FABRIC, EMPTY)
    assert (bases_to_write(written), lifecycle.existing(written, 2).manifest) == ([], EMPTY)
    assert base_written(written, 2, FABRIC, FULL) == written
    assert base_written(written, 1, FABRIC, FULL) == written


def test_it_takes_nearline_writes_too() -> None:
    """In a store that may take nearline writes it applies these as well, as every version does (rule R10)."""
    rt = a_feed(partitions=2)
    store = fed_store(1, feeds=(rt, _OLD), config=a_config(hybrid=True, rt_partitions=2))
    made = begin_following(store, follower_of(_NEW, _OLD), dict.fromkeys(rt.feed_partitions(), 0), NOON_MS)
    assert lifecycle.existing(made, 2).feeds == (rt.id, _NEW.id)


def test_what_expired_does_not_come_back() -> None:
    """It inherits the floor of what serves (rule R11), as its generation writes the expired records again."""
    store = fed_store(1)
    store = store.model_copy(update={"versions": (a_version(1, feeds=(_OLD.id,), ttl_floor_ms=77, unpushed=True),)})
    made = lifecycle.existing(begin_following(store, follower_of(_NEW, _OLD), {}, NOON_MS), 2)
    assert (made.ttl_floor_ms, made.tombstone_floor_ms) == (77, 0)


@pytest.mark.case("rules:R26")
def test_a_rewind_that_writes_less_has_a_version_of_its_own() -> None:
    """Code that filters rows out, changes keys or lowers a time cannot take back what the generation before wrote."""
    old = {
        "same": _written(1, 5),
        "filtered": _written(1, 5),
        "earlier": _written(1, 5),
        "key of before": _written(1, 5),
    }
    new = {"same": _written(2, 5), "earlier": _written(2, 4), "key of now": _written(2, 5)}
    in_one_version = {key: merge_all(filter(None, (old.get(key), new.get(key)))) for key in {*old, *new}}
    assert {key for key in old if in_one_version[key] == old[key]} == {"filtered", "earlier", "key of before"}
    store = begin_following(fed_store(1), follower_of(_NEW, _OLD), {}, NOON_MS)
    # Of what both wrote the new version applies this alone.
    assert lifecycle.existing(store, 2).feeds == (_NEW.id,)


def _written(generation: int, time_ms: int) -> Cell:
    """What a generation wrote of a key."""
    return Cell(Stamp(time_ms, Origin(OriginKind.JOB, "clicks", generation).encoded, False, 1, 0, 0), b"", 1)


def test_an_empty_base_wants_the_first_record_ever() -> None:
    """From any other start it would lack the keys that were not written since: refused."""
    error = _refused(
        lambda: begin_following(fed_store(1), follower_of(_NEW, _OLD, from_first_record=False), {}, NOON_MS)
    )
    assert (error.code, "--from oldest" in str(error.hint)) == ("base_would_be_missing", True)


@pytest.mark.case("rules:R9")
def test_only_feeds_of_the_same_job_are_replaced() -> None:
    """What another job wrote is no generation's to replace, nor a feed that the store does not have."""
    other = feed_of(1, "views", incarnation=7)
    store = fed_store(1)
    both = store.model_copy(update={"feeds": (*store.feeds, other)})
    for replaced in (other, feed_of(9)):
        error = _refused(lambda replaced=replaced: begin_following(both, follower_of(_NEW, replaced), {}, NOON_MS))
        assert (error.code, replaced.id in str(error.found)) == ("not_of_the_job", True)


@pytest.mark.case("rules:R9")
@pytest.mark.parametrize(
    ("changes", "ends", "found"),
    [
        ({"versions": (a_version(1, feeds=(_OLD.id,), manifest=FULL),)}, 0, "rows that flights_v1 was pushed with"),
        ({"versions": (a_version(1, S.BUILDING, feeds=(_OLD.id,)),)}, 0, "rows that flights_v1 was pushed with"),
        ({"feeds": (a_feed(partitions=2), _OLD)}, 3, "nearline writes in dc-0/flights_rt#1"),
        ({"feeds": (a_feed(partitions=2, low_water=(0, 4)), _OLD)}, 0, "nearline writes in dc-0/flights_rt#1"),
        (
            {
                "feeds": (_OLD, feed_of(4, "views")),
                "versions": (a_version(1, feeds=(_OLD.id, feed_of(4, "views").id), manifest=EMPTY),),
            },
            0,
            "the feed of views@4",
        ),
    ],
)
def test_what_others_wrote_keeps_a_parallel_rewind_from_beginning(
    changes: dict[str, Any], ends: int, found: str
) -> None:
    """Pushed rows, nearline writes and other jobs' records would be missing after the cut-over: refused, and named."""
    store = fed_store(1, **changes)
    positions = {at: ends for feed in store.real_time_feeds for at in feed.feed_partitions()}
    error = _refused(lambda: begin_following(store, follower_of(_NEW, _OLD), positions, NOON_MS))
    assert (error.code, error.found) == ("store_has_other_writers", found)


def test_a_backup_that_was_pushed_keeps_nobody() -> None:
    """What readers do not have any more is not lost by a cut-over; nor what an empty push of before brought."""
    backup = a_version(1, S.BACKUP, manifest=FULL)
    serving = a_version(2, feeds=(_OLD.id,), manifest=EMPTY)
    store = fed_store(1, versions=(backup, serving), current={FABRIC: 2}, next_version=3)
    assert _status(begin_following(store, follower_of(_NEW, _OLD), {}, NOON_MS), 3) is S.FOLLOWING


@pytest.mark.parametrize("kind", [RebuildKind.FULL_PUSH, RebuildKind.REPUSH, RebuildKind.TTL_REPUSH])
def test_it_is_in_nobody_s_way(kind: RebuildKind) -> None:
    """No push or repush is refused for it or ends it, and it counts as nothing in the making."""
    store = following_store()
    assert displaced(store, kind, (FABRIC,)) == ()
    assert (store.in_the_making(), store.deferred()) == (None, None)


@pytest.mark.case("rules:R14", "rules:R15")
def test_it_is_chosen_by_nobody_but_its_job() -> None:
    """No swap, rollback, repush or retention takes a version that follows, however long it does."""
    store = following_store()
    assert _refused(lambda: lifecycle.swap(store, 2, FABRIC, NOON_MS)).code == "bad_transition"
    assert _refused(lambda: lifecycle.roll_back(store, 2, FABRIC, NOON_MS)).code == "bad_transition"
    assert _refused(lambda: lifecycle.rollback_target(store, FABRIC)).code == "no_backup"
    assert _refused(lambda: lifecycle.retire(store, 2, NOON_MS)).code == "bad_transition"
    assert 2 not in retirable(store, NOON_MS + _YEAR_MS)
    assert "follows a job" in keeping(store, NOON_MS + _YEAR_MS)[2]
    snapshot = Snapshot(store, {}, {}, {}, None, NOON_MS)
    asked = RepushRequest(RepushProperties(input_topic="flights_v2"), allow_not_serving=True)
    assert _refused(lambda: plan_repush(snapshot, asked)).code == "not_serving"


@pytest.mark.case("rules:R2")
def test_each_feed_is_kept_for_the_versions_that_apply_it() -> None:
    """The follower's feed is kept whole; the other one is truncated below what its own versions need."""
    store = following_store()
    start = PositionMap(dict.fromkeys(_OLD.feed_partitions(), 9))
    versions = tuple(v.moved((FABRIC,), start=start) if v.number == 1 else v for v in store.versions)
    store = store.model_copy(update={"versions": versions})
    at_rewind = {at: 100 for feed in store.feeds for at in feed.feed_partitions()}
    assert low_water(store, at_rewind) == {_OLD.id: (9, 9), _NEW.id: (0, 0)}
    assert {at.feed for at in may_forget(store)} == {_OLD.id}


@pytest.mark.case("rules:R9")
def test_a_cut_over_puts_the_follower_into_service() -> None:
    """It becomes current, the version before a backup; schedules are not held."""
    store = cut_over(following_store(), 2, _OLD.id, NOON_MS + 5)
    assert (store.current, _status(store, 1), _status(store, 2)) == ({FABRIC: 2}, S.BACKUP, S.CURRENT)
    assert (store.schedule_held, lifecycle.existing(store, 2).fabrics[FABRIC].since_ms) == (None, NOON_MS + 5)


@pytest.mark.case("rules:R14")
def test_a_repush_in_between_changes_nothing_for_the_job() -> None:
    """The condition is the feed of the generation that lives, not the number of the version that serves."""
    store = following_store()
    repushed = a_version(3, S.READY, feeds=(_OLD.id,), manifest=FULL, unpushed=True, swap_from=1)
    store = store.model_copy(update={"versions": (*store.versions, repushed), "next_version": 4})
    store = lifecycle.swap_when_ready(store, 3, FABRIC, NOON_MS)
    assert store.current == {FABRIC: 3}
    store = cut_over(store, 2, _OLD.id, NOON_MS)
    assert (store.current, _status(store, 3)) == ({FABRIC: 2}, S.BACKUP)
    late = a_version(4, S.READY, feeds=(_OLD.id,), manifest=FULL, swap_from=3)
    store = lifecycle.swap_when_ready(
        store.model_copy(update={"versions": (*store.versions, late)}), 4, FABRIC, NOON_MS
    )
    assert (store.current, _status(store, 4)) == ({FABRIC: 2}, S.DEFERRED)
    assert _refused(lambda: lifecycle.swap(store, 4, FABRIC, NOON_MS)).code == "feeds_missing"


@pytest.mark.case("rules:R9")
def test_a_cut_over_from_another_generation_is_refused() -> None:
    """What serves is not of the generation that the job says lives, or applies a feed that would be missing."""
    store = following_store()
    assert _refused(lambda: cut_over(store, 2, feed_of(7).id, NOON_MS)).code == "generation_moved"
    assert _refused(lambda: cut_over(store, 2, None, NOON_MS)).code == "generation_moved"
    assert _refused(lambda: cut_over(store, 1, _OLD.id, NOON_MS)).code == "not_following"
    bare = begin_following(fed_store(1), follower_of(_NEW, _OLD), {}, NOON_MS)
    assert _refused(lambda: cut_over(bare, 2, _OLD.id, NOON_MS)).code == "not_sealed"
    rt = a_feed(partitions=2)
    serving = lifecycle.existing(store, 1).model_copy(update={"feeds": (_OLD.id, rt.id)})
    hybrid = store.model_copy(update={"feeds": (*store.feeds, rt), "versions": (serving, lifecycle.existing(store, 2))})
    assert _refused(lambda: cut_over(hybrid, 2, _OLD.id, NOON_MS)).code == "feeds_missing"


def test_a_push_in_between_keeps_a_cut_over_from_happening() -> None:
    """What a push that was meant to supersede the job has brought would be lost."""
    store = following_store()
    pushed = a_version(3, S.READY, feeds=(_OLD.id,), manifest=FULL, swap_from=1)
    store = lifecycle.swap_when_ready(
        store.model_copy(update={"versions": (*store.versions, pushed)}), 3, FABRIC, NOON_MS
    )
    assert _refused(lambda: cut_over(store, 2, _OLD.id, NOON_MS)).code == "store_has_other_writers"


def test_the_first_version_may_be_one_that_follows() -> None:
    """A job's first generation in a store without versions: nothing is replaced, and nothing lives yet."""
    store = fed_store(versions=(), current={FABRIC: 0}, next_version=1)
    store = with_manifest(begin_following(store, follower_of(_OLD), {}, NOON_MS), 1, EMPTY)
    store = cut_over(store, 1, None, NOON_MS)
    assert (store.current, _status(store, 1)) == ({FABRIC: 1}, S.CURRENT)


@pytest.mark.case("rules:R9")
def test_a_cut_back_is_the_reverse() -> None:
    """What was replaced serves again, what served follows on and may be cut over to again; schedules are not held."""
    before = following_store()
    after = cut_over(before, 2, _OLD.id, NOON_MS)
    assert _refused(lambda: lifecycle.roll_back(after, 1, FABRIC, NOON_MS)).code == "feeds_missing"
    target = cut_back_target(after, FABRIC)
    assert target is not None
    assert target.number == 1
    back = cut_back(after, _NEW.id, NOON_MS)
    assert (back.current, _status(back, 1), _status(back, 2), back.schedule_held) == (
        {FABRIC: 1},
        S.CURRENT,
        S.FOLLOWING,
        None,
    )
    again = cut_over(back, 2, _OLD.id, NOON_MS)
    assert again.current == {FABRIC: 2}


def test_a_cut_back_goes_on_after_a_repush() -> None:
    """A repush of what was cut over to inherits what it replaces, and is cut back from like its source."""
    store = cut_over(following_store(), 2, _OLD.id, NOON_MS)
    repushed = a_version(3, S.READY, feeds=(_NEW.id,), replaces=(_OLD.id,), manifest=FULL, unpushed=True, swap_from=2)
    store = lifecycle.swap_when_ready(
        store.model_copy(update={"versions": (*store.versions, repushed)}), 3, FABRIC, NOON_MS
    )
    back = cut_back(store, _NEW.id, NOON_MS)
    assert (back.current, _status(back, 3), _status(back, 2)) == ({FABRIC: 1}, S.FOLLOWING, S.BACKUP)


def test_a_cut_back_needs_what_was_replaced() -> None:
    """Once that is reclaimed, or writes besides the job's would be lost, it is refused."""
    store = cut_over(following_store(), 2, _OLD.id, NOON_MS)
    assert _refused(lambda: cut_back(store, _OLD.id, NOON_MS)).code == "generation_moved"
    retired = lifecycle.retire(store, 1, NOON_MS)
    assert _refused(lambda: cut_back(retired, _NEW.id, NOON_MS)).code == "replaced_version_gone"
    rt = a_feed(partitions=2)
    serving = lifecycle.existing(store, 2).model_copy(update={"feeds": (_NEW.id, rt.id)})
    hybrid = store.model_copy(update={"feeds": (*store.feeds, rt), "versions": (lifecycle.existing(store, 1), serving)})
    assert _refused(lambda: cut_back(hybrid, _NEW.id, NOON_MS)).code == "feeds_missing"


@pytest.mark.case("rules:R9")
def test_a_rewind_in_place_meanwhile_is_replaced_as_well() -> None:
    """A feed that the job adds to the live versions is one more that the follower takes the place of."""
    store = add_feed(following_store(), feed_of(3))
    assert lifecycle.existing(store, 1).feeds == (_OLD.id, feed_of(3).id)
    follower = lifecycle.existing(store, 2)
    assert (follower.feeds, follower.replaces) == ((_NEW.id,), (_OLD.id, feed_of(3).id))
    after = cut_over(store, 2, feed_of(3).id, NOON_MS)
    assert cut_back(after, _NEW.id, NOON_MS).current == {FABRIC: 1}


def test_what_is_given_up_goes_like_a_killed_rebuild() -> None:
    """Its files may go at once; the version that serves is untouched."""
    store = give_up_following(following_store(), 2, "the rewind was dropped", NOON_MS)
    assert (_status(store, 2), _status(store, 1)) == (S.KILLED, S.CURRENT)
    assert "the rewind was dropped" in retirable(store, NOON_MS)[2]
    assert _refused(lambda: give_up_following(store, 2, "again", NOON_MS)).code == "not_following"


def test_long_reads_may_hold_it_for_as_long_as_it_follows() -> None:
    """A version that follows may be read for days before it serves: its holds do not end by its age."""
    store = following_store()
    later_ms = NOON_MS + 30 * 86_400_000
    held = lifecycle.hold(store, 2, later_ms + 1_000, later_ms, "reader")
    assert held.holds[2] == {"reader": later_ms + 1_000}


@pytest.mark.case("rules:R9", "rules:R14")
def test_only_the_job_moves_between_its_generations() -> None:
    """A backup that replaces what serves is cut over to by nobody's swap or rollback: the job would not know of it."""
    store = cut_over(following_store(), 2, _OLD.id, NOON_MS)
    repushed = a_version(3, S.READY, feeds=(_NEW.id,), replaces=(_OLD.id,), manifest=FULL, unpushed=True, swap_from=2)
    store = lifecycle.swap_when_ready(
        store.model_copy(update={"versions": (*store.versions, repushed)}), 3, FABRIC, NOON_MS
    )
    back = cut_back(store, _NEW.id, NOON_MS)
    assert (back.current, _status(back, 2)) == ({FABRIC: 1}, S.BACKUP)
    for act in (lifecycle.swap, lifecycle.roll_back):
        error = _refused(lambda act=act: act(back, 2, FABRIC, NOON_MS))
        assert (error.code, error.expected) == ("feeds_missing", [_OLD.id])
