"""The feeds of jobs in a store: who applies them, what pushes and repushes make of them, what they do to floors."""

from __future__ import annotations

import pytest

from anew.core.errors import Refused
from anew.core.feed import NOWHERE, Feed, FeedKind, PositionMap
from anew.core.moment import utc_text
from anew.core.stamp import Origin, OriginKind
from anew.core.stores import lifecycle
from anew.core.stores.floors import present_tombstone_floor_ms, tombstone_cut_ms
from anew.core.stores.jobfeeds import add_feed, drop_feed, feeds_of_push, generation_feed, other_writers
from anew.core.stores.plan import PushInput
from anew.core.stores.planning import PushOptions, RepushRequest, Snapshot, plan_push, plan_repush
from anew.core.stores.store import Store, Version, VersionStatus
from anew.testing.builders import FABRIC, a_config, a_feed, a_store, a_version
from anew.testing.clock import NOON_MS
from tests.unit.core.stores.jobs import EMPTY, fed_store, feed_of, following_store

S = VersionStatus
_FILES = PushInput(paths=("/in.csv",), format="csv", key=("key",))
_DAY_MS = 86_400_000


def _ends(store: Store, end: int = 50) -> dict[object, int]:
    return {at: end for feed in store.feeds for at in feed.feed_partitions()}


def _snapshot(store: Store) -> Snapshot:
    return Snapshot(store, _ends(store), {}, {}, None, NOON_MS, NOON_MS)  # type: ignore[arg-type]  # of feed partitions


def test_the_feed_of_a_generation_is_of_the_store() -> None:
    """It has the store's partitions, key schema and skew limit, its own topic and origin, and is read by key hashes."""
    origin = Origin(OriginKind.JOB, "clicks", 3)
    store = a_store(config=a_config(rt_partitions=8, rt_partitioner="any", skew_limit_seconds=7), key_schema_id=4)
    feed = generation_feed(store, origin, FABRIC, topic_uid="u", incarnation=9)
    assert (feed.id, feed.kind, feed.origin_bytes) == (
        "dc-0/flights-clicks-3#9",
        FeedKind.GENERATION,
        origin.encoded,
    )
    assert (feed.partitions, feed.partitioner, feed.key_schema_id, feed.skew_limit_ms) == (8, "xxhash64", 4, 7_000)
    assert (feed.ready, feed.low_water) == (False, (0,) * 8)
    with pytest.raises(ValueError, match="xxhash64"):
        Feed(**{**feed.model_dump(), "partitioner": "any"})


def test_what_is_seldom_said_is_left_out_of_json() -> None:
    """Nodes and clients of the release before know no such field."""
    assert "unpushed" not in a_version(1).model_dump_json()


@pytest.mark.case("rules:R9")
def test_a_feed_is_added_to_every_version_that_lives() -> None:
    """What serves, waits, is made or may serve again applies it from the first record; what has ended does not."""
    alive = (S.CURRENT, S.BACKUP, S.BUILDING, S.LOADING, S.READY, S.DEFERRED, S.PENDING, S.ROLLED_BACK)
    gone = (S.FAILED, S.KILLED, S.RETIRED, S.RECLAIMED)
    versions = tuple(a_version(number, status) for number, status in enumerate((*alive, *gone), 1))
    store = a_store(versions=versions, current={FABRIC: 1})
    feed = feed_of(1)
    after = add_feed(store, feed)
    applying = [version.number for version in after.versions if feed.id in version.feeds]
    assert applying == list(range(1, len(alive) + 1))
    start = PositionMap(dict.fromkeys(feed.feed_partitions(), 0))
    assert all(version.fabrics[FABRIC].start == start for version in after.versions[: len(alive)])
    assert add_feed(after, feed) == after
    assert feeds_of_push(after) == (feed,)
    with pytest.raises(Refused, match="another feed"):
        add_feed(after, feed.model_copy(update={"origin": feed_of(2).origin}))


@pytest.mark.case("rules:R9")
def test_a_feed_goes_when_no_version_names_it() -> None:
    """While one does, even one whose files are still to go, its topic stays."""
    store = fed_store(1)
    feed = store.feeds[0]
    with pytest.raises(Refused) as caught:
        drop_feed(store, feed.id)
    assert (caught.value.code, caught.value.found) == ("feed_in_use", "flights_v1")
    gone = store.model_copy(update={"versions": (a_version(1, S.RECLAIMED, feeds=(feed.id,)),)})
    assert drop_feed(gone, feed.id).feeds == ()
    assert drop_feed(gone, "dc-0/none#1") == gone


def test_what_the_job_itself_wrote_is_no_other_writer() -> None:
    """All feeds of a job, and a base that was folded from them alone."""
    store = fed_store(1, 2)
    ours = {feed.id for feed in store.feeds}
    assert other_writers(store, ours, {}) == []
    assert other_writers(store, {store.feeds[0].id}, {}) == ["the feed of clicks@2"]


@pytest.mark.case("rules:R10")
def test_only_nearline_writes_are_closed() -> None:
    """A batch version with a job's feed alone closes nothing; no writer writes into a job's feed."""
    rt, job = a_feed(), feed_of(1)
    store = a_store(feeds=(rt, job), config=a_config(hybrid=True))
    for feeds, closes in (((), False), ((job.id,), False), ((rt.id,), True), ((rt.id, job.id), True)):
        assert store.must_close(a_version(1, feeds=feeds)) is closes
    hybrid = a_config(hybrid=True).frozen
    serving = a_version(1, feeds=(rt.id, job.id), config=hybrid)
    served = store.model_copy(update={"versions": (serving,), "current": {FABRIC: 1}})
    assert (served.writable(rt), served.writable(job)) == (True, False)
    assert not a_store(feeds=(job,), config=a_config(hybrid=True)).writable(job)


@pytest.mark.case("rules:R10")
def test_a_stop_is_of_nearline_writes_alone() -> None:
    """When writes have ended, a job's feed goes on: it has no stop, and what must be reached names its end of then."""
    rt, job = a_feed(partitions=1), feed_of(1)
    closing = a_version(2, S.LOADING, feeds=(rt.id, job.id), closing=True)
    store = a_store(feeds=(rt, job), versions=(closing,), next_version=3)
    ends = PositionMap({at: 5 for feed in store.feeds for at in feed.feed_partitions()})
    frozen = lifecycle.existing(lifecycle.freeze_stop(store, 2, ends), 2)
    assert frozen.stop == PositionMap(dict.fromkeys(rt.feed_partitions(), 5))
    assert frozen.fabrics[FABRIC].ready_target == ends
    current = a_version(1, feeds=(rt.id, job.id), stop=frozen.stop)
    stopped = store.model_copy(update={"versions": (current, frozen), "current": {FABRIC: 1}})
    assert lifecycle.missing_feeds(stopped, frozen, FABRIC) == []


def _repushed(store: Store) -> tuple[str, ...]:
    return plan_repush(_snapshot(store), RepushRequest()).target.feeds


@pytest.mark.case("rules:R9")
def test_a_repush_applies_the_feeds_of_its_source() -> None:
    """Not those of a version that follows; nearline writes besides once the store takes them. It starts at the end."""
    store = following_store()
    assert _repushed(store) == (store.feeds[0].id,)
    plan = plan_repush(_snapshot(store), RepushRequest())
    assert plan.target.start == PositionMap(dict.fromkeys(store.feeds[0].feed_partitions(), 50))
    assert plan.target.stop is None
    rt = a_feed(partitions=2)
    config = a_config(hybrid=True, rt_partitions=2)
    hybrid = store.model_copy(update={"feeds": (*store.feeds, rt), "config": config})
    assert _repushed(hybrid) == (store.feeds[0].id, rt.id)


def test_a_full_push_into_a_job_s_store_must_be_meant() -> None:
    """It would take the place of what the job wrote; where that is meant it goes on applying the job's feed."""
    store = following_store()
    with pytest.raises(Refused) as caught:
        plan_push(_snapshot(store), _FILES, 0, NOWHERE)
    assert (caught.value.code, "--supersede-job" in str(caught.value.hint)) == ("fed_by_job", True)
    assert "clicks@1" in str(caught.value.found)
    live = store.feeds[0]
    at_as_of = PositionMap(dict.fromkeys(live.feed_partitions(), 7))
    plan = plan_push(_snapshot(store), _FILES, 0, at_as_of, PushOptions(supersede_job=True))
    assert (plan.target.feeds, plan.target.start) == ((live.id,), at_as_of)


@pytest.mark.case("rules:R9")
def test_before_the_first_version_a_push_applies_what_belongs_to_the_store() -> None:
    """A feed that waits for a version to apply it is the store's; one of a version that follows is not."""
    waiting = a_store(feeds=(feed_of(1),))
    assert feeds_of_push(waiting) == (feed_of(1),)
    follower = a_version(1, S.FOLLOWING, feeds=(feed_of(1).id,))
    assert feeds_of_push(waiting.model_copy(update={"versions": (follower,)})) == ()


def _cut(feed: Feed, source: Version, to_come_ms: dict[str, int]) -> int:
    store = a_store(feeds=(feed,), config=a_config(tombstone_grace_seconds=100))
    return tombstone_cut_ms(store, source, (feed,), NOON_MS, NOON_MS, to_come_ms)


@pytest.mark.case("rules:R12")
def test_tombstones_stay_for_as_long_as_a_job_may_be_late() -> None:
    """Event times lie behind append times: only what is older than all that is to come may go."""
    feed = feed_of(1)
    source = a_version(1, feeds=(feed.id,), tombstone_floor_ms=77)
    assert _cut(feed, source, {}) == 77
    assert _cut(feed, source, {"another": NOON_MS}) == 77
    assert _cut(feed, source, {feed.id: NOON_MS - _DAY_MS}) == NOON_MS - _DAY_MS
    assert _cut(feed, source, {feed.id: NOON_MS - 5}) == NOON_MS - 100_000
    plan = plan_repush(_snapshot(fed_store(1)), RepushRequest())
    assert plan.target.tombstone_floor_ms == 0, utc_text(plan.target.tombstone_floor_ms)


@pytest.mark.case("rules:R12")
def test_how_far_back_a_rewind_in_place_may_write_is_known() -> None:
    """Records below the greatest floor of what may serve would be turned away where their keys have no cell."""
    store = fed_store(1)
    versions = (
        a_version(1, S.BACKUP, tombstone_floor_ms=9),
        a_version(2, manifest=EMPTY, tombstone_floor_ms=5),
        a_version(3, S.RETIRED, tombstone_floor_ms=99),
    )
    assert present_tombstone_floor_ms(store.model_copy(update={"versions": versions})) == 9
    making = (*versions, a_version(4, S.BUILDING, tombstone_floor_ms=50))
    assert present_tombstone_floor_ms(store.model_copy(update={"versions": making})) == 50
