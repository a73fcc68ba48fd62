"""Which records expire, which tombstones go, and what is refused: pure functions of a plan's snapshot."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from anew.core.admission import with_hashes
from anew.core.dropping import DropFloors, drop
from anew.core.errors import InvalidRequest, Refused
from anew.core.rows import ROWS
from anew.core.stores.floors import check_undying, live_range_start_ms, present_ttl_floor_ms, tombstone_cut_ms
from anew.core.stores.properties import RepushProperties, parse_properties
from anew.testing.builders import FABRIC, ORIGIN, a_config, a_feed, a_store, a_version
from anew.testing.clock import NOON_MS

_FEED = a_feed()
_HYBRID = a_store(config=a_config(hybrid=True, rewind_seconds=600), feeds=(_FEED,))
_SOURCE = a_version(1, feeds=(_FEED.id,), timed=True)


def _start_ms(asked: dict[str, str], store: Any = _HYBRID, source: Any = _SOURCE) -> int:
    return live_range_start_ms(store, source, parse_properties(asked), NOON_MS)


@pytest.mark.case("stores:F3")
@pytest.mark.parametrize(
    ("asked", "start_ms"),
    [
        ({}, 0),
        ({"repush.ttl.enable": "true"}, NOON_MS - 600_000),
        ({"repush.ttl.enable": "true", "repush.ttl.seconds": "30"}, NOON_MS - 30_000),
        ({"repush.ttl.enable": "true", "repush.ttl.start.timestamp": "1234"}, 1_234),
    ],
)
def test_the_start_of_the_live_range(asked: dict[str, str], start_ms: int) -> None:
    """Seconds count back from planning, a timestamp is taken as it is, and neither means the store's rewind."""
    assert _start_ms(asked) == start_ms


@pytest.mark.case("stores:F3", "stores:F5")
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"repush.ttl.enable": "true", "repush.ttl.seconds": "30", "repush.ttl.start.timestamp": "9"}, "contradiction"),
        ({"repush.ttl.seconds": "30"}, "ttl_not_enabled"),
        ({"repush.ttl.enable": "false", "repush.ttl.start.timestamp": "9"}, "ttl_not_enabled"),
        ({"repush.ttl.enable": "true", "repush.ttl.seconds": "0"}, "bad_setting"),
        ({"repush.ttl.enable": "true", "repush.ttl.start.timestamp": str(NOON_MS + 1)}, "bad_setting"),
    ],
)
def test_a_live_range_that_is_not_clear_is_refused(asked: dict[str, str], code: str) -> None:
    """Two starts, a start that is not switched on, no time at all, and a start in the future are refused by name."""
    with pytest.raises(InvalidRequest) as caught:
        _start_ms(asked)
    assert caught.value.code == code
    assert "ttl" in f"{caught.value.message} {caught.value.found} {caught.value.hint}"


@pytest.mark.case("stores:F4")
def test_records_without_times_cannot_expire() -> None:
    """A batch store pushed without times is refused, with what would make it possible; with times it is accepted."""
    batch = a_store(config=a_config(rewind_seconds=600))
    asked = {"repush.ttl.enable": "true"}
    with pytest.raises(Refused, match="--written-at") as caught:
        _start_ms(asked, batch, a_version(1))
    assert (caught.value.code, "hybrid=true" in str(caught.value.hint)) == ("ttl_impossible", True)
    assert _start_ms(asked, batch, a_version(1, timed=True)) == NOON_MS - 600_000


@pytest.mark.case("rules:R12")
def test_tombstones_go_after_the_grace_and_only_as_far_as_feeds_were_read() -> None:
    """The cut is the lesser of both, never below the source's own, and stays where a new feed was not read yet."""
    store = _HYBRID.model_copy(update={"config": a_config(hybrid=True, tombstone_grace_seconds=100)})
    assert tombstone_cut_ms(store, _SOURCE, store.feeds, NOON_MS, NOON_MS, {}) == NOON_MS - 100_000
    assert tombstone_cut_ms(store, _SOURCE, store.feeds, NOON_MS - 500_000, NOON_MS, {}) == NOON_MS - 500_000
    before = _SOURCE.model_copy(update={"tombstone_floor_ms": NOON_MS - 5})
    assert tombstone_cut_ms(store, before, store.feeds, NOON_MS, NOON_MS, {}) == NOON_MS - 5
    unread = _SOURCE.model_copy(update={"feeds": (), "tombstone_floor_ms": 7})
    assert tombstone_cut_ms(store, unread, store.feeds, NOON_MS, NOON_MS, {}) == 7


@pytest.mark.case("stores:F9", "rules:R11")
def test_a_push_of_undying_rows_is_refused_after_a_ttl_repush() -> None:
    """While what serves has a floor only pushes with times, empty ones, and those that are meant so are accepted."""
    expiring = a_version(3, ttl_floor_ms=NOON_MS - 9)
    store = _HYBRID.model_copy(update={"versions": (expiring,), "current": {FABRIC: 3}})
    assert present_ttl_floor_ms(store) == NOON_MS - 9
    with pytest.raises(Refused, match="--allow-undying") as caught:
        check_undying(store, timed=False, empty=False, allowed=False)
    assert caught.value.code == "undying_push"
    for accepted in ("timed", "empty", "allowed"):
        check_undying(store, **({"timed": False, "empty": False, "allowed": False} | {accepted: True}))
    check_undying(_HYBRID, timed=False, empty=False, allowed=False)


def _rows(*cells: tuple[int, bool, bool]) -> pa.RecordBatch:
    """Winners (time, tombstone, held) as rows."""
    count = len(cells)
    rows = pa.RecordBatch.from_pydict(
        {
            "key": [b"%d" % n for n in range(count)],
            "value": [None if dead else b"v" for _, dead, _ in cells],
            "schema_id": [0 if dead else 1 for _, dead, _ in cells],
            "time": [time for time, _, _ in cells],
            "origin": [ORIGIN] * count,
            "append_timed": [True] * count,
            "incarnation": [1] * count,
            "feed_partition": [0] * count,
            "offset": list(range(count)),
            "hash": [0] * count,
        },
        schema=ROWS,
    )
    held: pa.Array[Any] = pa.array([held for _, _, held in cells])
    return with_hashes(rows).append_column("held", held)


@pytest.mark.case("stores:F1", "stores:F2", "rules:R11")
def test_what_was_written_before_the_floor_goes_and_what_has_no_time_stays() -> None:
    """A value at the floor stays, one millisecond earlier it goes; time 0 never expires."""
    kept = drop(_rows((100, False, True), (99, False, True), (0, False, True)), DropFloors(ttl_floor_ms=100))
    assert kept.rows.column("time").to_pylist() == [100, 0]
    assert (kept.expired.count, kept.deleted.count, kept.rejected.count) == (1, 0, 0)
    assert kept.expired.hash != 0


@pytest.mark.case("rules:R12")
def test_tombstones_below_the_floor_go_and_late_records_without_a_cell_are_rejected() -> None:
    """The new floor drops tombstones; the source's rejects what meets no cell, whatever it is."""
    rows = _rows((99, True, True), (100, True, True), (49, False, False), (49, False, True), (50, False, False))
    kept = drop(rows, DropFloors(rejected_below_ms=50, tombstone_floor_ms=100))
    assert kept.rows.column("time").to_pylist() == [100, 49, 50]
    assert (kept.expired.count, kept.deleted.count, kept.rejected.count) == (0, 1, 1)


def test_no_floor_drops_nothing() -> None:
    """Without floors the very same rows come back."""
    rows = _rows((1, True, False), (2, False, False))
    assert drop(rows, DropFloors()).rows is rows
    assert RepushProperties().ttl is False
