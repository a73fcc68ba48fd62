"""What the catalog keeps is bounded, however long it is there: seen over years of virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anew.core.rowretention import RowRetention
from tests.simulation.planting import Bug
from tests.simulation.run import quietly, uncollected
from tests.simulation.yearbugs import YEAR_BUGS
from tests.simulation.years import HOUR_SECONDS, Years

_YEAR_OF_HOURS = 8_760
_EVERY_HOURS = 12
_WEEK = range(0, 7 * 24, _EVERY_HOURS)
_MANY = 50


@pytest.fixture(autouse=True)
def events() -> Iterator[None]:
    """Without the events of the parts, of which a year makes a hundred thousand, and without looking for cycles."""
    with quietly(), uncollected():
        yield


@pytest.mark.timeout(1_200)
def test_a_year_of_hourly_repushes_leaves_a_small_catalog() -> None:
    """8,760 repushes of a store: at no hour does the catalog hold more than what lives and a week of the rest."""
    years = Years()
    years.create("flights")
    years.rounds()
    for hour in range(_YEAR_OF_HOURS):
        years.clock.advance(HOUR_SECONDS * 1000)
        years.repush("flights")
        years.rounds()
        if hour % 24 == 0:
            years.check(stores_count=1, per_hour=1)
    assert (years.breaches, years.keeping.breaches) == ([], [])
    store = years.store("flights")
    assert (store.next_version, store.current) == (_YEAR_OF_HOURS + 2, {"dc-0": _YEAR_OF_HOURS + 1})
    (run,) = store.past_numbers
    assert run[0] == 1
    assert run[1] > _YEAR_OF_HOURS - 6
    assert len(years.database.tables.past_versions) > 160


@pytest.mark.timeout(600)
def test_a_week_of_many_stores_leaves_a_catalog_of_what_lives() -> None:
    """50 stores, each repushed twice a day for a week: each document is as small as that of a store alone."""
    years = Years()
    names = [f"store_{number}" for number in range(_MANY)]
    for name in names:
        years.create(name)
    years.rounds()
    for _ in _WEEK:
        years.clock.advance(_EVERY_HOURS * HOUR_SECONDS * 1000)
        for name in names:
            years.repush(name)
        years.rounds()
        years.check(stores_count=_MANY, per_hour=_MANY)
    assert (years.breaches, years.keeping.breaches) == ([], [])
    assert {years.store(name).next_version for name in names} == {len(_WEEK) + 2}


def _fortnight() -> Years:
    """Stores that are repushed every hour, never, and under a log that is away; a table; a rebuild of ten days.

    Requests are known for a week, rebuilds are listed for a day.
    """
    week, day = 7 * 24 * HOUR_SECONDS, 24 * HOUR_SECONDS
    years = Years(retention=RowRetention(week, day, week, week, week, week))
    for name in ("hourly", "never", "long"):
        years.create(name)
    years.load("loaded")
    years.create("told", hybrid=True, backup_retention_seconds=0)
    years.rounds()
    years.begin("long")
    long = years.begun[-1]
    # The rebuild that comes into service now has not ended before the log was told of the new limit.
    years.log.is_away = True
    years.update("told", max_value_bytes=5_000)
    for hour in range(10 * 24):
        years.clock.advance(HOUR_SECONDS * 1000)
        years.repush("hourly")
        if hour < 3:
            years.repush("told")
        years.log.is_away = hour < 48
        years.rounds()
        for asked, begun in (long, years.begun[-1], years.begun[max(0, len(years.begun) - 6 * 24)]):
            years.ask_again(asked, begun)
    return years


def test_what_depends_on_something_is_kept() -> None:
    """In ten days nothing leaves a store too early, and nothing is forgotten that something still asks about."""
    years = _fortnight()
    assert years.keeping.breaches == []
    tables = years.database.tables
    assert (len(tables.past_versions) > 100, len(tables.requests) < 24 * 8, len(tables.rebuilds) < 24 * 8) == (
        True,
        True,
        True,
    )


@pytest.mark.parametrize("bug", YEAR_BUGS, ids=lambda bug: bug.plant.__name__.strip("_"))
def test_a_planted_bug_is_found_within_days(bug: Bug) -> None:
    """Each bug in what leaves and in what is forgotten is found by an invariant that is about it."""
    with bug.plant():
        years = _fortnight()
    found = {name for name, _ in years.keeping.breaches}
    assert bug.found_by <= found, years.keeping.breaches
