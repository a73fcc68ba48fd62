"""The embedded log as a Spark data source: Arrow batches, and a report at the end of each split.

A task costs about a tenth of a second before it has read anything, so that one task reads several short splits.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from anew.api.models import LogLocation
from anew.core.admission import admit, with_hashes
from anew.core.arrow import concat
from anew.core.combining import combine
from anew.core.errors import Failed
from anew.core.feed import Feed
from anew.core.hashing import total
from anew.core.ledger import MODULUS, Entry
from anew.core.plan import LogSplit, Source, Splits
from anew.log.interface import Log, TopicPartition
from anew.log.open import open_log
from anew.spark.frames import SCANNED, Kind, report_row, spark_schema

_BATCH_RECORDS = 10_000
_COMBINED_ROWS = 100_000
_STALL_SECONDS = 60.0
_IDLE_SECONDS = 0.05
_TASKS_PER_CORE = 2


class LogSource(DataSource):
    """Reads the ranges of a plan.

    Options, all JSON: ``location``, ``feeds``, ``groups`` of splits, ``starts``, ``combiner``.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "anew_log"

    def schema(self) -> StructType:
        """`SCANNED`."""
        return spark_schema(SCANNED)

    def reader(self, schema: StructType) -> DataSourceReader:
        """One reader per query."""
        return LogSourceReader(dict(self.options))


class LogSourceReader(DataSourceReader):
    """Turns groups of splits into Spark partitions and reads them."""

    def __init__(self, options: dict[str, str]) -> None:
        """Parse the options once, on the driver."""
        self._location = LogLocation.model_validate_json(options["location"])
        self._feeds = {feed.id: feed for feed in map(Feed.model_validate, json.loads(options["feeds"]))}
        self._groups = [[LogSplit.model_validate(split) for split in group] for group in json.loads(options["groups"])]
        self._combiner = bool(json.loads(options["combiner"]))
        self._starts = {(feed, int(p)): int(o) for feed, p, o in json.loads(options["starts"])}

    def partitions(self) -> list[InputPartition]:
        """One Spark partition per group, in order."""
        return [InputPartition(index) for index in range(len(self._groups))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one group's splits, each followed by its report. Runs on an executor."""
        log = open_log(self._location.kind, self._location.address, clock=no_clock)
        try:
            for split in self._groups[partition.value]:
                scan = scan_split(log, self._feeds[split.feed], split, self._starts[split.feed, split.partition])
                yield from combine_split(scan) if self._combiner else scan
        finally:
            log.close()


def group_splits(splits: Sequence[LogSplit], max_records: int, wanted: int) -> list[list[LogSplit]]:
    """The splits in order, in groups of at most ``max_records`` (case B7): about ``wanted`` of them if that is enough.

    A split is never divided: the plan names it, and its report must come back once (rule R19).
    """
    total_records = sum(split.end - split.begin for split in splits)
    limit = min(max_records, -(-total_records // max(wanted, 1)))
    groups: list[list[LogSplit]] = []
    room = 0
    for split in splits:
        records = split.end - split.begin
        if records > room:
            groups.append([])
            room = limit
        groups[-1].append(split)
        room -= records
    return groups


def scan_split(log: Log, feed: Feed, split: LogSplit, start: int) -> Iterator[pa.RecordBatch]:
    """The admitted rows of [begin, end), with their hashes, then a report row.

    Raises:
        Failed: ``log_stalled``: nothing came although the end was not reached (case B6); what the log raises.
    """
    topic = TopicPartition(feed.topic, feed.topic_uid, split.partition)
    at, records, fingerprint, skipped = split.begin, 0, 0, 0
    deadline = time.monotonic() + _STALL_SECONDS
    while at < split.end:
        read = log.read(topic, at, min(_BATCH_RECORDS, split.end - at))
        if read.next_offset == at:
            if time.monotonic() > deadline:
                raise Failed(
                    "log_stalled",
                    f"{split.id} cannot be read to its end",
                    found=f"nothing after offset {at}",
                    expected=f"records up to {split.end}",
                )
            threading.Event().wait(_IDLE_SECONDS)
            continue
        deadline = time.monotonic() + _STALL_SECONDS
        at = read.next_offset
        admitted = admit(feed, split.partition, start, read.records)
        rows = with_hashes(admitted.rows)
        skipped += len(admitted.rejected)
        records += rows.num_rows
        fingerprint += total(rows.column("hash").to_numpy())
        yield _as_scanned(rows)
    source = f"{split.feed}/{split.partition}"
    yield report_row(
        {"split": split.id, "source": source, "records": records, "hash": fingerprint % (1 << 64), "skipped": skipped}
    )


def combine_split(scan: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A split's scan with its rows combined, `_COMBINED_ROWS` at a time; its report says what that saved.

    Splits are combined one by one: what another one holds of the same key decides as well.
    """
    superseded, raised, records, fingerprint = Entry(), Entry(), 0, 0
    for rows in _gathered(scan):
        if rows.column("kind")[0].as_py() == int(Kind.REPORT):
            report = json.loads(rows.column("value")[0].as_py())
            saved = {"superseded": superseded.model_dump(), "raised": raised.model_dump()}
            yield report_row({**report, **saved, "records": records, "hash": fingerprint})
            continue
        combined = combine(rows)
        superseded, raised = superseded + combined.superseded, raised + combined.raised
        records += combined.rows.num_rows
        fingerprint = (fingerprint + total(combined.rows.column("hash").to_numpy())) % MODULUS
        yield combined.rows


def _gathered(scan: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows in batches of about `_COMBINED_ROWS`; the report by itself."""
    waiting: list[pa.RecordBatch] = []
    for rows in scan:
        is_report = rows.num_rows == 1 and rows.column("kind")[0].as_py() == int(Kind.REPORT)
        if waiting and (is_report or sum(batch.num_rows for batch in waiting) >= _COMBINED_ROWS):
            yield concat(waiting)
            waiting = []
        if is_report:
            yield rows
        elif rows.num_rows:
            waiting.append(rows)


def scan_log(
    spark: SparkSession, source: Source, feeds: tuple[Feed, ...], location: LogLocation, splits: Splits
) -> DataFrame:
    """The rows of the plan's log splits, columns `SCANNED`."""
    spark.dataSource.register(LogSource)
    starts = [(at.feed, at.partition, offset) for at, offset in source.start.items()]
    groups = group_splits(splits.ranges, splits.max_records, _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    return (
        spark.read.format(LogSource.name())
        .option("location", location.model_dump_json())
        .option("feeds", json.dumps([feed.model_dump(mode="json") for feed in feeds]))
        .option("groups", json.dumps([[split.model_dump() for split in group] for group in groups]))
        .option("starts", json.dumps(starts))
        .option("combiner", json.dumps(splits.combiner))
        .load()
    )


def _as_scanned(rows: pa.RecordBatch) -> pa.RecordBatch:
    kinds = pa.repeat(pa.scalar(int(Kind.RAW), pa.int8()), rows.num_rows)
    return pa.RecordBatch.from_arrays([*rows.columns, kinds], schema=SCANNED)


def no_clock() -> int:
    """The clock of a log that is only read."""
    raise AssertionError("a scan does not append, so that it never asks for the time")
