"""The combiner: whatever it takes out of a scan, the merge of what is left is the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.arrow import concat
from anew.core.combining import combine
from anew.core.hashing import total
from anew.core.ledger import Entry
from anew.core.merge import Cell, merge_all
from anew.core.reduce import WinnerReducer, sort_rows
from anew.testing.builders import cells_of
from tests.property.core.histories import MODEST, History, histories, rows_of

_MODULUS = 1 << 64


@pytest.mark.case("stores:C6", "rules:R6")
@MODEST
@given(st.lists(histories(), min_size=1, max_size=4), st.data())
def test_splits_combined_one_by_one_merge_to_the_same(keys: list[History], data: st.DataObject) -> None:
    """Each feed partition cut into splits, each split combined by itself: the winners are those of all records."""
    named = [(b"key %d" % number, history) for number, history in enumerate(keys)]
    clocks: dict[tuple[bytes, int, int], list[tuple[bytes, Cell]]] = {}
    whole = [(key, cell) for key, history in named for cell in history.records]
    for key, cell in whole:
        stamp = cell.stamp
        clocks.setdefault((stamp.origin, stamp.incarnation, stamp.partition), []).append((key, cell))
    left, saved, raised, read = [], Entry(), Entry(), 0
    for records in clocks.values():
        in_order = sorted(records, key=lambda pair: pair[1].stamp.offset)
        cut = data.draw(st.integers(0, len(in_order)))
        for split in (in_order[:cut], in_order[cut:]):
            if split:
                rows = rows_of(split)
                combined = combine(rows)
                read += total(rows.column("hash").to_numpy())
                saved, raised = saved + combined.superseded, raised + combined.raised
                left.append(combined.rows)
    rows = sort_rows(concat([rows_of([]), *left]))
    reducer = WinnerReducer()
    winners = dict([*cells_of(reducer.feed(rows)), *cells_of(reducer.finish())])
    expected = {key: merge_all(history.records) for key, history in named if history.records}
    assert winners == expected
    assert rows.num_rows + saved.count == len(whole)
    assert (total(rows.column("hash").to_numpy()) + saved.hash) % _MODULUS == (read + raised.hash) % _MODULUS
