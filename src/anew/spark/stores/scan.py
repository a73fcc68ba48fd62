"""The scan of a repush: what each task reads of base and feeds, and the blocks that it sends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from anew.api.location import LogLocation
from anew.core.blocks import BLOCKS
from anew.core.feed import FeedPartition, Feeds
from anew.core.stores.plan import LogSplit, Plan
from anew.log.open import BUILD_TIMEOUT_SECONDS
from anew.segments.base import open_base
from anew.segments.manifest import Manifest
from anew.spark.failures import told_to_driver
from anew.spark.stores.basescan import BasePiece, base_pieces, scan_base
from anew.spark.stores.frames import spark_schema
from anew.spark.stores.logsource import LogScan, group_splits, scan_splits
from anew.spark.stores.shuffle import Destination, packed
from anew.spark.worker import begin_task, required_build

_TASKS_PER_CORE = 1
_RECORDS_OF_A_RUN = 100_000


@dataclass(frozen=True, slots=True)
class Scan:
    """What crosses to the executors.

    Attributes:
        deep_store: Root of the source's deep store.
        log: How splits are read.
        tasks: What each task reads: log splits, or pieces of the base.
    """

    deep_store: str
    log: LogScan
    tasks: tuple[tuple[LogSplit, ...] | tuple[BasePiece, ...], ...]

    def is_of_base(self, index: int) -> bool:
        """Whether a task reads base files, whose rows are sorted."""
        return all(isinstance(part, BasePiece) for part in self.tasks[index])

    def rows(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task and its reports, columns `anew.spark.stores.frames.SCANNED`."""
        task = self.tasks[index]
        splits = [part for part in task if isinstance(part, LogSplit)]
        pieces = [part for part in task if isinstance(part, BasePiece)]
        return chain(self._base_rows(pieces), scan_splits(self.log, splits))

    def _base_rows(self, pieces: list[BasePiece]) -> Iterator[pa.RecordBatch]:
        with open_base(self.deep_store, self.log.location, BUILD_TIMEOUT_SECONDS) as base:
            yield from scan_base(base, pieces)


def plan_scan(
    plan: Plan, deep_store: str, location: LogLocation, source: Manifest | None, feeds: Feeds, cores: int
) -> Scan:
    """Deal the plan's log ranges, and the base where a manifest is given, to about two tasks per core, one of each.

    No task reads more records than the plan allows (case B7). Those of the log come first, as they take longest.
    """
    splits, wanted = plan.splits, _TASKS_PER_CORE * cores
    log_tasks = [tuple(group) for group in group_splits(splits.ranges, splits.max_records, wanted)]
    base_tasks = [] if source is None else base_pieces(source.parts, splits.max_records, wanted)
    starts = {FeedPartition(split.feed, split.partition): 0 for split in splits.ranges}
    starts = {at: plan.source.start.get(at, 0) for at in starts}
    log = LogScan(location, feeds, starts, splits.combiner)
    return Scan(deep_store, log, (*log_tasks, *base_tasks))


def runs_of_scan(plan: Plan, source: Manifest | None) -> int:
    """About how many sorted runs that may overlap a scan makes: each part of the base is one, and a log range a few."""
    records = sum(split.end - split.begin for split in plan.splits.ranges)
    return (0 if source is None else len(source.parts)) + -(-records // _RECORDS_OF_A_RUN) + len(plan.splits.ranges)


def scan_blocks(spark: SparkSession, scan: Scan, destination: Destination) -> DataFrame:
    """What a scan finds, as blocks (columns `anew.core.blocks.BLOCKS`)."""
    count = max(1, len(scan.tasks))
    # A row for each task: nothing of it is used.
    return spark.range(0, count, 1, count).mapInArrow(_scanning(scan, destination), spark_schema(BLOCKS))


def _scanning(scan: Scan, destination: Destination) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    build = required_build()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        context = begin_task(build)
        if scan.tasks:
            index = context.partitionId()
            with told_to_driver():
                yield from packed(scan.rows(index), destination, is_sorted=scan.is_of_base(index))

    return run
