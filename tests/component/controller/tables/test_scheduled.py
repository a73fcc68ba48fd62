"""Scheduled refreshes: started once when due and something is stale; what goes wrong with one table stays with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anew.controller.tables.step import step_table
from anew.core.errors import Failed
from anew.core.schedule import request_id_of
from anew.core.tables.rebuild import TableRebuild
from anew.core.tables.segment import StaleSegment
from tests.component.controller.harness import plain
from tests.component.controller.tables.tables_harness import Tables

_PERIOD_SECONDS = 600
_EVERY = {"schedule": "*/10 * * * *"}
_START_SECONDS = 180


def _scheduled(tables: Tables, *names: str, **task: Any) -> None:
    """Tables with one stale segment each, and a schedule that was seen."""
    for name in names:
        tables.create(name, refresh={**_EVERY, **task})
        tables.load(f"{name}_0", name=name)
        tables.update(name, sort="city")
    tables.round()


def _due_ms(tables: Tables) -> int:
    return (tables.clock() // (_PERIOD_SECONDS * 1000) + 1) * _PERIOD_SECONDS * 1000


def _wait_until_due(tables: Tables) -> int:
    due_ms = _due_ms(tables)
    tables.pass_seconds((due_ms - tables.clock()) / 1000)
    return due_ms


def _run(tables: Tables, name: str) -> TableRebuild:
    """What the launched driver does first."""
    request_id = next(request_id for table, request_id in reversed(tables.launched) if table == name)
    return tables.begin(tables.plan(name), request_id)


def _schedule(tables: Tables, name: str = "trips") -> dict[str, Any]:
    found = tables.cluster.client.table(name).schedule
    assert found is not None
    view: dict[str, Any] = plain(found)
    return view


def _launched(tables: Tables) -> list[str]:
    return [table for table, _ in tables.launched]


# -- one table's error -----------------------------------------------------------------------------------------------


@pytest.mark.case("tables:B11")
def test_an_error_in_one_table_does_not_hold_up_the_others(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others of the round are started; the one that cannot be planned stays due, and starts when it can be."""
    _scheduled(tables, "buses", "cabs", "trips")
    due_ms, broken = _wait_until_due(tables), tables.table("buses").uid
    catalog = tables.cluster.context.catalog
    stale_segments = catalog.stale_segments

    def fails(table_uid: str, wanted: str) -> Iterator[StaleSegment]:
        if table_uid == broken:
            raise Failed("catalog_broken", "a row cannot be read")
        return stale_segments(table_uid, wanted)

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "stale_segments", fails)
        tables.settle(2)
        assert sorted(_launched(tables)) == ["cabs", "trips"]
    for name in ("cabs", "trips"):
        rebuild = _run(tables, name)
        tables.commit(rebuild, tables.refreshed(rebuild, f"{name}_0"))
        assert tables.finish(rebuild).status == "succeeded"
    tables.settle(2)
    assert tables.launched[2:] == [("buses", request_id_of(broken, due_ms, 0))]


@pytest.mark.case("tables:B11")
def test_a_refresh_that_cannot_be_launched_is_tried_again(tables: Tables) -> None:
    """The others start at once; the one without a process counts as failed after a while, and is launched anew."""
    _scheduled(tables, "cabs", "trips")
    due_ms, uid = _wait_until_due(tables), tables.table("cabs").uid
    tables.cannot_launch.add("cabs")
    tables.settle(2)
    assert (_launched(tables), _schedule(tables, "cabs")["under_way"]) == (["trips"], request_id_of(uid, due_ms, 0))
    rebuild = _run(tables, "trips")
    tables.commit(rebuild, tables.refreshed(rebuild, "trips_0"))
    tables.finish(rebuild)
    tables.cannot_launch.clear()
    tables.pass_seconds(_START_SECONDS)
    tables.settle(2)
    assert _schedule(tables, "cabs")["failures"] == 0
    tables.pass_seconds(0.001)
    tables.settle(2)
    assert (_schedule(tables, "cabs")["failures"], _launched(tables)) == (1, ["trips"])
    retry_ms = tables.clock() + 60_000
    tables.pass_seconds(60)
    tables.settle(2)
    assert tables.launched[1:] == [("cabs", request_id_of(uid, retry_ms, 1))]


@pytest.mark.case("tables:B11", "rules:R21")
def test_a_refresh_that_fails_is_not_repeated_for_ever(tables: Tables) -> None:
    """When every segment failed by its own fault, the next time finds nothing to do; another table goes on."""
    _scheduled(tables, "cabs", "trips")
    _wait_until_due(tables)
    tables.settle(2)
    bad, good = _run(tables, "cabs"), _run(tables, "trips")
    tables.commit(bad, tables.failed(bad, "cabs_0"))
    assert tables.finish(bad).status == "failed"
    tables.commit(good, tables.refreshed(good, "trips_0"))
    assert tables.finish(good).status == "succeeded"
    tables.settle(2)
    assert [_schedule(tables, name)["failures"] for name in ("cabs", "trips")] == [1, 0]
    tables.pass_seconds(60)
    tables.settle(2)
    for _ in range(3):
        _wait_until_due(tables)
        tables.settle(2)
    assert len(tables.launched) == 2
    assert _schedule(tables, "cabs")["reasons"] == ["no segment is to be refreshed"]


# -- when it starts --------------------------------------------------------------------------------------------------


def test_what_is_due_is_launched_once(tables: Tables) -> None:
    """At its time, and not before; while it runs, and after it, rounds start nothing until the next time."""
    _scheduled(tables, "trips")
    due_ms, uid = _due_ms(tables), tables.table().uid
    tables.pass_seconds((due_ms - 1 - tables.clock()) / 1000)
    tables.settle(3)
    assert tables.launched == []
    tables.pass_seconds(0.001)
    tables.settle(3)
    assert tables.launched == [("trips", request_id_of(uid, due_ms, 0))]
    rebuild = _run(tables, "trips")
    tables.settle(2)
    tables.commit(rebuild, tables.refreshed(rebuild, "trips_0"))
    tables.finish(rebuild)
    tables.update(sort="id")
    tables.settle(3)
    assert (len(tables.launched), _schedule(tables)["under_way"]) == (1, None)
    _wait_until_due(tables)
    tables.settle(3)
    assert tables.launched[1:] == [("trips", request_id_of(uid, due_ms + _PERIOD_SECONDS * 1000, 0))]


@pytest.mark.case("rules:R22")
def test_two_controllers_launch_once(tables: Tables) -> None:
    """Both find it due on the same table: one writes the start down and launches, the other does not."""
    _scheduled(tables, "trips")
    _wait_until_due(tables)
    seen, reconciler = tables.table(), tables.cluster.reconciler
    for _ in range(2):
        step_table(reconciler.context, seen, [], [])
    assert len(tables.launched) == 1
    tables.start_over()
    tables.settle(2)
    assert len(tables.launched) == 1


@pytest.mark.case("tables:B7")
def test_nothing_is_launched_when_nothing_is_stale(tables: Tables) -> None:
    """The time is settled, the view says why, and what becomes stale later waits for the next time."""
    _scheduled(tables, "trips")
    tables.refresh()
    _wait_until_due(tables)
    tables.settle(2)
    assert (tables.launched, _schedule(tables)["reasons"]) == ([], ["no segment is to be refreshed"])
    tables.update(sort="id")
    tables.settle(2)
    assert tables.launched == []
    _wait_until_due(tables)
    tables.settle(2)
    assert _launched(tables) == ["trips"]


def _pause(tables: Tables) -> Callable[[], object]:
    tables.cluster.client.pause(None)
    return lambda: tables.cluster.client.unpause(None)


def _load(tables: Tables) -> Callable[[], object]:
    rebuild = tables.begin(tables.load_plan())

    def finish() -> None:
        tables.cluster.client.commit_load(rebuild.id, tables.load_of(rebuild, "new"))

    tables.beat(rebuild)
    return finish


@pytest.mark.parametrize(("block", "why"), [(_pause, "paused: paused by tester"), (_load, "is running")])
def test_what_is_blocked_stays_due(tables: Tables, block: Callable[[Tables], Callable[[], object]], why: str) -> None:
    """Nothing starts and the view says why; as soon as the block goes, the refresh that was due starts."""
    _scheduled(tables, "trips")
    tables.clock.advance(_due_ms(tables) - tables.clock() - 1_000)
    end = block(tables)
    due_ms = _wait_until_due(tables)
    tables.settle(2)
    assert (tables.launched, why in _schedule(tables)["reasons"][0]) == ([], True)
    end()
    tables.settle(2)
    assert tables.launched == [("trips", request_id_of(tables.table().uid, due_ms, 0))]


def test_a_schedule_that_is_taken_back_starts_nothing(tables: Tables) -> None:
    """Neither what was due nor what comes to be; given again, only times to come count."""
    _scheduled(tables, "trips")
    _wait_until_due(tables)
    tables.update(refresh=None)
    tables.settle(2)
    assert (tables.launched, tables.table().schedule_state) == ([], None)
    assert tables.cluster.client.table("trips").schedule is None
    tables.update(refresh=_EVERY)
    tables.settle(2)
    assert tables.launched == []
    _wait_until_due(tables)
    tables.settle(2)
    assert _launched(tables) == ["trips"]
