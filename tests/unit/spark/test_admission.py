"""Where batches end that are aligned in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from anew.spark.jobs.admission import Admission, Look

Numbers = npt.NDArray[np.int64]


def _looks(times_ms: Mapping[int, Sequence[int]], seen: list[tuple[int, int, int]]) -> Look:
    def look(parts: Mapping[int, tuple[int, int]]) -> dict[int, tuple[Numbers, Numbers]]:
        seen.extend((partition, *part) for partition, part in parts.items())
        return {
            partition: (np.arange(begin, end), np.array(times_ms[partition][begin:end], np.int64))
            for partition, (begin, end) in parts.items()
        }

    return look


def _batches(times_ms: Mapping[int, Sequence[int]], most: int) -> list[dict[int, int]]:
    """Where each batch ends, until all is read."""
    admission, ends = Admission(_looks(times_ms, [])), {partition: len(of) for partition, of in times_ms.items()}
    found = [dict.fromkeys(ends, 0)]
    while found[-1] != ends:
        found.append(admission.upto(found[-1], ends, most))
    return found[1:]


def test_partitions_come_to_a_time_together() -> None:
    """One has ten times the records of the other for the same hours: it is read ten times as fast."""
    times = {0: list(range(0, 1_000)), 1: list(range(0, 1_000, 10))}
    assert _batches(times, 110) == [{0: number * 100, 1: number * 10} for number in range(1, 11)]


def test_what_is_written_at_once_is_read_side_by_side() -> None:
    """Of records of one time any part may be read first: all partitions give theirs."""
    assert _batches({0: [7] * 300, 1: [7] * 100}, 100)[0] == {0: 75, 1: 25}


def test_a_partition_waits_before_what_is_young() -> None:
    """What lies behind a record that is ahead of all others is read after these, as it was seen after it."""
    assert _batches({0: [1, 90, 2, 3], 1: [10, 20, 30, 40]}, 3) == [{0: 1, 1: 2}, {0: 2, 1: 4}, {0: 4, 1: 4}]


def test_each_record_is_looked_at_once() -> None:
    """Also where a partition is far ahead; a reader that begins elsewhere looks again from there."""
    seen = list[tuple[int, int, int]]()
    times = {0: list(range(10_000)), 1: [0, 20_000]}
    admission, ends = Admission(_looks(times, seen)), {0: 10_000, 1: 2}
    at = {0: 0, 1: 0}
    for _ in range(5):
        at = admission.upto(at, ends, 1_000)
    assert at == {0: 4_999, 1: 1}
    assert sum(end - begin for partition, begin, end in seen if partition == 0) <= 8_000
    assert len({begin for partition, begin, _ in seen if partition == 0}) == len([of for of in seen if of[0] == 0])
    assert admission.upto({0: 0, 1: 0}, ends, 1_000) == {0: 999, 1: 1}


def test_what_no_reader_sees_is_passed_over() -> None:
    """Offsets without a record at the end of a partition do not keep it from its end."""
    admission = Admission(lambda _: {0: (np.arange(3), np.array([5, 5, 5]))})
    assert admission.upto({}, {0: 9}, 100) == {0: 9}
