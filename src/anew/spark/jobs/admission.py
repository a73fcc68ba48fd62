"""How far a batch reads of each partition where a watermark decides which records are late: aligned in time (case N2).

Spark's watermark follows the greatest time that was read, over all partitions, and drops what is older by more than the
function's delay. History is read as fast as it can be, so that a partition with few records would be hours ahead of one
with many: what is read of the other one then is late, although it was not when it was written.

So a batch has a horizon. Of each partition it takes the records before the first one that is younger than the horizon.
What is left of a partition then has, at or before its next record, one that is at least as young as every record that
was read: whoever had followed the topic live had seen that one first. So no record is late that was not late live,
however history was loaded: only the times of records count, and never those of their appends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from anew.core.jobs.inputs import Offsets, next_offset

_Numbers: TypeAlias = "npt.NDArray[np.int64]"
Look = Callable[[Mapping[int, tuple[int, int]]], Mapping[int, tuple[_Numbers, _Numbers]]]
"""Partition → (begin, end), to partition → offsets and times (ms) of the records there, in the order of offsets."""

_LEAST = 2_000
"""Fewer records are not looked at: to ask costs as much."""


@dataclass(slots=True)
class Admission:
    """Looks ahead of the batches of one input, at each record once.

    Attributes:
        look: How a part of a partition is looked at.
    """

    look: Look
    _ahead: dict[int, _Ahead] = field(default_factory=dict)

    def upto(self, start: Offsets, ends: Offsets, most: int) -> Offsets:
        """Where the next batch ends.

        Args:
            start: Partition → the next offset to read.
            ends: Partition → behind its last record, of all partitions that there are.
            most: At most about so many records, at least 1.
        """
        begins = {partition: next_offset(start, partition) for partition in ends}
        self._ahead = {partition: self._from(partition, begin) for partition, begin in begins.items()}
        step = max(_LEAST, most // max(1, len(ends)))
        while True:
            youngest = {partition: np.maximum.accumulate(of.times_ms) for partition, of in self._ahead.items()}
            horizon_ms = _nth(youngest, most)
            # Beyond what was seen of a partition there may be records that are older than the horizon.
            short = [
                partition
                for partition, of in self._ahead.items()
                if of.reached < ends[partition]
                and (horizon_ms is None or not of.count or youngest[partition][-1] < horizon_ms)
            ]
            if not short:
                break
            reached = {partition: self._ahead[partition].reached for partition in short}
            parts = {partition: (at, min(ends[partition], at + step)) for partition, at in reached.items()}
            for partition, (offsets, times_ms) in self.look(parts).items():
                self._ahead[partition].add(offsets, times_ms, parts[partition][1])
        if horizon_ms is None:
            return dict(ends)
        counts = _shares(youngest, horizon_ms, most)
        return {
            partition: self._behind(partition, counts[partition], begins[partition], ends[partition])
            for partition in ends
        }

    def _from(self, partition: int, begin: int) -> _Ahead:
        ahead = self._ahead.get(partition)
        return _Ahead(begin) if ahead is None or not ahead.begin <= begin <= ahead.reached else ahead.behind(begin)

    def _behind(self, partition: int, count: int, begin: int, end: int) -> int:
        of = self._ahead[partition]
        if count == of.count:
            # Also behind what no reader sees: marks of transactions, and what was compacted.
            return end if of.reached >= end else of.reached
        return begin if count == 0 else int(of.offsets[count - 1]) + 1


@dataclass(slots=True)
class _Ahead:
    """What was seen of a partition ahead of its reader: [begin, reached)."""

    begin: int
    reached: int = -1
    offsets: _Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    times_ms: _Numbers = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        """Nothing was seen."""
        self.reached = max(self.reached, self.begin)

    @property
    def count(self) -> int:
        """How many records were seen."""
        return len(self.offsets)

    def behind(self, begin: int) -> _Ahead:
        """Without what was read since."""
        first = int(np.searchsorted(self.offsets, begin))
        return _Ahead(begin, self.reached, self.offsets[first:], self.times_ms[first:])

    def add(self, offsets: _Numbers, times_ms: _Numbers, end: int) -> None:
        """More was seen."""
        self.offsets = np.concatenate([self.offsets, offsets])
        self.times_ms = np.concatenate([self.times_ms, times_ms])
        self.reached = end


def _nth(youngest: Mapping[int, _Numbers], most: int) -> int | None:
    """The horizon up to which there are so many records; None: there are not so many."""
    together = np.concatenate([*youngest.values(), np.empty(0, np.int64)])
    return int(np.partition(together, most - 1)[most - 1]) if len(together) > most else None


def _shares(youngest: Mapping[int, _Numbers], horizon_ms: int, most: int) -> dict[int, int]:
    """How many records of each partition lie before the horizon, and a share of those that lie on it."""
    below = {partition: int(np.searchsorted(of, horizon_ms)) for partition, of in youngest.items()}
    on = {
        partition: int(np.searchsorted(of, horizon_ms, side="right")) - below[partition]
        for partition, of in youngest.items()
    }
    left, total = most - sum(below.values()), max(1, sum(on.values()))
    return {partition: count + -(-on[partition] * left // total) for partition, count in below.items()}
