"""Whether other code writes everything again that code wrote before."""

from __future__ import annotations

from itertools import product

from anew.core.jobs.code import Shape
from anew.core.jobs.leftovers import why_left_over

_SHAPES = [Shape(rows=rows, key=key, time=time) for rows, key, time in product((True, False), repeat=3)]


def test_only_code_that_keeps_all_of_each_record_leaves_nothing_behind() -> None:
    """And what was written before has the records' own keys and times."""
    fits = {(before, after) for before, after in product(_SHAPES, repeat=2) if why_left_over(before, after) is None}
    kept = Shape(rows=True, key=True, time=True)
    assert fits == {(before, kept) for before in _SHAPES if before.key and before.time}


def test_code_that_was_not_tried_is_not_trusted() -> None:
    """Neither of the two."""
    kept = Shape(rows=True, key=True, time=True)
    assert (why_left_over(None, kept) is None, why_left_over(kept, None) is None) == (False, False)
