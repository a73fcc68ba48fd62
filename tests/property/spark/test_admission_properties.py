"""Replayed under a watermark no record is late that was not late when it was written (case N2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.spark.jobs.admission import Admission

_PARTITIONS = 3
_LIVE = st.lists(st.tuples(st.integers(0, _PARTITIONS - 1), st.integers(0, 60)), min_size=1, max_size=80)
"""As they were written: partition and time of each record."""


def _late_live(live: list[tuple[int, int]], delay: int) -> set[tuple[int, int]]:
    """Partition and offset of those that were older than the greatest time before them, less the delay."""
    found, youngest, count = set(), 0, [0] * _PARTITIONS
    for partition, time in live:
        if time < youngest - delay:
            found.add((partition, count[partition]))
        youngest = max(youngest, time)
        count[partition] += 1
    return found


@pytest.mark.case("streams:N2")
@given(_LIVE, st.integers(0, 20), st.integers(1, 30), st.sets(st.integers(0, 30)))
def test_no_record_is_late_that_was_not_late_live(
    live: list[tuple[int, int]], delay: int, most: int, restarts: set[int]
) -> None:
    """Whatever a batch may hold, and wherever another driver goes on, which has looked at nothing yet."""
    times = {p: np.array([time for at, time in live if at == p], np.int64) for p in range(_PARTITIONS)}

    def look(parts: Mapping[int, tuple[int, int]]) -> dict[int, Any]:
        return {p: (np.arange(begin, end), times[p][begin:end]) for p, (begin, end) in parts.items()}

    ends = {partition: len(of) for partition, of in times.items()}
    admission, at, late, youngest, batches = Admission(look), dict.fromkeys(ends, 0), set(), 0, 0
    while at != ends:
        admission = Admission(look) if batches in restarts else admission
        upto = admission.upto(at, ends, most)
        read = {p: times[p][at[p] : upto[p]] for p in ends}
        assert 0 < sum(map(len, read.values())) < most + _PARTITIONS
        late |= {(p, at[p] + number) for p, of in read.items() for number, t in enumerate(of) if t < youngest - delay}
        youngest = max(youngest, *(int(of.max()) for of in read.values() if len(of)))
        at, batches = upto, batches + 1
    assert late <= _late_live(live, delay)
