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


class Committed:
    """The attempts that count, of the batches that are known; more may be added."""

    def __init__(self) -> None:
        """No batch is known yet."""
        self._last = -1
        self._counted = np.array([], dtype=np.int64)
        self._keys: dict[int, npt.NDArray[np.int64]] = {}

    @property
    def last(self) -> int:
        """The last batch that is known; -1 before the first."""
        return self._last

    def add(self, records: Iterable[BatchRecord]) -> None:
        """Know more batches, or that one ran again."""
        for record in records:
            numbers = [(record.epoch << ATTEMPT_BITS) | output.attempt for output in record.outputs]
            self._keys[record.batch] = np.unique(np.array(numbers, dtype=np.int64))
            self._last = max(self._last, record.batch)

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
        unknown = np.flatnonzero(batches > self._last)
        decided = int(unknown[0]) if unknown.size else batches.size
        writers = found.sequence >> ROW_BITS
        counts = np.zeros(batches.size, dtype=np.bool_)
        for batch in np.unique(batches[:decided]).tolist():
            of = batches == batch
            counts |= of & np.isin(writers, self._keys.get(batch, self._counted))
        counts[decided:] = False
        return counts, decided
