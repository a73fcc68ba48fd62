"""How fast a generation reads, how fast its inputs grow, and when it has come to their ends (case E2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
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


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is left of a partition, and what its topic keeps.

    Attributes:
        position: The next offset to read.
        begin, end: What the log holds.
        read_per_s, appended_per_s: How fast it is read, and how fast it grows.
        kept_ms: So long after their append records are kept; None: for ever.
        is_bounded: Whether the oldest ones go by size as well.
    """

    position: int
    begin: int
    end: int
    read_per_s: float
    appended_per_s: float
    kept_ms: int | None
    is_bounded: bool


_EXPIRY_SAMPLES = 16
"""At so many places of what is left it is looked whether they are reached in time."""
_EXPIRY_PRECISION = 256
"""The first one that is not is found to this part of what is left."""


def expires_at_ms(of: Backlog, now_ms: int, appended_ms: Callable[[int], int | None]) -> int | None:
    """From when on records are gone before they are read, at the present rates (case E4); None: none are.

    Args:
        of: The partition.
        now_ms: The time.
        appended_ms: When the record at an offset was appended; None: none is there.
    """
    found = list[float]()
    if of.end <= of.position:
        return None
    gained_per_s = of.appended_per_s - of.read_per_s
    if of.is_bounded and gained_per_s > 0:
        # At its size a partition loses as many records at its begin as it gets.
        found.append(now_ms + round(1000 * (of.position - of.begin) / gained_per_s))
    if of.kept_ms is not None:
        found += _overtaken_at_ms(of, of.kept_ms, now_ms, appended_ms)
    return round(min(found)) if found else None


def _overtaken_at_ms(
    of: Backlog, kept_ms: int, now_ms: int, appended_ms: Callable[[int], int | None]
) -> Iterator[float]:
    """When the first record goes that is not reached before, found by samples and then by halves; else nothing."""
    left = of.end - of.position

    def reached_ms(ahead: int) -> float:
        return now_ms + 1000 * ahead / of.read_per_s if of.read_per_s > 0 else inf

    def goes_ms(ahead: int) -> float:
        at_ms = appended_ms(of.position + ahead)
        return inf if at_ms is None else at_ms + kept_ms

    if goes_ms(0) >= reached_ms(left):
        # The oldest one stays until all are read.
        return
    places = [left * number // _EXPIRY_SAMPLES for number in range(_EXPIRY_SAMPLES)]
    lost = next((ahead for ahead in places if goes_ms(ahead) < reached_ms(ahead)), None)
    if lost is None:
        return
    held = max((ahead for ahead in places if ahead < lost), default=lost)
    while lost - held > max(1, left // _EXPIRY_PRECISION):
        middle = (held + lost) // 2
        held, lost = (held, middle) if goes_ms(middle) < reached_ms(middle) else (middle, lost)
    yield goes_ms(lost)


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
