"""What a task holds in memory, and that it does not wait for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anew.codec.compression import compressor
from anew.core.arrow import replaced
from anew.core.errors import Failed
from anew.core.feed import Feeds
from anew.core.hashing import row_hashes
from anew.core.stores.copartition import feed_splits, groups_of
from anew.core.stores.plan import LogSplit
from anew.log import through
from anew.log.interface import LOG_RECORDS, LogRead
from anew.spark.stores.frames import SCANNED, Kind
from anew.spark.stores.logsource import scan_split
from anew.spark.stores.mergewrite import MergeTask, _Merge
from anew.spark.stores.outputs import BaseTarget
from anew.spark.stores.shuffle import Destination, packed
from anew.spark.stores.sources import Sources
from anew.testing.builders import ORIGIN, a_config, a_feed

_BATCH_ROWS = 10_000
_VALUE = b"v" * 100


def _updates(count: int, peaks: list[int]) -> Iterator[pa.RecordBatch]:
    """So many updates of one key as they come out of the shuffle; notes how much Arrow holds at each batch."""
    destination = Destination.of(a_config(partitions=1).frozen, None, runs=-(-count // _BATCH_ROWS))
    for first in range(0, count, _BATCH_ROWS):
        peaks.append(pa.total_allocated_bytes())
        rows = _BATCH_ROWS
        columns: dict[str, Any] = {
            "key": [b"hot"] * rows,
            "value": [_VALUE] * rows,
            "schema_id": np.ones(rows, np.int32),
            "time": np.full(rows, 1_000 + first, np.int64),
            "origin": [ORIGIN] * rows,
            "append_timed": np.ones(rows, np.bool_),
            "incarnation": np.ones(rows, np.int32),
            "feed_partition": np.zeros(rows, np.int32),
            "offset": np.arange(first, first + rows),
            "hash": np.zeros(rows, np.int64),
            "kind": np.full(rows, int(Kind.RAW), np.int8),
        }
        batch = pa.RecordBatch.from_pydict(columns, schema=SCANNED)
        hashes = pa.array(row_hashes(batch).view(np.int64))
        yield from packed([replaced(batch, "hash", hashes)], destination)


@pytest.mark.case("stores:C7")
def test_a_hot_key_costs_no_memory(tmp_path: Path) -> None:
    """The peak of the writing task is the same for 100,000 and for 1,000,000 updates of one key."""
    plain, peak_bytes = compressor("none"), []
    for count in (100_000, 1_000_000):
        config = a_config(partitions=1).frozen
        task = MergeTask(BaseTarget(str(tmp_path), f"d{count}"), config, plain, plain, Sources.of([a_feed()]))
        before, peaks = pa.total_allocated_bytes(), list[int]()
        report = _Merge(task, 0, "t0").run(_updates(count, peaks))
        assert (report.ledger.read.count, report.ledger.superseded.count) == (count, count - 1)
        peak_bytes.append(max(peaks) - before)
    assert peak_bytes[1] <= peak_bytes[0] * 1.1 + 1_000_000


@pytest.mark.case("stores:B7")
def test_a_task_reads_only_so_many_feed_records_itself() -> None:
    """Beyond the plan's limit the records of a hot feed partition are shuffled, read by several tasks."""
    feed, config = a_feed(partitions=4), a_config(partitions=4).frozen
    groups = groups_of(config, config)
    for count, alone in ((1_000, True), (1_001, False)):
        ranges = [LogSplit(feed=feed.id, partition=1, begin=0, end=count)]
        assert (feed_splits(groups, config, (feed,), ranges, 1_000) is not None) == alone


class _StalledLog:
    """A log that has nothing to give although its end was said to lie further on."""

    def read(self, _at: Any, offset: int, _max_records: int, _end: int | None = None) -> LogRead:
        return LogRead(pa.RecordBatch.from_pylist([], schema=LOG_RECORDS), offset)


@pytest.mark.case("stores:B6", "stores:B4")
def test_a_log_that_gives_nothing_is_an_error_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan that gets nothing before its end fails after the deadline; a missing answer is never read as empty."""
    monkeypatch.setattr(through, "_STALL_SECONDS", 0.2)
    feed = a_feed()
    split = LogSplit(feed=feed.id, partition=0, begin=5, end=9)
    log: Any = _StalledLog()
    with pytest.raises(Failed, match="cannot be read to its end") as caught:
        list(scan_split(log, Feeds((feed,), (1,)), split, 0))
    assert (caught.value.code, caught.value.expected) == ("log_stalled", "records up to 9")
