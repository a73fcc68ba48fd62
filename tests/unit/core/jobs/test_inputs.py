"""Positions of inputs whose topics have got partitions since."""

from __future__ import annotations

import pytest

from anew.core.jobs.batch import behind
from anew.core.jobs.deadletters import spans_between
from anew.core.jobs.inputs import Span, next_offset, with_added

_POSITION = {"events": {0: 3, 1: 0}, "zones": {0: 9}}


@pytest.mark.case("streams:B7")
def test_a_position_names_what_was_added_at_its_beginning() -> None:
    """Each partition that there is, in order; what it names already stays, also where fewer are told of."""
    assert with_added(_POSITION, {"events": {2: 7, 0: 5, 1: 0}, "zones": [0]}) == {
        "events": {0: 3, 1: 0, 2: 0},
        "zones": {0: 9},
    }
    assert list(with_added(_POSITION, {"events": [2, 1, 0]})["events"]) == [0, 1, 2]
    assert with_added(_POSITION, {"events": [0]}) == {"events": {0: 3, 1: 0}}
    assert with_added({}, {"events": [0, 1]}) == {"events": {0: 0, 1: 0}}


@pytest.mark.case("streams:B7")
def test_what_lies_in_an_added_partition_is_all_behind() -> None:
    """From offset 0 on: as the number of records, and as the ranges of a batch."""
    end = {"events": {0: 3, 1: 2, 2: 4}, "zones": {0: 9}}
    assert (next_offset(_POSITION["events"], 0), next_offset(_POSITION["events"], 2)) == (3, 0)
    assert behind(_POSITION, end) == 6
    assert spans_between(_POSITION, end) == [
        Span(input="events", partition=1, begin=0, end=2),
        Span(input="events", partition=2, begin=0, end=4),
    ]
