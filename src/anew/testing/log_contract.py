"""What every log promises, as tests; see `anew.log.interface`.

A test module subclasses `LogContract` and says in `open_log` how its log is opened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anew.core.errors import Failed, InvalidRequest, Refused
from anew.log.interface import LOG_RECORDS, Log, Offsets, TopicPartition, TopicSpec
from anew.testing.builders import ORIGIN, append_records, some_records
from anew.testing.clock import ManualClock

TOPIC = TopicSpec("flights_rt", "uid-1", 2)
AGAIN = TopicSpec("flights_rt", "uid-2", 2)
AT = TopicPartition("flights_rt", "uid-1", 0)
SKEW_LIMIT_MS = 60_000


def rows(log: Log, at: TopicPartition, offset: int = 0) -> list[dict[str, Any]]:
    """All records from an offset on, read in small steps up to the end."""
    found: list[dict[str, Any]] = []
    while True:
        read = log.read(at, offset, 7)
        if read.next_offset == offset:
            return found
        found += read.records.to_pylist()
        offset = read.next_offset


def keys(log: Log, at: TopicPartition, offset: int = 0) -> list[bytes]:
    """The keys of all records from an offset on."""
    return [row["key"] for row in rows(log, at, offset)]


class LogContract(ABC):
    """The contract; ``log`` is a log with the topic `TOPIC`, ``clock`` is the clock that it was given."""

    @abstractmethod
    def open_log(self, directory: Path, clock: Callable[[], int]) -> Log:
        """Another handle on the log of that directory, with a skew limit of `SKEW_LIMIT_MS`."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        """The log's clock."""
        return ManualClock()

    @pytest.fixture
    def log(self, tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
        """A log with one topic."""
        log = self.open_log(tmp_path, clock)
        log.create_topic(TOPIC)
        yield log
        log.close()

    # -- topics ------------------------------------------------------------------------------------------------------

    def test_a_topic_is_found_as_it_was_made(self, log: Log) -> None:
        """A topic has the name, identity and partitions that it was made with; other names are not there."""
        assert log.topic("flights_rt") == TOPIC
        assert log.topic("other_rt") is None

    def test_making_the_same_topic_again_changes_nothing(self, log: Log) -> None:
        """A repeated create of the same uid keeps the records."""
        log.append(AT, some_records(3))
        log.create_topic(TOPIC)
        assert log.offsets(AT) == Offsets(0, 3)

    def test_a_closed_topic_takes_nothing(self, log: Log, tmp_path: Path, clock: ManualClock) -> None:
        """Nobody appends to a closed topic, through whatever handle, until it is opened; what is there can be read."""
        log.append(AT, some_records(2))
        log.set_open(TOPIC, is_open=False, epoch=5)
        other = self.open_log(tmp_path, clock)
        for handle in (log, other):
            with pytest.raises(Refused) as caught:
                handle.append(AT, some_records(1))
            assert caught.value.code == "topic_closed"
        assert log.offsets(AT) == Offsets(0, 2)
        assert len(keys(other, AT)) == 2
        log.set_open(TOPIC, is_open=True, epoch=6)
        assert other.append(AT, some_records(1)).first_offset == 2
        other.close()

    def test_an_older_word_about_a_closed_topic_changes_nothing(self, log: Log) -> None:
        """Of two that open and close, the greater epoch has its way, whoever comes last."""
        log.set_open(TOPIC, is_open=False, epoch=5)
        log.set_open(TOPIC, is_open=True, epoch=4)
        with pytest.raises(Refused, match="takes no writes"):
            log.append(AT, some_records(1))

    @pytest.mark.parametrize("other", [AGAIN, TopicSpec("flights_rt", "uid-1", 3)])
    def test_another_topic_of_the_name_is_refused(self, log: Log, other: TopicSpec) -> None:
        """Neither another uid nor another number of partitions takes over a name."""
        with pytest.raises(Refused) as caught:
            log.create_topic(other)
        assert caught.value.code == "topic_exists"
        assert log.topic("flights_rt") == TOPIC

    def test_deleting_spares_another_uid(self, log: Log) -> None:
        """A delete that names another uid, or a topic that is not there, removes nothing."""
        log.delete_topic("flights_rt", "uid-2")
        log.delete_topic("other_rt", "uid-1")
        assert log.topic("flights_rt") == TOPIC
        log.delete_topic("flights_rt", "uid-1")
        assert log.topic("flights_rt") is None

    @pytest.mark.parametrize("name", ["", "../flights", ".hidden", "a/b", "x" * 300])
    def test_bad_names_are_refused(self, log: Log, name: str) -> None:
        """A name that could leave the log's place is refused."""
        with pytest.raises(InvalidRequest):
            log.create_topic(TopicSpec(name, "uid", 1))

    @pytest.mark.case("rules:R3")
    def test_a_topic_made_again_is_lost_to_its_readers(self, log: Log) -> None:
        """Whoever holds the old identity gets topic_lost from every operation, and the new topic begins at 0."""
        log.append(AT, some_records(3))
        log.read(AT, 0, 10)
        log.delete_topic("flights_rt", "uid-1")
        log.create_topic(AGAIN)
        self._assert_lost(log)
        assert log.offsets(TopicPartition("flights_rt", "uid-2", 0)) == Offsets(0, 0)

    @pytest.mark.case("rules:R3")
    def test_a_deleted_topic_is_lost_to_its_readers(self, log: Log, tmp_path: Path, clock: ManualClock) -> None:
        """A topic that another handle deletes is gone for whoever has it open, and stays gone."""
        log.append(AT, some_records(3))
        log.read(AT, 0, 10)
        other = self.open_log(tmp_path, clock)
        other.delete_topic("flights_rt", "uid-1")
        other.close()
        self._assert_lost(log)

    @pytest.mark.case("rules:R3")
    def test_a_topic_made_again_with_its_old_uid_is_read_afresh(self, log: Log) -> None:
        """A position in what was deleted is beyond the end of what was made since, even under the same uid."""
        log.append(AT, some_records(3))
        log.read(AT, 0, 10)
        log.delete_topic("flights_rt", "uid-1")
        log.create_topic(TOPIC)
        with pytest.raises(Failed) as caught:
            log.read(AT, 3, 10)
        assert caught.value.code == "offset_out_of_range"
        assert log.append(AT, some_records(1)).first_offset == 0

    def test_unknown_partitions_are_refused(self, log: Log) -> None:
        """A partition number that the topic does not have is an invalid request, not an empty partition."""
        for partition in (2, -1):
            with pytest.raises(InvalidRequest) as caught:
                log.offsets(TopicPartition("flights_rt", "uid-1", partition))
            assert caught.value.code == "unknown_partition"

    def _assert_lost(self, log: Log) -> None:
        operations: list[Callable[[], object]] = [
            lambda: log.append(AT, some_records(1)),
            lambda: log.read(AT, 0, 1),
            lambda: log.offsets(AT),
            lambda: log.offset_for_time(AT, 0),
            lambda: log.truncate_below(AT, 0),
        ]
        for operation in operations:
            with pytest.raises(Failed) as caught:
                operation()
            assert caught.value.code == "topic_lost"

    # -- appending and reading ---------------------------------------------------------------------------------------

    def test_an_empty_partition_reads_as_its_end(self, log: Log) -> None:
        """A fresh partition is [0, 0), and reading at its end gives nothing and stays there."""
        assert log.offsets(AT) == Offsets(0, 0)
        read = log.read(AT, 0, 10)
        assert (read.records.num_rows, read.next_offset) == (0, 0)
        assert read.records.schema == LOG_RECORDS

    def test_what_is_read_is_what_was_appended(self, log: Log, clock: ManualClock) -> None:
        """Every column comes back, tombstones and given times too, with dense offsets and the append time."""
        given = clock.now_ms - 5
        log.append(AT, append_records([b"a", b"\x00", b""], [b"1", None, b""], [None, given, None]))
        origins = {"origin": ORIGIN, "appended_ms": clock.now_ms}
        assert rows(log, AT) == [
            {**origins, "offset": 0, "written_ms": None, "key": b"a", "schema_id": 1, "value": b"1"},
            {**origins, "offset": 1, "written_ms": given, "key": b"\x00", "schema_id": 0, "value": None},
            {**origins, "offset": 2, "written_ms": None, "key": b"", "schema_id": 1, "value": b""},
        ]

    def test_an_append_says_where_it_went(self, log: Log, clock: ManualClock) -> None:
        """The acknowledgement names the offsets and the time; partitions count for themselves."""
        first, second = log.append(AT, some_records(3)), log.append(AT, some_records(2))
        assert (first.first_offset, first.next_offset, first.last_ms) == (0, 3, clock.now_ms)
        assert (second.first_offset, second.next_offset) == (3, 5)
        assert log.append(TopicPartition("flights_rt", "uid-1", 1), some_records(1)).first_offset == 0

    def test_an_append_of_nothing_is_nothing(self, log: Log) -> None:
        """An empty batch is acknowledged at the end and adds nothing."""
        log.append(AT, some_records(2))
        nothing = log.append(AT, some_records(0))
        assert (nothing.first_offset, nothing.next_offset) == (2, 2)
        assert log.offsets(AT) == Offsets(0, 2)

    def test_reads_are_bounded(self, log: Log) -> None:
        """A read gives at most what was asked for and says where to go on."""
        log.append(AT, some_records(10))
        read = log.read(AT, 4, 3)
        assert read.records.column("offset").to_pylist() == [4, 5, 6]
        assert read.next_offset == 7

    @pytest.mark.case("rules:R3")
    def test_a_position_beyond_the_end_is_an_error(self, log: Log) -> None:
        """A reader that is past the end learns that the log lost its tail instead of waiting or jumping."""
        log.append(AT, some_records(3))
        assert log.read(AT, 3, 1).next_offset == 3
        with pytest.raises(Failed) as caught:
            log.read(AT, 4, 1)
        assert (caught.value.code, caught.value.found) == ("offset_out_of_range", 4)

    def test_other_columns_are_refused(self, log: Log) -> None:
        """A batch of another shape, or with a null key, is refused whole."""
        good = some_records(2)
        nulls: Any = pa.array([b"a", None], pa.binary())
        at = good.schema.get_field_index("key")
        for bad in (good.drop_columns(["origin"]), good.set_column(at, pa.field("key", pa.binary()), nulls)):
            with pytest.raises(InvalidRequest):
                log.append(AT, bad)
        assert log.offsets(AT) == Offsets(0, 0)

    def test_several_threads_get_dense_offsets(self, log: Log) -> None:
        """Appends at once neither share nor leave out an offset, and each is told its own."""
        batches = [some_records(1 + number % 5, f"batch-{number}") for number in range(60)]
        with ThreadPoolExecutor(8) as pool:
            acknowledged = list(pool.map(lambda batch: log.append(AT, batch), batches))
        found = keys(log, AT)
        assert len(found) == sum(batch.num_rows for batch in batches)
        for appended, batch in zip(acknowledged, batches, strict=True):
            assert found[appended.first_offset : appended.next_offset] == batch.column("key").to_pylist()

    def test_one_bad_batch_spares_its_neighbours(self, log: Log) -> None:
        """Of appends at once, just the one with a bad time is refused; the others are whole."""
        batches = [append_records([f"{n}".encode()], [b"v"], [0 if n % 10 == 0 else None]) for n in range(40)]

        def append(batch: pa.RecordBatch) -> str:
            try:
                log.append(AT, batch)
            except InvalidRequest as error:
                return error.code
            return "appended"

        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(append, batches))
        assert outcomes == ["written_at_out_of_range" if n % 10 == 0 else "appended" for n in range(40)]
        assert sorted(keys(log, AT)) == sorted(f"{n}".encode() for n in range(40) if n % 10)

    def test_a_second_handle_sees_the_records(self, log: Log, tmp_path: Path, clock: ManualClock) -> None:
        """What one handle acknowledged, another one reads, and goes on where it ended."""
        log.append(AT, some_records(3))
        other = self.open_log(tmp_path, clock)
        assert keys(other, AT) == keys(log, AT)
        assert other.append(AT, some_records(1)).first_offset == 3
        assert log.offsets(AT) == Offsets(0, 4)
        other.close()

    # -- times -------------------------------------------------------------------------------------------------------

    @pytest.mark.case("rules:R6")
    def test_times_never_run_backwards(self, log: Log, clock: ManualClock) -> None:
        """When the clock steps back, by no more than the limit, records carry the last time instead."""
        noon = clock.now_ms
        log.append(AT, some_records(1))
        clock.advance(-SKEW_LIMIT_MS)
        assert log.append(AT, some_records(1)).last_ms == noon
        assert [row["appended_ms"] for row in rows(log, AT)] == [noon, noon]

    @pytest.mark.case("rules:R6")
    def test_a_clock_too_far_behind_is_refused(self, log: Log, clock: ManualClock) -> None:
        """A clock further behind than the limit stops appends, and nothing is changed; it goes on afterwards."""
        log.append(AT, some_records(1))
        clock.advance(-SKEW_LIMIT_MS - 1)
        with pytest.raises(Refused) as caught:
            log.append(AT, some_records(1))
        assert caught.value.code == "clock_behind"
        assert log.offsets(AT) == Offsets(0, 1)
        clock.advance(1)
        assert log.append(AT, some_records(1)).first_offset == 1

    @pytest.mark.case("rules:R6")
    @pytest.mark.parametrize("ahead_ms", [SKEW_LIMIT_MS + 1, None])
    def test_given_times_are_checked(self, log: Log, clock: ManualClock, ahead_ms: int | None) -> None:
        """A time of 0 or beyond append time + limit refuses the whole batch and names the row."""
        bad = 0 if ahead_ms is None else clock.now_ms + ahead_ms
        with pytest.raises(InvalidRequest) as caught:
            log.append(AT, append_records([b"a", b"b", b"c"], [b"1", b"2", b"3"], [None, 1, bad]))
        assert (caught.value.code, caught.value.found) == ("written_at_out_of_range", bad)
        assert "row 2" in caught.value.message
        assert log.offsets(AT) == Offsets(0, 0)

    @pytest.mark.case("rules:R6")
    def test_given_times_may_reach_the_limits(self, log: Log, clock: ManualClock) -> None:
        """The least and the greatest allowed time are taken."""
        times = [1, clock.now_ms + SKEW_LIMIT_MS]
        log.append(AT, append_records([b"a", b"b"], [b"1", b"2"], times))
        assert [row["written_ms"] for row in rows(log, AT)] == times

    def test_offsets_are_found_by_time(self, log: Log, clock: ManualClock) -> None:
        """The first offset at or after a time; the end when there is none; the begin for any earlier time."""
        assert log.offset_for_time(AT, clock.now_ms) == 0
        noon = clock.now_ms
        for count in (2, 3, 1):
            log.append(AT, some_records(count))
            clock.advance(10)
        expected = {0: 0, noon: 0, noon + 1: 2, noon + 10: 2, noon + 11: 5, noon + 20: 5, noon + 21: 6}
        assert {time: log.offset_for_time(AT, time) for time in expected} == expected
        log.truncate_below(AT, 4)
        assert log.offset_for_time(AT, 0) == 4

    # -- truncation --------------------------------------------------------------------------------------------------

    def test_truncation_moves_the_begin(self, log: Log) -> None:
        """Truncated records are gone, reading them is an error, and going back changes nothing."""
        log.append(AT, some_records(5))
        log.truncate_below(AT, 3)
        log.truncate_below(AT, 1)
        assert log.offsets(AT) == Offsets(3, 5)
        assert [row["offset"] for row in rows(log, AT, 3)] == [3, 4]
        with pytest.raises(Failed) as caught:
            log.read(AT, 2, 10)
        assert (caught.value.code, caught.value.found) == ("offset_out_of_range", 2)

    def test_truncation_beyond_the_end_is_refused(self, log: Log) -> None:
        """What was never written cannot be forgotten."""
        log.append(AT, some_records(5))
        with pytest.raises(Refused) as caught:
            log.truncate_below(AT, 6)
        assert caught.value.code == "offset_out_of_range"
        assert log.offsets(AT) == Offsets(0, 5)

    @pytest.mark.case("rules:R3")
    def test_an_emptied_partition_goes_on_counting(self, log: Log, tmp_path: Path, clock: ManualClock) -> None:
        """Offsets and times survive the truncation of every record, also for a handle opened afterwards."""
        last = log.append(AT, some_records(5)).last_ms
        log.truncate_below(AT, 5)
        assert log.offsets(AT) == Offsets(5, 5)
        assert log.read(AT, 5, 10).next_offset == 5
        clock.advance(-1_000)
        other = self.open_log(tmp_path, clock)
        appended = other.append(AT, some_records(1))
        assert (appended.first_offset, appended.last_ms) == (5, last)
        other.close()
