"""Two generations of a job write into the same store, in whatever order their records come."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.merge import Cell, merge
from anew.core.stamp import Origin, OriginKind, Stamp
from tests.property.core.histories import MODEST

_KEYS = (b"a", b"b", b"c")
_EVENTS = st.lists(st.tuples(st.sampled_from(_KEYS), st.integers(1, 5), st.booleans()), max_size=12)


def _outputs(events: Sequence[tuple[bytes, int, bool]], generation: int) -> list[tuple[bytes, Cell]]:
    """What a generation makes of events, a few in each batch: values name it, and the event."""
    origin = Origin(OriginKind.JOB, "clicks", generation).encoded
    return [
        (
            key,
            Cell(Stamp(time_ms, origin, False, generation, number // 3, number), None)
            if deleted
            else Cell(
                Stamp(time_ms, origin, False, generation, number // 3, number), b"%d of %d" % (number, generation)
            ),
        )
        for number, (key, time_ms, deleted) in enumerate(events)
    ]


@pytest.mark.case("streams:D2")
@MODEST
@given(events=_EVENTS, read_by_old=st.integers(0, 12), drawn=st.data())
def test_a_replay_never_overwrites_what_is_newer_and_wins_where_times_are_equal(
    events: list[tuple[bytes, int, bool]], read_by_old: int, drawn: st.DataObject
) -> None:
    """However the records of the old and the new generation are mixed, the store ends alike: of each key the newest
    time, and at equal times what the younger generation wrote, or deleted, last."""
    old, new = _outputs(events[:read_by_old], 9), _outputs(events, 10)
    mixed = drawn.draw(st.permutations([*old, *new]))
    store: dict[bytes, Cell] = {}
    for key, cell in mixed:
        store[key] = merge(store.get(key), cell)
    expected: dict[bytes, Cell] = {}
    for key, cell in new:
        present = expected.get(key)
        if present is None or cell.stamp.time_ms >= present.stamp.time_ms:
            expected[key] = cell
    assert store == expected
