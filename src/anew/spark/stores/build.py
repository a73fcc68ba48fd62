"""The build stage: one Spark job from the sources of a plan to the base files of the new version."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anew.api.location import LogLocation
from anew.codec.compression import Compressor
from anew.core.blocks import RUN_BYTES
from anew.core.dropping import DropFloors
from anew.core.errors import AnewError, Failed
from anew.core.feed import Feeds
from anew.core.ledger import Entry, Ledger, total_ledger
from anew.core.stores.copartition import Groups, feed_splits, groups_of
from anew.core.stores.plan import Plan
from anew.segments.dictionary import StoredDictionary
from anew.segments.manifest import BasePart, Manifest, SubPartition
from anew.spark.failures import reason_of
from anew.spark.inputcolumns import EncodeTask, scan_files
from anew.spark.stores.account import check_scans
from anew.spark.stores.logsource import LogScan
from anew.spark.stores.mergewrite import REPORT_SCHEMA, BaseGroups, FeedGroups, MergeTask, TaskReport, merge_and_write
from anew.spark.stores.outputs import BaseTarget
from anew.spark.stores.pushscan import encode_blocks
from anew.spark.stores.scan import plan_scan, runs_of_scan, scan_blocks
from anew.spark.stores.shuffle import Destination, delivered
from anew.spark.stores.sources import Sources

_EXPANSION = 4
"""How many bytes of rows a byte of a push's files may become."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a build reads and writes: source and target are two settings, never taken for one another."""

    source_deep_store: str
    source_log: LogLocation
    target: BaseTarget


@dataclass(frozen=True, slots=True)
class Codecs:
    """How values were compressed, and are to be; no source for a push."""

    source: Compressor | None
    target: Compressor


@dataclass(frozen=True, slots=True)
class Built:
    """What the tasks made; nothing of it counts before it is sealed.

    Attributes:
        sub_partitions: All of them, also the empty ones.
        ledger: The whole account, balanced.
        duplicates: Examples of keys that came twice in a push, hex.
        scans: The reports of a push's scanning tasks (misfits and null keys).
        dictionary: The dictionary of zstd_dict as it lies in the target's deep store.
    """

    sub_partitions: tuple[SubPartition, ...]
    ledger: Ledger
    duplicates: tuple[str, ...] = ()
    scans: tuple[dict[str, Any], ...] = ()
    dictionary: StoredDictionary | None = None


def build_repush(
    spark: SparkSession, plan: Plan, place: Place, codecs: Codecs, source: Manifest, feeds: Feeds
) -> Built:
    """Merge a version's base with the feed records of the plan, on the path that the plan names.

    Raises:
        Failed: ``rows_lost``, ``split_missing``, ``build_failed``.
    """
    task = MergeTask(
        target=place.target,
        config=plan.target.config,
        source=codecs.source,
        codec=codecs.target,
        feeds=Sources.of(feeds.feeds),
        floors=repush_floors(plan),
        base=_base_groups(plan, place, source) if plan.path == "copartitioned" else None,
    )
    if task.base is not None:
        task = replace(task, feed=_feed_groups(plan, place, task.base, feeds))
    if task.feed is not None:
        # A row for each task: nothing of it is used, the tasks read everything themselves.
        ordered = spark.range(0, task.count, 1, task.count).toDF("task")
    else:
        groups = None if task.base is None else task.base.groups
        ordered = delivered(
            repush_blocks(spark, plan, place, source if groups is None else None, feeds, groups), task.count
        )
    reports = run_merge(ordered, task)
    base = Entry(
        count=sum(part.rows + part.tombstones for part in source.parts),
        hash=sum(part.fingerprint for part in source.parts) % (1 << 64),
    )
    return _built(reports, check_scans(reports, {"base": base}, {split.id for split in plan.splits.ranges}))


def build_push(spark: SparkSession, plan: Plan, place: Place, codecs: Codecs, task: EncodeTask) -> Built:
    """Encode the rows of a push's files.

    Raises:
        InvalidRequest: ``unreadable_input``.
        Failed: ``rows_lost``, ``build_failed``.
    """
    if plan.source.input is None:
        raise AssertionError("a push's plan names its input")
    scanned = scan_files(spark, plan.source.input, task)
    merge = MergeTask(
        target=place.target,
        config=plan.target.config,
        source=None,
        codec=codecs.target,
        feeds=Sources.of(()),
        floors=DropFloors(ttl_floor_ms=plan.target.ttl_floor_ms),
        refuse_duplicates=True,
    )
    runs = 1 + plan.estimate.bytes * _EXPANSION // RUN_BYTES
    blocks = encode_blocks(scanned, task, Destination.of(merge.config, None, runs))
    reports = run_merge(delivered(blocks, merge.count), merge)
    return _built(reports, check_scans(reports, {}, set()))


def build_empty(plan: Plan) -> Built:
    """An empty version: every sub-partition is there and holds nothing (case C9)."""
    config = plan.target.config
    parts = tuple(
        SubPartition(partition=partition, sub_partition=sub)
        for partition in range(config.partitions)
        for sub in range(config.amplification_factor)
    )
    return Built(parts, Ledger())


def repush_floors(plan: Plan) -> DropFloors:
    """What the winners of a repush are judged by."""
    return DropFloors(plan.source.tombstone_floor_ms, plan.target.ttl_floor_ms, plan.target.tombstone_floor_ms)


def source_floors(plan: Plan) -> DropFloors:
    """What a reader of the source version does not see."""
    return DropFloors(plan.source.tombstone_floor_ms, plan.source.ttl_floor_ms)


def repush_blocks(
    spark: SparkSession,
    plan: Plan,
    place: Place,
    source: Manifest | None,
    feeds: Feeds,
    groups: Groups | None = None,
) -> DataFrame:
    """All rows that a repush shuffles, as blocks: the base's, if a manifest is given, and the feeds'."""
    destination = Destination.of(plan.target.config, groups, runs_of_scan(plan, source))
    cores = spark.sparkContext.defaultParallelism
    scan = plan_scan(plan, place.source_deep_store, place.source_log, source, feeds, cores)
    return scan_blocks(spark, scan, destination)


def run_merge(ordered: DataFrame, task: MergeTask) -> list[TaskReport]:
    """Run the job; one report per task comes back as a row.

    Raises:
        Failed: ``build_failed`` with the task's own reason, or what the task raised of ours.
    """
    try:
        rows = ordered.mapInArrow(merge_and_write(task), REPORT_SCHEMA).collect()
    except AnewError:
        raise
    except Exception as error:
        raise reason_of(error) from error
    reports = [TaskReport.model_validate_json(row["report"]) for row in rows]
    found = sorted(report.index for report in reports)
    if found != list(range(task.count)):
        raise Failed(
            "partition_missing",
            "not every partition was made exactly once",
            found=found[:20],
            expected=f"0 … {task.count - 1}",
        )
    return sorted(reports, key=lambda report: report.index)


def _base_groups(plan: Plan, place: Place, source: Manifest) -> BaseGroups:
    groups = groups_of(source.config, plan.target.config)
    runs: list[list[tuple[BasePart, ...]]] = [[] for _ in range(groups.count)]
    for sub in source.sub_partitions:
        if len(sub.runs) > 1:
            raise AssertionError("one run is written; several may share keys, which the merge of runs does not expect")
        runs[groups.of(sub.partition, sub.sub_partition)] += sub.runs
    return BaseGroups(place.source_deep_store, place.source_log, groups, tuple(tuple(group) for group in runs))


def _feed_groups(plan: Plan, place: Place, base: BaseGroups, feeds: Feeds) -> FeedGroups | None:
    asked = plan.splits
    splits = feed_splits(base.groups, plan.target.config, feeds.feeds, asked.ranges, asked.max_records)
    if splits is None:
        return None
    return FeedGroups(LogScan(place.source_log, feeds, plan.source.start, asked.combiner), splits)


def _built(reports: list[TaskReport], before_shuffle: Ledger) -> Built:
    ledger = total_ledger([report.ledger for report in reports]) + before_shuffle
    ledger.check()
    made = sorted((made for report in reports for made in report.made), key=lambda m: (m.partition, m.sub_partition))
    parts = tuple(
        SubPartition(partition=m.partition, sub_partition=m.sub_partition, runs=() if m.part is None else ((m.part,),))
        for m in made
    )
    duplicates = tuple(key for report in reports for key in report.duplicates)
    scans = tuple(scan for report in reports for scan in report.scans)
    return Built(parts, ledger, duplicates, scans)
