"""How long a generation has to go: the slowest partition decides, and one that grows as fast as it is read, never."""

from __future__ import annotations

from typing import Any

import pytest

from anew.core.jobs.pace import Backlog, TimeLeft, expires_at_ms, read_rates, time_left, total_rate
from anew.testing.job_builders import a_batch

_A, _B = ("events", 0), ("events", 1)


def test_the_rate_is_the_median_of_the_last_batches() -> None:
    """A driver that was down for an hour between two batches says nothing of how fast it reads."""
    ends = [(0, 0), (10, 2), (20, 4), (30, 6), (40, 8)]
    times = [0, 1_000, 2_000, 3_602_000, 3_603_000]
    found = [
        a_batch(number, end={"events": dict(enumerate(end))}, at_ms=at_ms)
        for number, (end, at_ms) in enumerate(zip(ends, times, strict=True))
    ]
    assert read_rates(found) == {_A: 10.0, _B: 2.0}
    assert total_rate(found) == 12.0
    assert (read_rates(found[:1]), total_rate(found[:1])) == ({}, None)


def test_a_partition_that_few_batches_read_has_a_rate() -> None:
    """What most of the batches read nothing of is not called stuck."""
    found = [a_batch(number, end={"events": {0: number // 3 * 9}}, at_ms=number * 1_000) for number in range(4)]
    assert read_rates(found) == {_A: 3.0}


@pytest.mark.case("streams:E2")
@pytest.mark.parametrize(
    ("lags", "appends", "left"),
    [
        ({_A: 0, _B: 0}, {}, TimeLeft(0.0)),
        ({_A: 100, _B: 100}, {}, TimeLeft(50.0)),
        ({_A: 100, _B: 0}, {_A: 5.0}, TimeLeft(20.0)),
        ({_A: 1, _B: 1}, {_B: 2.0}, TimeLeft(None, never=True)),
        ({_A: 1, _B: 1}, {_B: 3.0}, TimeLeft(None, never=True)),
        ({_A: 1, ("events", 2): 1}, {}, TimeLeft(None)),
    ],
)
def test_the_slowest_partition_decides(
    lags: dict[tuple[str, int], int], appends: dict[tuple[str, int], float], left: TimeLeft
) -> None:
    """Lag over what is gained in a second; never, where nothing is; unknown, where nothing was measured."""
    assert time_left(lags, {_A: 10.0, _B: 2.0}, appends) == left


_NOW_MS, _HOUR_MS = 100 * 3_600_000, 3_600_000


def _backlog(**changes: Any) -> Backlog:
    """36,000 records of the last 36 hours, a thousand in each."""
    given = {"position": 0, "begin": 0, "end": 36_000, "read_per_s": 1.0, "appended_per_s": 0.0, "kept_ms": None}
    return Backlog(**{**given, "is_bounded": False, **changes})


def _appended_ms(offset: int) -> int | None:
    return _NOW_MS - 36 * _HOUR_MS + offset * 3_600 if offset < 36_000 else None


@pytest.mark.parametrize(
    ("changes", "in_hours"),
    [
        # Ten hours to read it; the record that is read then was appended just now.
        ({}, None),
        ({"kept_ms": 46 * _HOUR_MS}, None),
        ({"kept_ms": 36 * _HOUR_MS}, None),
        # At half the pace of its appends it is overtaken at once, and from the beginning.
        ({"kept_ms": 36 * _HOUR_MS, "read_per_s": 0.1}, 0.1),
        ({"kept_ms": 40 * _HOUR_MS, "read_per_s": 0.2}, 14.3),
        ({"kept_ms": 37 * _HOUR_MS, "read_per_s": 0.0}, 1.0),
        # By size: what comes pushes the oldest out.
        ({"is_bounded": True, "appended_per_s": 1.5, "begin": 0, "position": 3_600}, 2.0),
        ({"is_bounded": True, "appended_per_s": 0.5, "position": 3_600}, None),
        ({"position": 36_000, "kept_ms": 1, "read_per_s": 0.0}, None),
    ],
)
def test_what_expires_before_it_is_read_is_told_before(changes: dict[str, Any], in_hours: float | None) -> None:
    """From when on records are gone that the generation has not come to, at the present rates."""
    found = expires_at_ms(_backlog(**changes), _NOW_MS, _appended_ms)
    in_ms = None if found is None else found - _NOW_MS
    assert in_ms == (None if in_hours is None else pytest.approx(in_hours * _HOUR_MS, abs=0.15 * _HOUR_MS))


def test_where_the_oldest_record_outlasts_all_nothing_else_is_asked() -> None:
    """A look costs a read of the log."""
    asked = list[int]()

    def appended_ms(offset: int) -> int | None:
        asked.append(offset)
        return _appended_ms(offset)

    assert expires_at_ms(_backlog(kept_ms=46 * _HOUR_MS), _NOW_MS, appended_ms) is None
    assert asked == [0]


@pytest.mark.parametrize("left", [*range(1, 40), 200, 255, 256, 257, 300])
@pytest.mark.parametrize("hours", [37, 50, 300])
def test_few_looks_find_where_the_race_is_lost(left: int, hours: int) -> None:
    """However little is left, the very first record that is not reached in time is found, in a few looks."""
    asked = list[int]()

    def appended_ms(offset: int) -> int:
        asked.append(offset)
        return _NOW_MS - 36 * _HOUR_MS + offset * 36 * _HOUR_MS // left

    backlog = _backlog(end=left, read_per_s=left / (hours * 3_600), kept_ms=40 * _HOUR_MS)
    found = expires_at_ms(backlog, _NOW_MS, appended_ms)
    assert len(asked) < 60
    goes = {offset: appended_ms(offset) + 40 * _HOUR_MS for offset in range(left)}
    lost = [at for offset, at in goes.items() if at < _NOW_MS + 1000 * offset / backlog.read_per_s]
    assert found == min(lost, default=None)
