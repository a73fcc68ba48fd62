"""Choosing the source, checking the request, and what a plan says."""

from __future__ import annotations

from typing import Any

import pytest

from anew.core.errors import InvalidRequest, Refused
from anew.core.feed import FeedPartition, PositionMap
from anew.core.plan import Pace, pace_of
from anew.core.stores.plan import Plan, PushInput
from anew.core.stores.planning import PushOptions, RepushRequest, Snapshot, plan_push, plan_repush, push_start_ms
from anew.core.stores.properties import RepushProperties
from anew.core.stores.store import ManifestRef, Store, Version, VersionStatus
from anew.testing.builders import FABRIC, a_config, a_feed, a_store, a_version
from anew.testing.clock import NOON_MS

S = VersionStatus
_FEED = a_feed(partitions=3)
_START = PositionMap(dict.fromkeys(_FEED.feed_partitions(), 10))
_END = PositionMap(dict(zip(_FEED.feed_partitions(), (310, 366, 360), strict=True)))
_INPUT = PushInput(paths=("/in.csv",), format="csv", key=("k",), as_of_ms=NOON_MS - 5_000)


def _manifest(number: int) -> ManifestRef:
    return ManifestRef(path=f"v{number}/m", checksum="c", files=4, rows=90, tombstones=10, bytes=5_000, fingerprint=7)


def _sealed(number: int, status: VersionStatus, **changes: Any) -> Version:
    return a_version(number, status, manifest=_manifest(number), feeds=(_FEED.id,), start=_START, **changes)


def _store(*versions: Version, current: int, **changes: Any) -> Store:
    settings = {"config": a_config(hybrid=True), **changes}
    numbers = [version.number for version in versions]
    return a_store(
        "s",
        versions=versions,
        feeds=(_FEED,),
        current={FABRIC: current},
        next_version=max(numbers, default=0) + 1,
        **settings,
    )


def _snapshot(store: Store, **changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "store": store,
        "ends": _END,
        "unreachable": {},
        "base_files": {v.number: 4 for v in store.versions},
        "pace": Pace(records=10_000, per_second=100.0),
        "now_ms": NOON_MS,
    }
    return Snapshot(**{**values, **changes})


def _plan(store: Store, *, allow: bool = False, **properties: Any) -> Plan:
    request = RepushRequest(RepushProperties(**properties), allow_not_serving=allow)
    return plan_repush(_snapshot(store), request)


_SEVEN = _store(_sealed(6, S.BACKUP), _sealed(7, S.CURRENT), current=7)


@pytest.mark.case("stores:A1")
def test_without_options_the_current_version_is_the_source() -> None:
    """The plan reads the version that serves, from the fabric where it does, and names what it will make."""
    plan = _plan(_SEVEN)
    assert (plan.source.version, plan.source.topic, plan.source.fabric) == (7, "s_v7", FABRIC)
    assert plan.source.manifest == _manifest(7)
    assert (plan.target.version, plan.target.fabrics) == (8, (FABRIC,))
    assert plan.allow_not_serving is False


@pytest.mark.case("stores:A4")
@pytest.mark.parametrize("status", [S.BUILDING, S.LOADING, S.READY, S.FAILED, S.KILLED])
def test_a_version_that_serves_nowhere_is_not_the_source(status: VersionStatus) -> None:
    """Version 9 exists but serves nowhere, 8 serves: 8 is read."""
    assert _plan(_store(_sealed(8, S.CURRENT), _sealed(9, status), current=8)).source.version == 8


@pytest.mark.case("stores:A4")
@pytest.mark.parametrize("status", [S.LOADING, S.READY])
def test_a_version_that_never_served_is_a_source_only_when_named(status: VersionStatus) -> None:
    """Naming a sealed version that never became current takes --allow-not-serving, and the plan keeps that."""
    store = _store(_sealed(8, S.CURRENT), _sealed(9, status), current=8)
    with pytest.raises(Refused) as caught:
        _plan(store, input_topic="s_v9")
    assert (caught.value.code, "--allow-not-serving" in str(caught.value.hint)) == ("not_serving", True)
    plan = _plan(store, input_topic="s_v9", allow=True)
    assert (plan.source.version, plan.allow_not_serving) == (9, True)


@pytest.mark.case("stores:A5")
def test_a_topic_that_does_not_serve_is_refused() -> None:
    """All fabrics serve 7 and 6 is named: the message names 6, 7 and the fabrics, unless it is allowed."""
    with pytest.raises(Refused) as caught:
        _plan(_SEVEN, input_topic="s_v6")
    assert caught.value.code == "not_serving"
    assert all(text in str(caught.value) for text in ("version 6", "s_v6", FABRIC, "7"))
    assert _plan(_SEVEN, input_topic="s_v6", allow=True).source.version == 6
    assert _plan(_store(_sealed(6, S.CURRENT), current=6), input_topic="s_v6", input_fabric=FABRIC).source.version == 6


@pytest.mark.case("stores:A5")
@pytest.mark.parametrize("status", [S.BUILDING, S.RETIRED, S.RECLAIMED, S.FAILED])
def test_what_is_not_sealed_or_reclaimed_is_never_a_source(status: VersionStatus) -> None:
    """Even when it is allowed not to serve, a version without a kept base is refused."""
    store = _store(_sealed(6, status), _sealed(7, S.CURRENT), current=7)
    with pytest.raises(Refused) as caught:
        _plan(store, input_topic="s_v6", allow=True)
    assert (caught.value.code, caught.value.found) == ("not_sealed", status.value)


@pytest.mark.case("stores:A7")
@pytest.mark.parametrize("topic", ["other_v7", "s_rt", "s", "s_v0", "s_v", "7", "s_v7x", "S_v7"])
def test_another_store_s_topic_is_refused(topic: str) -> None:
    """A topic of another store, or none of a version, is refused with the expected form."""
    with pytest.raises(InvalidRequest) as caught:
        _plan(_SEVEN, input_topic=topic)
    assert (caught.value.code, caught.value.found, caught.value.expected) == ("bad_version", topic, "s_v<N>")


@pytest.mark.case("stores:A8")
def test_unknown_and_unreachable_fabrics_are_refused() -> None:
    """An unknown fabric is refused with the known ones; an unreachable one with its reason, and no other is used."""
    with pytest.raises(InvalidRequest) as unknown:
        _plan(_SEVEN, input_fabric="dc-O")
    assert (unknown.value.code, unknown.value.expected, unknown.value.hint) == (
        "unknown_fabric",
        FABRIC,
        "did you mean dc-0?",
    )
    request = RepushRequest(RepushProperties(input_fabric=FABRIC))
    with pytest.raises(Refused) as away:
        plan_repush(_snapshot(_SEVEN, unreachable={FABRIC: "connection refused"}), request)
    assert (away.value.code, away.value.found) == ("fabric_unreachable", "connection refused")
    with pytest.raises(InvalidRequest) as target:
        plan_repush(_snapshot(_SEVEN), RepushRequest(target_fabrics=("dc-7",)))
    assert target.value.code == "unknown_fabric"


def test_a_store_without_a_version_has_nothing_to_repush() -> None:
    """Before the first push a repush is refused with the command that makes one; source.kafka = false contradicts."""
    with pytest.raises(Refused) as caught:
        _plan(_store(current=0))
    assert (caught.value.code, "anew push s" in str(caught.value.hint)) == ("nothing_to_repush", True)
    with pytest.raises(InvalidRequest) as contradiction:
        _plan(_SEVEN, source_kafka=False)
    assert contradiction.value.code == "contradiction"
    with pytest.raises(Refused) as gone:
        _plan(_SEVEN, input_topic="s_v3", allow=True)
    assert gone.value.found == "no such version"


@pytest.mark.case("stores:H9")
def test_a_version_that_was_rolled_back_from_is_no_default_source() -> None:
    """After a rollback the version that serves is read; the other one only when named and allowed."""
    store = _store(_sealed(6, S.CURRENT), _sealed(7, S.ROLLED_BACK), current=6)
    assert _plan(store).source.version == 6
    with pytest.raises(Refused) as caught:
        _plan(store, input_topic="s_v7")
    assert caught.value.code == "not_serving"
    assert _plan(store, input_topic="s_v7", allow=True).source.version == 7


@pytest.mark.case("stores:B5")
def test_the_new_version_starts_where_the_scan_ends() -> None:
    """The scan reads [start, end) as of planning, and the new version applies its feeds from that end on."""
    plan = _plan(_SEVEN)
    assert (plan.source.start, plan.source.end, plan.target.start) == (_START, _END, _END)
    assert {split.at: split.end for split in plan.splits.ranges} == dict(_END)


@pytest.mark.case("stores:B1", "stores:B7")
@pytest.mark.parametrize(("most", "splits"), [(5_000_000, 3), (100, 11)])
def test_the_plan_shows_its_splits(most: int, splits: int) -> None:
    """Partitions of 300, 356 and 350 records: 3 splits by default, 3 + 4 + 4 with at most 100 records."""
    plan = _plan(_SEVEN, max_records_per_mapper=most)
    assert (plan.splits.log, len(plan.splits.ranges), plan.splits.max_records) == (splits, splits, most)
    assert max(split.end - split.begin for split in plan.splits.ranges) <= most


def test_a_closed_version_is_read_up_to_its_stop() -> None:
    """A version whose feeds were closed is not read beyond its stop."""
    stop = PositionMap(dict.fromkeys(_FEED.feed_partitions(), 100))
    store = _store(_sealed(7, S.CURRENT, stop=stop), current=7)
    assert _plan(store).source.end == stop


@pytest.mark.case("stores:H4")
def test_a_plan_takes_up_what_is_pending() -> None:
    """Changed settings are listed with what is now and what is wanted, and the new version gets them."""
    config = a_config(hybrid=True, partitions=8, compression="zstd", owner="somebody")
    plan = _plan(_store(_sealed(7, S.CURRENT), current=7, config=config))
    changes = {change.setting: (change.now, change.wanted) for change in plan.changes if change.setting != "hybrid"}
    assert changes == {"partitions": (4, 8), "compression": ("none", "zstd")}
    assert (plan.target.config.partitions, plan.target.config.compression) == (8, "zstd")
    assert plan.source.config == a_version().config
    assert any("partitions" in why for why in plan.why)


def test_floors_are_inherited() -> None:
    """What a version may have expired or dropped holds for the versions made from it (rules R11 and R12)."""
    store = _store(_sealed(7, S.CURRENT, ttl_floor_ms=5, tombstone_floor_ms=6), current=7)
    source = _plan(store).source
    assert (source.ttl_floor_ms, source.tombstone_floor_ms) == (5, 6)


@pytest.mark.case("stores:F1")
def test_a_plan_says_before_which_time_records_expire() -> None:
    """A repush with a time to live names the time; one without says nothing of it."""
    said = "records that were written before 2025-06-15T14:36:40Z expire"
    assert said in _plan(_SEVEN, ttl=True, ttl_seconds=1_800).why
    assert not any("expire" in why for why in _plan(_SEVEN).why)


def test_the_estimate_counts_base_and_log() -> None:
    """Records are the manifest's rows and tombstones and the feeds' ranges; seconds come from the last pace."""
    plan = _plan(_SEVEN)
    assert plan.estimate.records == 100 + 300 + 356 + 350
    assert plan.estimate.seconds == 11.1
    fresh = plan_repush(_snapshot(_SEVEN, pace=None), RepushRequest())
    assert fresh.estimate.seconds is None


@pytest.mark.parametrize(
    ("read", "took_seconds", "records", "seconds"),
    [
        (2, 3.3, 2_003, None),
        (2, 3.0, 3, 4.5),
        (2_003, 38.0, 10, 38.0),
        (2_003, 38.0, 4_006, 76.0),
        (2_003, 38.0, 4_007, None),
        (6_000_000, 600.0, 60_000_000, 6_000.0),
        (6_000_000, 600.0, 600_000, 60.0),
        (0, 600.0, 10, None),
        (10, 60.0, 0, None),
    ],
)
def test_what_was_too_small_says_nothing_of_more(
    read: int, took_seconds: float, records: int, seconds: float | None
) -> None:
    """Of a rebuild that may have been start alone nothing is expected beyond about its own size."""
    pace = Pace(records=read, per_second=max(read, 1) / took_seconds)
    assert pace.seconds_for(records) == seconds


def test_the_largest_of_the_last_rebuilds_tells_the_pace() -> None:
    """A small one in between says less than the one before; what was not measured, or is long ago, nothing."""
    past = [(2, 0.6), (9_000, None), (2_000, 50.0), (3, 1.0), (4, 1.0), (5, 1.0), (9_000, 90.0)]
    assert pace_of(past) == Pace(records=2_000, per_second=50.0)
    assert pace_of([(9, None), (0, 5.0)]) is None


def test_a_plan_s_id_is_the_hash_of_its_value() -> None:
    """The same snapshot gives the same plan; anything else in it gives another id; JSON keeps it whole."""
    plan = _plan(_SEVEN)
    assert plan == _plan(_SEVEN)
    assert plan.id == plan.value_id()
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    later = plan_repush(_snapshot(_SEVEN, now_ms=NOON_MS + 1), RepushRequest())
    altered = plan.model_copy(update={"splits": plan.splits.model_copy(update={"max_records": 5})})
    assert len({plan.id, later.id, altered.value_id()}) == 3


def test_an_unfinished_answer_is_never_empty() -> None:
    """A feed partition whose end is missing from the snapshot is an error, not an empty partition."""
    ends = {at: offset for at, offset in _END.items() if at.partition != 1}
    with pytest.raises(KeyError):
        plan_repush(_snapshot(_SEVEN, ends=ends), RepushRequest())


_LOW = _FEED.model_copy(update={"low_water": (5, 6, 7)})


@pytest.mark.case("rules:R13")
def test_the_first_push_starts_at_low_water() -> None:
    """Before the first version that serves, everything that the log holds is applied on top of the push."""
    store = _store(current=0).model_copy(update={"feeds": (_LOW,)})
    plan = plan_push(_snapshot(store), _INPUT, 1_000, _END)
    assert plan.target.start == PositionMap(dict(zip(_LOW.feed_partitions(), (5, 6, 7), strict=True)))
    failed = _store(a_version(1, S.FAILED), current=0).model_copy(update={"feeds": (_LOW,)})
    assert plan_push(_snapshot(failed), _INPUT, 1_000, _END).target.start == plan.target.start


@pytest.mark.case("rules:R13")
def test_a_later_push_starts_at_its_as_of_time() -> None:
    """With a version, a push applies what was appended since min(as of, SOP - rewind), but nothing below low water."""
    store = _SEVEN.model_copy(update={"feeds": (_LOW,)})
    at_as_of = PositionMap({FeedPartition(_LOW.id, 0): 50, FeedPartition(_LOW.id, 1): 2})
    start = plan_push(_snapshot(store), _INPUT, 1_000, at_as_of).target.start
    assert list(start.values()) == [50, 6, 7]
    day_ms = 86_400_000
    assert push_start_ms(store, NOON_MS - 5, NOON_MS) == NOON_MS - day_ms
    assert push_start_ms(store, NOON_MS - 2 * day_ms, NOON_MS) == NOON_MS - 2 * day_ms


# -- the end of nearline writes (rule R10) ---------------------------------------------------------------------------

_STOP = PositionMap(dict.fromkeys(_FEED.feed_partitions(), 300))
_BATCH = a_config()


@pytest.mark.case("rules:R10")
def test_open_feeds_have_no_known_end() -> None:
    """A version that is to end writes knows no stop while they are open, a closing version in the making or not."""
    closing = _sealed(8, S.LOADING, closing=True, stop=_STOP, config=_BATCH.frozen)
    for versions in ((), (closing,)):
        store = _store(_sealed(7, S.CURRENT, config=a_config(hybrid=True).frozen), *versions, current=7, config=_BATCH)
        assert (_plan(store).target.stop, _plan(store).target.feeds) == (None, (_FEED.id,))
        assert plan_push(_snapshot(store), _INPUT, 1_000, _END).target.stop is None
        with pytest.raises(Refused) as caught:
            plan_push(_snapshot(store), _INPUT, 1_000, _END, PushOptions(defer_swap=True))
        assert caught.value.code == "cannot_defer"


@pytest.mark.case("rules:R9", "rules:R10")
def test_closed_feeds_end_where_the_serving_version_does() -> None:
    """Of a batch store pushes and repushes end where writes ended; nothing is left to apply of what was read to it."""
    store = _store(_sealed(7, S.CURRENT, stop=_STOP, config=_BATCH.frozen), current=7, config=_BATCH)
    repush = _plan(store).target
    assert (repush.feeds, repush.start, repush.stop) == ((_FEED.id,), _STOP, _STOP)
    push = plan_push(_snapshot(store), _INPUT, 1_000, _START, PushOptions(defer_swap=True)).target
    assert (push.feeds, push.start, push.stop) == ((_FEED.id,), _START, _STOP)
    hybrid = store.model_copy(update={"config": a_config(hybrid=True)})
    assert (_plan(hybrid).target.start, _plan(hybrid).target.stop) == (_STOP, None)


@pytest.mark.case("rules:R9", "rules:R10")
def test_a_source_that_never_had_a_feed_gets_all_of_it() -> None:
    """A version from before the store was hybrid is read as base; its successor applies the feed from low water."""
    before = (
        _sealed(6, S.BACKUP, config=_BATCH.frozen)
        .model_copy(update={"feeds": ()})
        .moved((FABRIC,), start=PositionMap())
    )
    store = _store(before, _sealed(7, S.CURRENT, stop=_STOP, config=_BATCH.frozen), current=7)
    target = _plan(store, allow=True, input_topic="s_v6").target
    assert (target.feeds, target.start) == ((_FEED.id,), PositionMap(dict.fromkeys(_FEED.feed_partitions(), 0)))


@pytest.mark.case("rules:R2", "rules:R9")
def test_a_source_without_a_feed_whose_records_are_forgotten_is_refused() -> None:
    """What was folded into other versions and truncated would be lost: such a version is no source any more."""
    before = _sealed(6, S.BACKUP).model_copy(update={"feeds": ()})
    store = _store(before, _sealed(7, S.CURRENT), current=7)
    begun = store.feeds[0].model_copy(update={"low_water": (0, 3, *store.feeds[0].low_water[2:])})
    with pytest.raises(Refused) as caught:
        _plan(store.model_copy(update={"feeds": (begun,)}), allow=True, input_topic="s_v6")
    assert (caught.value.code, _FEED.id in str(caught.value.found)) == ("feeds_truncated", True)


@pytest.mark.case("rules:R12")
def test_a_scan_that_ends_early_drops_no_more_tombstones() -> None:
    """Behind a source's stop lies what may be older than a tombstone: only what was dropped before is dropped."""
    stopped = _sealed(6, S.ROLLED_BACK, stop=_STOP, config=_BATCH.frozen, tombstone_floor_ms=5)
    store = _store(stopped, _sealed(7, S.CURRENT), current=7)
    grace_ms = store.config.tombstone_grace_seconds * 1000
    request = RepushRequest(RepushProperties(input_topic="s_v6"), allow_not_serving=True)
    for ends, floor_ms in ((_END, 5), (_STOP, NOON_MS - grace_ms)):
        plan = plan_repush(_snapshot(store, ends=ends, read_until_ms=NOON_MS), request)
        assert plan.target.tombstone_floor_ms == floor_ms
