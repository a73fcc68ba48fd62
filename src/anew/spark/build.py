"""The build stage: one Spark job from the sources of a plan to the base files of the new version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anew.api.models import LogLocation
from anew.core.errors import AnewError, Failed
from anew.core.feed import Feed
from anew.core.ledger import Entry, Ledger, total_ledger
from anew.core.plan import Plan
from anew.deepstore.open import open_deep_store
from anew.segments.manifest import Manifest, SubPartition
from anew.spark.basescan import scan_base
from anew.spark.failures import reason_of
from anew.spark.frames import partitioned_and_sorted
from anew.spark.logsource import scan_log
from anew.spark.mergewrite import REPORT_SCHEMA, MergeTask, TaskReport, check_scans, merge_and_write
from anew.spark.pushscan import EncodeTask, encode_rows, scan_files


@dataclass(frozen=True, slots=True)
class Place:
    """Where a build reads and writes: source and target are two settings, never taken for one another."""

    source_deep_store: str
    source_log: LogLocation
    target_deep_store: str
    directory: str


@dataclass(frozen=True, slots=True)
class Built:
    """What the tasks made; nothing of it counts before it is sealed.

    Attributes:
        sub_partitions: One per partition, also of empty ones.
        ledger: The whole account, balanced.
        duplicates: Examples of keys that came twice in a push, hex.
        scans: The reports of a push's scanning tasks (misfits and null keys).
    """

    sub_partitions: tuple[SubPartition, ...]
    ledger: Ledger
    duplicates: tuple[str, ...]
    scans: tuple[dict[str, Any], ...]


def build_repush(spark: SparkSession, plan: Plan, place: Place, source: Manifest, feeds: tuple[Feed, ...]) -> Built:
    """Merge a version's base with the feed records of the plan.

    Raises:
        Failed: ``rows_lost``, ``split_missing``, ``build_failed``.
    """
    scanned = repush_rows(spark, plan, place, source, feeds)
    codec = source.config.compression
    task = MergeTask(place.target_deep_store, place.directory, codec, plan.target.config.compression, False)
    reports = run_merge(scanned, plan, task, {feed.incarnation: feed.id for feed in feeds})
    base = Entry(
        count=sum(file.rows + file.tombstones for file in source.files),
        hash=sum(file.fingerprint for file in source.files) % (1 << 64),
    )
    skipped = check_scans(reports, {"base": base}, {split.id for split in plan.splits.ranges})
    return _built(plan, reports, skipped)


def build_push(spark: SparkSession, plan: Plan, place: Place, task: EncodeTask, header: list[str] | None) -> Built:
    """Encode the rows of a push's files.

    Raises:
        InvalidRequest: ``missing_column``, ``unreadable_input``.
        Failed: ``rows_lost``, ``build_failed``.
    """
    if plan.source.input is None:
        raise AssertionError("a push's plan names its input")
    scanned = encode_rows(scan_files(spark, plan.source.input, task, header), task)
    merge = MergeTask(place.target_deep_store, place.directory, None, plan.target.config.compression, True)
    reports = run_merge(scanned, plan, merge, {})
    return _built(plan, reports, check_scans(reports, {}, set()))


def repush_rows(spark: SparkSession, plan: Plan, place: Place, source: Manifest, feeds: tuple[Feed, ...]) -> DataFrame:
    """All rows that a repush reads: the base's and the feeds'."""
    store = open_deep_store(place.source_deep_store)
    base = scan_base(spark, store, source, plan.splits.max_records)
    if not plan.splits.ranges:
        return base
    return base.unionByName(scan_log(spark, plan.source, feeds, place.source_log, plan.splits))


def run_merge(scanned: DataFrame, plan: Plan, task: MergeTask, feeds: dict[int, str]) -> list[TaskReport]:
    """Run the job; one report per partition comes back as a row.

    Raises:
        Failed: ``build_failed`` with the task's own reason, or what the task raised of ours.
    """
    ordered = partitioned_and_sorted(scanned, plan.target.config)
    try:
        rows = ordered.mapInArrow(merge_and_write(task, feeds), REPORT_SCHEMA).collect()
    except AnewError:
        raise
    except Exception as error:
        raise reason_of(error) from error
    reports = [TaskReport.model_validate_json(row["report"]) for row in rows]
    found = sorted(report.partition for report in reports)
    if found != list(range(plan.target.config.partitions)):
        raise Failed(
            "partition_missing",
            "not every partition was made exactly once",
            found=found[:20],
            expected=f"0 … {plan.target.config.partitions - 1}",
        )
    return sorted(reports, key=lambda report: report.partition)


def _built(plan: Plan, reports: list[TaskReport], skipped: Entry) -> Built:
    ledger = total_ledger([report.ledger for report in reports])
    ledger = ledger.model_copy(update={"read": ledger.read + skipped, "skipped": skipped})
    ledger.check()
    parts = tuple(
        SubPartition(partition=report.partition, sub_partition=0, runs=() if report.file is None else ((report.file,),))
        for report in reports
    )
    duplicates = tuple(key for report in reports for key in report.duplicates)
    scans = tuple(scan for report in reports for scan in report.scans)
    return Built(parts, ledger, duplicates, scans)
