"""Which records of an output count: dead attempts, older epochs, and batches that are not recorded yet do not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anew.core.identity import identified_origins, sequences
from anew.core.jobs.batch import TaskOutput
from anew.core.jobs.committed import Committed, CountedBatch, counted
from anew.core.stamp import Origin, OriginKind
from anew.testing.job_builders import a_batch

_ORIGIN = Origin(OriginKind.JOB, "delay_class", 1)


def _written(*parts: tuple[int, int, int, int]) -> pa.Array:  # type: ignore[type-arg]  # binary
    """(batch, epoch, attempt, rows), in the order in which they were appended."""
    found = [identified_origins(_ORIGIN, b, sequences(e, a, 0, n)) for b, e, a, n in parts]
    return pa.concat_arrays(found)


def _record(batch: int, epoch: int, *attempts: int) -> CountedBatch:
    outputs = tuple(TaskOutput(task=task, attempt=attempt, rows=1) for task, attempt in enumerate(attempts))
    return counted(a_batch(batch, epoch, outputs=outputs))


def test_only_attempts_that_a_record_names_count() -> None:
    """A dead attempt, a batch of an older epoch, and what has no identity are passed over."""
    committed = Committed()
    committed.add([_record(0, 1, 7, 9), _record(1, 2, 3)])
    origins = _written((0, 1, 7, 2), (0, 1, 8, 1), (0, 1, 9, 1), (1, 1, 3, 1), (1, 2, 3, 2))
    mask, decided = committed.mask(origins)
    assert mask.tolist() == [True, True, False, True, False, True, True]
    assert (decided, committed.last) == (7, 1)
    plain, _ = committed.mask(pa.array([b"", _ORIGIN.encoded], pa.binary()))
    assert not plain.any()


def test_nothing_is_decided_of_a_batch_that_is_not_recorded() -> None:
    """From its first record on nothing is given, also not what follows it of batches that are; then all of it is."""
    committed = Committed()
    committed.add([_record(0, 1, 1)])
    origins = _written((0, 1, 1, 1), (1, 1, 2, 1), (0, 1, 1, 1))
    mask, decided = committed.mask(origins)
    assert (mask.tolist(), decided) == ([True, False, False], 1)
    committed.add([_record(1, 1, 2)])
    mask, decided = committed.mask(origins)
    assert (mask.tolist(), decided) == ([True, True, True], 3)


def test_what_was_appended_of_a_batch_that_comes_no_more_does_not_count() -> None:
    """A generation that is over will record nothing more: its readers wait for nothing."""
    committed = Committed()
    committed.add([_record(0, 1, 1)])
    origins = _written((0, 1, 1, 1), (1, 1, 2, 1), (0, 1, 1, 1))
    committed.end()
    mask, decided = committed.mask(origins)
    assert (mask.tolist(), decided) == ([True, False, True], 3)


def test_what_is_to_be_asked_is_what_is_not_known() -> None:
    """From the least to the greatest batch that is not known; of a generation that is over none beyond its last."""
    committed = Committed()
    batches = np.array([5, 2, 0, 9], dtype=np.int32)
    assert committed.unknown(batches) == range(10)
    committed.add([_record(0, 1, 1), _record(2, 1, 1)])
    assert committed.unknown(batches) == range(5, 10)
    committed.end()
    assert committed.unknown(batches) == range(0)
