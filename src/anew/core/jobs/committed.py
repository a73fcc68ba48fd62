"""Which records of a generation's output count: those of the attempts that the records of its batches name.

What a task attempt appended that died, or a driver whose batch was run again, lies in the output too. A reader that
takes what is committed passes it over, and gives nothing of a batch that is not recorded yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from anew.core.identity import ATTEMPT_BITS, ROW_BITS, split_identities
from anew.core.jobs.batch import BatchRecord
from anew.core.plan import Value


class CountedBatch(Value):
    """What of a batch counts.

    Attributes:
        batch: Its number.
        epoch: Of the driver that ran it.
        attempts: Of its tasks, those whose records count.
    """

    batch: int
    epoch: int
    attempts: tuple[int, ...]


def counted(record: BatchRecord) -> CountedBatch:
    """What the record of a batch says of its output."""
    attempts = tuple(output.attempt for output in record.outputs)
    return CountedBatch(batch=record.batch, epoch=record.epoch, attempts=attempts)


class Committed:
    """The attempts that count, of the batches that are known."""

    def __init__(self) -> None:
        """No batch is known yet."""
        self._last = -1
        self._final = False
        self._none = np.array([], dtype=np.int64)
        self._keys: dict[int, npt.NDArray[np.int64]] = {}

    @property
    def last(self) -> int:
        """The last batch that is known; -1 before the first."""
        return self._last

    def add(self, batches: Iterable[CountedBatch]) -> None:
        """Know more batches."""
        for each in batches:
            numbers = [(each.epoch << ATTEMPT_BITS) | attempt for attempt in each.attempts]
            self._keys[each.batch] = np.unique(np.array(numbers, dtype=np.int64))
            self._last = max(self._last, each.batch)

    def end(self) -> None:
        """No further batch will be recorded: what was appended of one does not count."""
        self._final = True

    def unknown(self, batches: npt.NDArray[np.int32]) -> range:
        """The numbers from the least to the greatest of those of ``batches`` about which nothing is known; or none."""
        found = [batch for batch in np.unique(batches).tolist() if batch not in self._keys and not self._is_over(batch)]
        return range(found[0], found[-1] + 1) if found else range(0)

    def mask(self, origins: Any) -> tuple[npt.NDArray[np.bool_], int]:
        """Which records count, and how many of the first ones are decided.

        Args:
            origins: What the records carry as origins, in the order of the log, shape (n,).

        Returns:
            The records that count, shape (n,), and the number of those before the first of a batch that is not known:
            from there on nothing is decided yet.
        """
        found = split_identities(origins)
        batches = found.batch.astype(np.int64)
        unknown = np.flatnonzero((batches > self._last) & (not self._final))
        decided = int(unknown[0]) if unknown.size else batches.size
        writers = found.sequence >> ROW_BITS
        counts = np.zeros(batches.size, dtype=np.bool_)
        for batch in np.unique(batches[:decided]).tolist():
            of = batches == batch
            counts |= of & np.isin(writers, self._keys.get(batch, self._none))
        counts[decided:] = False
        return counts, decided

    def _is_over(self, batch: int) -> bool:
        return self._final and batch > self._last
