"""How rows get from the tasks that scan to the tasks that merge: as sorted blocks (`anew.core.blocks`).

A scan's reports travel the same way, as blocks that hold no rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anew.core.arrow import bytes_list
from anew.core.blocks import BLOCKS, RUN_BYTES, block_bytes, cut, runs_of, unpack
from anew.core.errors import Failed
from anew.core.partition import Partitions, sub_partitions_of, units_of
from anew.core.partitioning import partitioner_of
from anew.core.rows import SORT_COLUMNS
from anew.core.stores.copartition import Groups
from anew.core.stores.store import Frozen
from anew.spark.stores.frames import is_report

_PORTION_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Destination:
    """Where rows go.

    Attributes:
        config: The frozen configuration that places keys.
        groups: Which sub-partitions one task makes; None: each has its own task.
        size_bytes: About how large a block is.
    """

    config: Frozen
    groups: Groups | None
    size_bytes: int

    @classmethod
    def of(cls, config: Frozen, groups: Groups | None, runs: int) -> Destination:
        """The destination of about so many sorted runs, any of which may overlap any other."""
        return cls(config, groups, block_bytes(runs))

    @property
    def count(self) -> int:
        """How many tasks receive."""
        return self.config.sub_partitions if self.groups is None else self.groups.count

    def places(self, keys: pa.BinaryArray) -> Partitions:
        """The task that each key goes to, int32 of shape (n,), in [0, count).

        Raises:
            InvalidRequest: ``bad_partitioner``: a user's own answered wrongly; the key is named.
        """
        partitions = partitioner_of(self.config).of_all(keys)
        factor = self.config.amplification_factor
        if self.groups is not None:
            partitions = partitions % self.groups.partitions
            return (
                partitions * self.groups.sub_partitions + sub_partitions_of(keys, factor) % self.groups.sub_partitions
            )
        return units_of(partitions, keys, factor)


def packed(
    scanned: Iterable[pa.RecordBatch], destination: Destination, *, is_sorted: bool = False
) -> Iterator[pa.RecordBatch]:
    """What a task scanned (columns `anew.spark.stores.frames.SCANNED`) as blocks, and its reports at the end.

    Where it is sorted already, so that runs follow one another and do not overlap, a run need be no larger than to give
    each receiver a block.

    Raises:
        InvalidRequest: ``bad_partitioner``.
    """
    reports: list[bytes] = []
    portion = max(1, _PORTION_BYTES // destination.size_bytes)
    run_bytes = min(RUN_BYTES, destination.count * destination.size_bytes) if is_sorted else RUN_BYTES
    for run in runs_of(_without_reports(scanned, reports), run_bytes):
        keys: Any = run.column("key")
        blocks = cut(run, destination.places(keys), destination.size_bytes)
        for first in range(0, blocks.num_rows, portion):
            yield blocks.slice(first, portion)
    if reports:
        yield _as_blocks(reports)


def received(batches: Iterable[pa.RecordBatch], index: int, reports: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """The rows of blocks that came out of the shuffle, block by block; ``reports`` gets what scans said.

    Raises:
        Failed: ``wrong_partition``: a block of another task.
    """
    for batch in batches:
        places = batch.column("place").to_numpy()
        if (places != index).any():
            raise Failed(
                "wrong_partition",
                "the shuffle brought rows of another partition",
                found=sorted({int(place) for place in places[:1000]}),
                expected=index,
            )
        for constants, rows in zip(batch.column("constants"), batch.column("rows"), strict=True):
            if constants.is_valid:
                # Copies: a block that is held for long must not keep the whole batch.
                yield unpack(constants.as_py(), rows.as_py())
            else:
                reports.append(json.loads(rows.as_py()))


def delivered(blocks: DataFrame, count: int) -> DataFrame:
    """Blocks where they belong, in ``count`` Spark partitions, in the order that `anew.core.blocks` wants."""
    return blocks.repartitionById(count, F.col("place")).sortWithinPartitions(*SORT_COLUMNS)


def _without_reports(scanned: Iterable[pa.RecordBatch], reports: list[bytes]) -> Iterator[pa.RecordBatch]:
    for rows in scanned:
        if is_report(rows):
            reports += bytes_list(rows.column("value"))
        else:
            yield rows


def _as_blocks(reports: list[bytes]) -> pa.RecordBatch:
    empty: dict[str, Any] = {
        "place": 0,
        "key": b"",
        "origin": b"",
        "incarnation": 0,
        "feed_partition": 0,
        "offset": 0,
        "constants": None,
    }
    return pa.RecordBatch.from_pylist([{**empty, "rows": report} for report in reports], schema=BLOCKS)
