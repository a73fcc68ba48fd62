"""When a generation that runs beside the live one has caught up with it (case E3)."""

from __future__ import annotations

import pytest

from anew.core.jobs.catchup import LOOKS_TO_CATCH_UP, CatchUp, looked_at

_ENDS = {"events": {0: 10, 1: 10}}


@pytest.mark.case("streams:E3")
@pytest.mark.parametrize(
    ("position", "live", "looks"),
    [
        pytest.param({0: 9, 1: 10}, {0: 9, 1: 9}, 1, id="near, and past the live one"),
        pytest.param({0: 9, 1: 10}, {0: 10, 1: 9}, 0, id="behind the live one in one partition"),
        pytest.param({0: 9, 1: 9}, {}, None, id="too far from the ends"),
        pytest.param({0: 10}, {}, None, id="a partition that it does not read yet"),
    ],
)
def test_caught_up_means_every_partition_and_the_live_ones_position(
    position: dict[int, int], live: dict[int, int], looks: int | None
) -> None:
    """Behind the live one anywhere, a partition that is not read yet, or a lag above the limit: not there."""
    found = looked_at(None, 1, {"events": live}, {"events": position}, _ENDS, 1)
    assert (None if found is None else found.looks) == looks


def test_an_input_without_records_is_at_its_ends() -> None:
    """Nothing was ever written, nobody is live: that is caught up."""
    found = looked_at(None, None, {}, {"events": {0: 0, 1: 0}}, {"events": {0: 0, 1: 0}}, 0)
    assert found == CatchUp(None, {}, 1)


@pytest.mark.case("streams:E3")
def test_two_that_pass_each_other_batch_by_batch_have_caught_up() -> None:
    """The live one is ahead at each look; what counts is where it stood at the first."""
    found: CatchUp | None = None
    looks = []
    for at in range(100, 140, 10):
        live, position, ends = ({"events": {0: at + more}} for more in (10, 0, 15))
        found = looked_at(found, 1, live, position, ends, 20)
        looks.append(0 if found is None else found.looks)
    assert looks == [0, 1, 2, LOOKS_TO_CATCH_UP]


def test_who_falls_far_behind_or_gets_another_live_one_begins_again() -> None:
    """The goal is taken anew: what the live one read meanwhile counts."""
    found = CatchUp(1, {"events": {0: 10}}, LOOKS_TO_CATCH_UP)
    assert looked_at(found, 1, {"events": {0: 90}}, {"events": {0: 50}}, {"events": {0: 90}}, 20) is None
    other = looked_at(found, 2, {"events": {0: 90}}, {"events": {0: 80}}, {"events": {0: 90}}, 20)
    assert other == CatchUp(2, {"events": {0: 90}}, 0)
