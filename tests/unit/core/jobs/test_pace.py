"""How long a generation has to go: the slowest partition decides, and one that grows as fast as it is read, never."""

from __future__ import annotations

import pytest

from anew.core.jobs.pace import TimeLeft, read_rates, time_left, total_rate
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
