"""The log's ranges as scanning tasks read them: Arrow batches, and a report at the end of each split."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anew.api.location import LogLocation
from anew.core.admission import Admitted, admit, first_undecided, with_hashes
from anew.core.arrow import concat
from anew.core.combining import combine
from anew.core.errors import Failed
from anew.core.feed import FeedPartition, Feeds
from anew.core.hashing import total
from anew.core.ledger import MODULUS, Entry
from anew.core.stores.plan import LogSplit
from anew.log.interface import Log, topic_partition
from anew.log.open import BUILD_TIMEOUT_SECONDS, no_clock, open_log
from anew.log.through import read_through
from anew.spark.stores.dealing import dealt, share_of
from anew.spark.stores.frames import Kind, as_scanned, is_report, report_row

_COMBINED_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class LogScan:
    """How splits are read.

    Attributes:
        location: Where the log is.
        feeds: The feeds that are read.
        starts: From where the source version applies each feed partition (rule R1).
        combiner: Whether each split is combined before it goes on.
    """

    location: LogLocation
    feeds: Feeds
    starts: Mapping[FeedPartition, int]
    combiner: bool


def scan_splits(scan: LogScan, splits: Sequence[LogSplit]) -> Iterator[pa.RecordBatch]:
    """The rows of some splits, each followed by its report. Runs on an executor.

    Raises:
        Failed: See `scan_split`.
    """
    if not splits:
        return
    log = open_log(scan.location, clock=no_clock, timeout_seconds=BUILD_TIMEOUT_SECONDS)
    try:
        for split in splits:
            start = scan.starts.get(FeedPartition(split.feed, split.partition), 0)
            found = scan_split(log, scan.feeds, split, start)
            yield from combine_split(found) if scan.combiner else found
    finally:
        log.close()


def group_splits(splits: Sequence[LogSplit], max_records: int, wanted: int) -> list[list[LogSplit]]:
    """The splits in order, in groups of at most ``max_records`` (case B7): about ``wanted`` of them if that is enough.

    A split is never divided: the plan names it, and its report must come back once (rule R19).
    """
    sizes = [split.end - split.begin for split in splits]
    return dealt(zip(splits, sizes, strict=True), min(max_records, share_of(sum(sizes), wanted)))


def scan_split(log: Log, feeds: Feeds, split: LogSplit, start: int) -> Iterator[pa.RecordBatch]:
    """The admitted rows of [begin, end), with their hashes, then a report row.

    Raises:
        Failed: ``log_stalled``: nothing came although the end was not reached (case B6); ``schema_undecided``: nobody
            has decided yet about a value's schema; what the log raises.
    """
    feed, records, fingerprint, skipped = feeds.feed(split.feed), 0, 0, 0
    for read in read_through(log, topic_partition(feed, split.partition), split.begin, split.end):
        admitted = admit(feed, split.partition, start, read.records, feeds.schemas)
        _check_decided(split, admitted, feeds.schemas)
        rows = with_hashes(admitted.rows)
        skipped += len(admitted.rejected)
        records += rows.num_rows
        fingerprint += total(rows.column("hash").to_numpy())
        yield as_scanned(rows, Kind.RAW)
    source = f"{split.feed}/{split.partition}"
    yield report_row(
        {"split": split.id, "source": source, "records": records, "hash": fingerprint % (1 << 64), "skipped": skipped}
    )


def _check_decided(split: LogSplit, admitted: Admitted, schemas: Collection[int]) -> None:
    """Raise where nobody has decided yet whether a value counts (rule R21)."""
    undecided = first_undecided(admitted, schemas)
    if undecided is not None:
        offset, schema_id = undecided
        raise Failed(
            "schema_undecided",
            f"a value in {split.feed}/{split.partition} names a schema that is not known",
            found=f"schema id {schema_id} at offset {offset}",
            expected=f"one of {sorted(schemas)}, or that it was rejected",
            hint="nodes that apply the feed have it decided within seconds: run the rebuild again",
        )


def combine_split(scan: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A split's scan with its rows combined, `_COMBINED_ROWS` at a time; its report says what that saved.

    Splits are combined one by one: what another one holds of the same key decides as well.
    """
    superseded, raised, records, fingerprint = Entry(), Entry(), 0, 0
    for rows in _gathered(scan):
        if is_report(rows):
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
        reports = is_report(rows)
        if waiting and (reports or sum(batch.num_rows for batch in waiting) >= _COMBINED_ROWS):
            yield concat(waiting)
            waiting = []
        if reports:
            yield rows
        elif rows.num_rows:
            waiting.append(rows)
