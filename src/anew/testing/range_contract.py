"""What bases that go through a log must keep in every log, as tests (rule R23; cases G6, G7).

A test module subclasses `RangeContract` and says how its log is opened; ``TOPIC`` is free in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from anew.codec.compression import compressor
from anew.core.admission import with_hashes
from anew.core.arrow import concat
from anew.core.errors import Failed
from anew.core.rows import ROWS
from anew.log.interface import Log, TopicPartition, TopicSpec
from anew.segments.baserange import BaseRangeWriter, read_range, start_of_push
from anew.segments.manifest import BaseRange
from anew.testing.builders import a_config, some_records
from anew.testing.clock import NOON_MS

TOPIC = TopicSpec("flights_v7", "uid-of-flights-v7", 2, 4 << 20)
CONFIG = a_config(transport="log").frozen


def some_rows(count: int, first: int = 0, origins: tuple[bytes, ...] = (b"\x01dc-0",)) -> pa.RecordBatch:
    """Rows of a base with keys in order, every seventh a tombstone, every column with something in it."""
    numbers = np.arange(first, first + count)
    dead = numbers % 7 == 3
    values = [None if gone else f"value of {number}".encode() for number, gone in zip(numbers, dead, strict=True)]
    columns = {
        "key": [f"key-{number:07d}".encode() for number in numbers],
        "value": values,
        "schema_id": np.where(dead, 0, 3).astype(np.int32),
        "time": NOON_MS + numbers,
        "origin": [origins[number % len(origins)] for number in numbers],
        "append_timed": numbers % 2 == 0,
        "incarnation": np.full(count, 5, np.int32),
        "feed_partition": (numbers % 3).astype(np.int32),
        "offset": numbers * 11,
        "hash": np.zeros(count, np.int64),
    }
    return with_hashes(pa.RecordBatch.from_pydict(columns, schema=ROWS))


class RangeContract(ABC):
    """The contract; ``log`` is a log with the topic `TOPIC`, ``at`` one of its partitions."""

    @abstractmethod
    def open_log(self, directory: Path, clock: Callable[[], int]) -> Log:
        """A log of that directory."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Log]:
        """A log."""
        log = self.open_log(tmp_path, lambda: NOON_MS)
        yield log
        left = log.topic(TOPIC.name)
        if left is not None:
            log.delete_topic(left.name, left.uid)
        log.close()

    @pytest.fixture
    def at(self, log: Log) -> TopicPartition:
        """A partition of a fresh topic."""
        made = log.create_topic(TOPIC)
        return TopicPartition(made.name, made.uid, 1, 4)

    def test_rows_come_back_as_they_were(self, log: Log, at: TopicPartition) -> None:
        """Every column of every row, in order; and the range says what it holds."""
        rows = some_rows(25_000, origins=(b"\x01dc-0", b"\x01a-longer-origin", b""))
        part = _written(log, at, rows)
        assert concat(list(read_range(log, part, _start(part)))).equals(rows)
        assert (part.rows, part.tombstones) == (rows.column("value").is_valid().sum().as_py(), 3_571)
        assert (bytes.fromhex(part.smallest_key), bytes.fromhex(part.largest_key)) == (b"key-0000000", b"key-0024999")
        assert part.fingerprint == int(rows.column("hash").to_numpy().view(np.uint64).sum(dtype=np.uint64))
        assert sum(end - begin for begin, end in part.pieces) == rows.num_rows + 2

    def test_no_row_is_no_range(self, log: Log, at: TopicPartition) -> None:
        """Nothing is appended where there is nothing."""
        before = log.offsets(at)
        assert _writer(log, at).close() is None
        assert log.offsets(at) == before

    def test_slices_add_up(self, log: Log, at: TopicPartition) -> None:
        """However many slices are read, together they are the range, in order."""
        rows = some_rows(1_000)
        part = _written(log, at, rows)
        for slices in (1, 2, 3, 7):
            found = [batch for slice_ in range(slices) for batch in read_range(log, part, None, slice_, slices)]
            assert concat(found).equals(rows)

    @pytest.mark.case("stores:G6", "rules:R23")
    def test_attempts_side_by_side_count_once(self, log: Log, at: TopicPartition) -> None:
        """Two attempts append in turns: each range holds its own rows alone, whichever is sealed."""
        rows = some_rows(600)
        writers = [_writer(log, at, f"r-e1-t{number}") for number in (1, 2)]
        for first in range(0, 600, 200):
            for writer in writers:
                writer.write(rows.slice(first, 200))
        for part in [writer.close() for writer in writers]:
            assert part is not None
            assert len(part.pieces) > 1
            assert concat(list(read_range(log, part, _start(part)))).equals(rows)

    @pytest.mark.case("stores:G6", "rules:R23")
    def test_what_a_zombie_appends_does_not_count(self, log: Log, at: TopicPartition) -> None:
        """An attempt that died before, and one that wakes up after the seal, change nothing."""
        dead = _writer(log, at, "r-e1-t1")
        dead.write(some_rows(50))
        dead.abort()
        part = _written(log, at, some_rows(100))
        _written(log, at, some_rows(300), "r-e1-t3")
        assert concat(list(read_range(log, part, _start(part)))).equals(some_rows(100))

    @pytest.mark.case("stores:G7", "rules:R23")
    def test_a_range_of_somebody_else_is_refused(self, log: Log, at: TopicPartition) -> None:
        """Records of another attempt, or of any other program, in the sealed offsets are never taken for ours."""
        log.append(at, some_records(3))
        part, other = _written(log, at, some_rows(40)), _written(log, at, some_rows(40), "r-e1-t9")
        for pieces in (other.pieces, ((0, part.pieces[0][1]),), ((part.pieces[0][0], other.pieces[0][1]),)):
            altered = part.model_copy(update={"pieces": pieces})
            with pytest.raises(Failed) as caught:
                list(read_range(log, altered))
            assert caught.value.code == "foreign_records"

    @pytest.mark.case("stores:G7")
    @pytest.mark.parametrize("field", ["rows", "tombstones", "fingerprint"])
    def test_another_sum_is_refused(self, log: Log, at: TopicPartition, field: str) -> None:
        """A manifest that promises something else than EOP says is not believed."""
        part = _written(log, at, some_rows(40))
        altered = part.model_copy(update={field: getattr(part, field) + 1})
        with pytest.raises(Failed, match="EOP") as caught:
            list(read_range(log, altered))
        assert caught.value.code == "fingerprint_mismatch"

    def test_another_start_is_refused(self, log: Log, at: TopicPartition) -> None:
        """Rows that were made for another configuration, or with another dictionary, are not read as ours."""
        part = _written(log, at, some_rows(40))
        for start in (
            start_of_push(CONFIG, b"a dictionary", part.attempt),
            start_of_push(CONFIG.model_copy(update={"compression": "gzip"}), None, part.attempt),
        ):
            with pytest.raises(Failed, match="SOP"):
                list(read_range(log, part, start))

    @pytest.mark.case("stores:G7")
    def test_a_truncated_range_is_refused(self, log: Log, at: TopicPartition) -> None:
        """What retention took is missed, and not skipped."""
        part = _written(log, at, some_rows(40))
        log.truncate_below(at, part.pieces[0][0] + 5)
        with pytest.raises(Failed) as caught:
            list(read_range(log, part))
        assert caught.value.code == "offset_out_of_range"

    @pytest.mark.case("stores:G7")
    def test_another_topic_of_the_name_is_refused(self, log: Log, at: TopicPartition) -> None:
        """A topic that was made again holds other records at the same offsets (rule R3)."""
        part = _written(log, at, some_rows(40))
        log.delete_topic(at.topic, at.uid)
        made = log.create_topic(TopicSpec(TOPIC.name, "another uid", TOPIC.partitions, TOPIC.max_record_bytes))
        _written(log, TopicPartition(made.name, made.uid, at.partition, 4), some_rows(40))
        with pytest.raises(Failed) as caught:
            list(read_range(log, part))
        assert caught.value.code == "topic_lost"

    def test_rows_out_of_order_are_refused(self, log: Log, at: TopicPartition) -> None:
        """What is to be loaded as a sorted file is sorted."""
        writer = _writer(log, at)
        writer.write(some_rows(5, 100))
        with pytest.raises(Failed) as caught:
            writer.write(some_rows(5))
        assert caught.value.code == "unsorted_base_file"


def _writer(log: Log, at: TopicPartition, attempt: str = "r-e1-t2") -> BaseRangeWriter:
    return BaseRangeWriter(log, at, attempt, start_of_push(CONFIG, None, attempt), compressor("none"))


def _written(log: Log, at: TopicPartition, rows: pa.RecordBatch, attempt: str = "r-e1-t2") -> BaseRange:
    writer = _writer(log, at, attempt)
    writer.write(rows)
    part = writer.close()
    assert part is not None
    return part


def _start(part: BaseRange) -> bytes:
    return start_of_push(CONFIG, None, part.attempt)
