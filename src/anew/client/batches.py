"""What writers have in common: rows that wait for their partition's log, appended in batches that are made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import pyarrow as pa

from anew.core.errors import InvalidRequest, OutcomeUnknown, PartlyDone
from anew.log.interface import Appended, TopicPartition, identified

B = TypeVar("B")


class Batches(Generic[B]):
    """Rows of several partitions. Not safe to use from several threads.

    A batch keeps its id over all attempts, so that flushing again after an error is safe: the log finds one that landed
    before. A batch that the log refuses is dropped whole, all others are still written.
    """

    def __init__(
        self,
        new: Callable[[], B],
        batch: Callable[[B], pa.RecordBatch],
        append: Callable[[int, pa.RecordBatch], None],
    ) -> None:
        """Nothing waits yet.

        Args:
            new: An empty buffer.
            batch: The rows of a buffer as a log takes them.
            append: Appends a batch to a partition, and notes what became of it.
        """
        self._new, self._batch, self._append = new, batch, append
        self._buffers: dict[int, B] = {}
        self._sent: dict[int, pa.RecordBatch] = {}

    def of(self, partition: int) -> B:
        """Where a partition's rows wait."""
        buffer = self._buffers.get(partition)
        if buffer is None:
            buffer = self._buffers[partition] = self._new()
        return buffer

    def flush(self) -> None:
        """Append all that waits, partition by partition.

        Raises:
            InvalidRequest, PartlyDone: The first refusal; what was refused is dropped, all others were written.
            AnewError: What else ``append`` raises; flush again.
        """
        refusal: InvalidRequest | PartlyDone | None = None
        for partition in sorted({*self._sent, *self._buffers}):
            try:
                self._append_all(partition)
            except (InvalidRequest, PartlyDone) as error:
                refusal = error if refusal is None else refusal
        if refusal is not None:
            raise refusal

    def _append_all(self, partition: int) -> None:
        """Append what was sent before without an answer, then what came since."""
        problem: InvalidRequest | PartlyDone | None = None
        while partition in self._sent or partition in self._buffers:
            if partition not in self._sent:
                self._sent[partition] = identified(self._batch(self._buffers.pop(partition)))
            try:
                self._append(partition, self._sent[partition])
            except (InvalidRequest, PartlyDone) as error:
                problem = error if problem is None else problem
            del self._sent[partition]
        if problem is not None:
            raise problem


def appended(
    append: Callable[[TopicPartition, pa.RecordBatch], Appended], at: TopicPartition, records: pa.RecordBatch
) -> Appended:
    """Append a batch that has an id; once more where the answer was lost, see `anew.log.interface.Log.append`."""
    try:
        return append(at, records)
    except OutcomeUnknown:
        # Under the same id: the log looks for the first attempt, and appends once it is known that it failed.
        return append(at, records)
