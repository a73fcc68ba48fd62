"""How fast a generation reads, how fast its inputs grow, and when it has come to their ends (case E2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, median

from anew.core.jobs.batch import BatchRecord, behind
from anew.core.jobs.inputs import next_offset

Rates = dict[tuple[str, int], float]
"""Input and partition → records in a second."""


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """When a generation has come to the ends of its inputs.

    Attributes:
        seconds: Until then; None: never at this rate, or nothing was measured.
        never: Whether a partition grows at least as fast as it is read.
    """

    seconds: float | None
    never: bool = False


def read_rates(batches: Sequence[BatchRecord]) -> Rates:
    """How fast each partition was read in the last batches: the median of what each batch read of it.

    Of a partition that most of the batches read nothing of, the mean counts.
    """
    samples: dict[tuple[str, int], list[float]] = {}
    for before, after in pairwise(batches):
        seconds = (after.at_ms - before.at_ms) / 1000
        if seconds <= 0:
            continue
        for name, of in after.end.items():
            for partition, end in of.items():
                begin = next_offset(before.end.get(name, {}), partition)
                samples.setdefault((name, partition), []).append((end - begin) / seconds)
    return {at: median(found) or mean(found) for at, found in samples.items()}


def total_rate(batches: Sequence[BatchRecord]) -> float | None:
    """Records of all inputs in a second: the median of the last batches; None: fewer than two were measured."""
    found = []
    for before, after in pairwise(batches):
        seconds = (after.at_ms - before.at_ms) / 1000
        if seconds > 0:
            found.append(behind(before.end, after.end) / seconds)
    return median(found) if found else None


def time_left(lags: Mapping[tuple[str, int], int], reads: Rates, appends: Rates) -> TimeLeft:
    """Lag ÷ (read rate − append rate) of the slowest partition; partitions without a lag are there already.

    Args:
        lags: How many records are left of each partition.
        reads: As `read_rates` found them.
        appends: How fast each partition with a lag grows.
    """
    behind = {at: lag for at, lag in lags.items() if lag > 0}
    if not behind:
        return TimeLeft(0.0)
    if not behind.keys() <= reads.keys():
        return TimeLeft(None)
    gains = {at: reads[at] - appends.get(at, 0.0) for at in behind}
    if min(gains.values()) <= 0:
        return TimeLeft(None, never=True)
    return TimeLeft(max(lag / gains[at] for at, lag in behind.items()))
