"""Sorting more rows than memory should hold: sorted runs lie in a file as blocks, and meet again in a merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import pyarrow as pa

from anew.core.blocks import cut, merge_blocks, runs_of, unpack
from anew.core.reduce import sort_rows
from anew.core.rows import SORT_COLUMNS

SORTED_BYTES = 64 << 20
"""About how much is sorted at once: sorting takes two more times as much."""
_BLOCKS_OF_A_RUN = 128
"""At least: a merge holds one of each run, so that it needs as much memory as sorting only beyond so many runs."""


def sort_spilling(
    batches: Iterable[pa.RecordBatch], open_file: Callable[[], IO[bytes]], sorted_bytes: int = SORTED_BYTES
) -> Iterator[pa.RecordBatch]:
    """All rows in the order of `SORT_COLUMNS`, in batches.

    Held in memory: about ``sorted_bytes`` of rows three times, and a block of each run.

    Args:
        batches: At least the columns `anew.core.rows.ROWS`, the same in all.
        open_file: An empty file to write and read, which nobody else has; asked for when there is more than one run.
        sorted_bytes: How much is sorted at once: a run.
    """
    runs = runs_of(batches, sorted_bytes)
    first, second = next(runs, None), next(runs, None)
    if first is None:
        return
    if second is None:
        yield sort_rows(first)
        return
    with open_file() as file:
        spill = _Spill(file, max(1, sorted_bytes // _BLOCKS_OF_A_RUN))
        for run in (first, second):
            spill.add(run)
        del first, second
        for run in runs:
            spill.add(run)
        yield from merge_blocks(spill.blocks())


@dataclass(frozen=True, slots=True)
class _Block:
    """Where a block lies; ``first`` are the sort columns of its first row."""

    first: tuple[Any, ...]
    constants: bytes
    begin: int
    size_bytes: int


@dataclass(slots=True)
class _Spill:
    """Sorted runs in a file."""

    file: IO[bytes]
    block_bytes: int
    _blocks: list[_Block] = field(default_factory=list)

    def add(self, run: pa.RecordBatch) -> None:
        """Sort a run and write it."""
        cut_run = cut(run, np.zeros(run.num_rows, dtype=np.int32), self.block_bytes)
        firsts = zip(*(cut_run.column(name).to_pylist() for name in SORT_COLUMNS), strict=True)
        constants: bytes = cut_run.column("constants")[0].as_py()
        for first, rows in zip(firsts, cut_run.column("rows"), strict=True):
            buffer = rows.as_buffer()
            self._blocks.append(_Block(first, constants, self.file.tell(), buffer.size))
            self.file.write(buffer)

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """All blocks in the order of their first rows."""
        for block in sorted(self._blocks, key=lambda block: block.first):
            self.file.seek(block.begin)
            yield unpack(block.constants, self.file.read(block.size_bytes))
