"""What a replica is to apply of several feed partitions at once, and which positions that moves (rule R5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.core.arrow import concat, in_portions
from anew.core.feed import FeedPartition

Offsets = npt.NDArray[np.int64]

BATCH_RECORDS = 4_000
BATCH_BYTES = 1024 * 1024


class Portion(NamedTuple):
    """What a replica is to apply of one feed partition.

    Attributes:
        at: The feed partition.
        rows: Columns `anew.core.rows.ROWS`, in the log's order, values uncompressed, keys of the replica alone, none
            below the version's start.
        offsets: Where each row lies in the log, ascending, int64 of shape (rows,).
        next_offset: The position there afterwards.
    """

    at: FeedPartition
    rows: pa.RecordBatch
    offsets: Offsets
    next_offset: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are written together.

    Attributes:
        rows: As those of a `Portion`, of one feed partition after the other.
        offsets: Where each row lies in its feed partition, shape (rows,).
        moved: The positions once they are written.
        places: The feed partition that begins at which row, in order.
    """

    rows: pa.RecordBatch
    offsets: Offsets
    moved: dict[FeedPartition, int]
    places: list[tuple[int, FeedPartition]]

    def place(self, row: int) -> tuple[FeedPartition, int]:
        """Where a row lies: its feed partition and its offset."""
        at = [at for begin, at in self.places if begin <= row][-1]
        return at, int(self.offsets[row])


def batches(portions: Sequence[Portion]) -> Iterator[Batch]:
    """Portions of feed partitions that differ, all with rows, in bounded batches: as few as there can be."""
    if not portions:
        return
    together = portions[0].rows if len(portions) == 1 else concat([portion.rows for portion in portions])
    all_offsets = np.concatenate([portion.offsets for portion in portions])
    ends = np.cumsum([portion.rows.num_rows for portion in portions]).tolist()
    begins = [0, *ends[:-1]]
    first = 0
    for rows in in_portions(together, BATCH_RECORDS, BATCH_BYTES):
        after = first + rows.num_rows
        offsets = all_offsets[first:after]
        moved, places = dict[FeedPartition, int](), list[tuple[int, FeedPartition]]()
        for portion, begin, end in zip(portions, begins, ends, strict=True):
            if begin < after and first < end:
                is_whole = end <= after
                moved[portion.at] = portion.next_offset if is_whole else int(offsets[-1]) + 1
                places.append((max(begin - first, 0), portion.at))
        yield Batch(rows, offsets, moved, places)
        first = after
