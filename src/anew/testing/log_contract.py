"""What every log promises, as tests; see `anew.log.interface`.

A test module subclasses `LogContract`, or `ClockedLogContract` where the log's append times are those of a clock that
it is given, and says in `open_log` how its log is opened.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anew.core.arrow import replaced
from anew.core.errors import AnewError, Failed, InvalidRequest, Refused
from anew.core.identity import identified_origins, sequences
from anew.core.stamp import Origin, OriginKind
from anew.log.interface import LOG_RECORDS, Flaw, Log, Offsets, SetAside, TopicPartition, TopicSpec
from anew.testing.builders import append_records, some_records
from anew.testing.clock import ManualClock
from anew.testing.log_reading import keys, keys_below, partition_of, rows

TOPIC = TopicSpec("flights_rt", "uid-1", 2)
AGAIN = TopicSpec("flights_rt", "uid-2", 2)
SKEW_LIMIT_MS = 60_000
_NOTICED_SECONDS = 10.0


class LogContract(ABC):
    """The contract; ``log`` is a log with the topic `TOPIC`, ``clock`` is the clock that it was given."""

    @abstractmethod
    def open_log(self, directory: Path, clock: Callable[[], int]) -> Log:
        """Another handle on the log of that directory, with a skew limit of `SKEW_LIMIT_MS`."""

    @pytest.fixture
    def clock(self) -> Callable[[], int]:
        """The clock of whoever writes."""
        return ManualClock()

    @pytest.fixture
    def log(self, tmp_path: Path, clock: Callable[[], int]) -> Iterator[Log]:
        """A log."""
        log = self.open_log(tmp_path, clock)
        yield log
        log.close()

    @pytest.fixture
    def topic(self, log: Log) -> TopicSpec:
        """A topic, made as `TOPIC`."""
        return log.create_topic(TOPIC)

    @pytest.fixture
    def at(self, topic: TopicSpec) -> TopicPartition:
        """Its first partition."""
        return partition_of(topic)

    # -- topics ------------------------------------------------------------------------------------------------------

    def test_a_topic_is_found_as_it_was_made(self, log: Log, topic: TopicSpec) -> None:
        """A topic has the name and partitions that it was made with, and the identity that its making returned."""
        assert (topic.name, topic.partitions) == (TOPIC.name, TOPIC.partitions)
        assert log.topic("flights_rt") == topic
        assert log.topic("other_rt") is None

    def test_making_the_same_topic_again_changes_nothing(self, log: Log, topic: TopicSpec, at: TopicPartition) -> None:
        """A repeated create finds what the first one made, whether or not its maker heard of the identity."""
        log.append(at, some_records(3))
        assert log.create_topic(TOPIC) == topic
        assert log.create_topic(topic) == topic
        assert (log.offsets(at), log.next_offset(at)) == (Offsets(0, 3), 3)

    def test_a_closed_topic_takes_nothing(
        self, log: Log, at: TopicPartition, topic: TopicSpec, tmp_path: Path, clock: Callable[[], int]
    ) -> None:
        """Nobody appends to a closed topic, through whatever handle, until it is opened; what is there can be read."""
        log.append(at, some_records(2))
        log.set_open(topic, is_open=False, epoch=5)
        end = log.offsets(at).end
        other = self.open_log(tmp_path, clock)
        for handle in (log, other):
            with pytest.raises(Refused) as caught:
                handle.append(at, some_records(1))
            assert caught.value.code == "topic_closed"
        assert log.offsets(at).end == end
        assert len(keys(other, at)) == 2
        log.set_open(topic, is_open=True, epoch=6)
        assert other.append(at, some_records(1)).first_offset == end
        other.close()

    def test_an_older_word_about_a_closed_topic_changes_nothing(
        self, log: Log, at: TopicPartition, topic: TopicSpec
    ) -> None:
        """Of two that open and close, the greater epoch has its way, whoever comes last."""
        log.set_open(topic, is_open=False, epoch=5)
        log.set_open(topic, is_open=True, epoch=4)
        with pytest.raises(Refused, match="takes no writes"):
            log.append(at, some_records(1))

    @pytest.mark.parametrize("other", [AGAIN, TopicSpec("flights_rt", "uid-1", 3)])
    def test_another_topic_of_the_name_is_refused(self, log: Log, topic: TopicSpec, other: TopicSpec) -> None:
        """Neither another uid nor another number of partitions takes over a name."""
        with pytest.raises(Refused) as caught:
            log.create_topic(other)
        assert caught.value.code == "topic_exists"
        assert log.topic("flights_rt") == topic

    @pytest.mark.parametrize("by_first_uid", [True, False])
    def test_deleting_spares_another_uid(self, log: Log, topic: TopicSpec, by_first_uid: bool) -> None:  # noqa: FBT001 - a case
        """A delete that names another uid removes nothing; the uid that a topic was made with names it too."""
        log.delete_topic("flights_rt", "uid-2")
        log.delete_topic("other_rt", "uid-1")
        assert log.topic("flights_rt") == topic
        log.delete_topic("flights_rt", TOPIC.uid if by_first_uid else topic.uid)
        assert log.topic("flights_rt") is None

    @pytest.mark.parametrize("name", ["", "../flights", ".hidden", "a/b", "x" * 300])
    def test_bad_names_are_refused(self, log: Log, name: str) -> None:
        """A name that could leave the log's place is refused."""
        with pytest.raises(InvalidRequest):
            log.create_topic(TopicSpec(name, "uid", 1))

    @pytest.mark.case("rules:R3")
    def test_a_topic_made_again_is_lost_to_its_readers(self, log: Log, at: TopicPartition) -> None:
        """Whoever holds the old identity gets topic_lost from every operation, and the new topic begins at 0."""
        log.append(at, some_records(3))
        log.read(at, 0, 10)
        log.delete_topic("flights_rt", "uid-1")
        made = log.create_topic(AGAIN)
        self._assert_lost(log, at)
        assert log.offsets(partition_of(made)) == Offsets(0, 0)

    @pytest.mark.case("rules:R3")
    def test_a_topic_made_again_does_not_pass_for_the_one_before(self, log: Log, at: TopicPartition) -> None:
        """Whoever reads on in a topic that was replaced meanwhile, by one with more records, gets none of these."""
        log.append(at, some_records(3, "old"))
        assert log.read(at, 0, 10).next_offset == 3
        assert log.read(at, 3, 10).next_offset == 3
        log.delete_topic("flights_rt", "uid-1")
        made = log.create_topic(AGAIN)
        log.append(partition_of(made), some_records(9, "new"))
        with pytest.raises(Failed) as caught:
            self._read_until(log, at, 3)
        assert caught.value.code == "topic_lost"

    @pytest.mark.case("rules:R3")
    def test_a_deleted_topic_is_lost_to_its_readers(
        self, log: Log, at: TopicPartition, tmp_path: Path, clock: Callable[[], int]
    ) -> None:
        """A topic that another handle deletes is gone for whoever has it open, and stays gone."""
        log.append(at, some_records(3))
        log.read(at, 0, 10)
        other = self.open_log(tmp_path, clock)
        other.delete_topic("flights_rt", "uid-1")
        other.close()
        self._assert_lost(log, at)

    @pytest.mark.case("rules:R3")
    def test_a_topic_made_again_with_its_old_uid_is_read_afresh(self, log: Log, at: TopicPartition) -> None:
        """A position in what was deleted is an error in what was made since, even where one uid made both."""
        log.append(at, some_records(3))
        log.read(at, 0, 10)
        log.delete_topic("flights_rt", "uid-1")
        made = log.create_topic(TOPIC)
        with pytest.raises(Failed) as caught:
            self._read_until(log, at, 3)
        assert caught.value.code == ("offset_out_of_range" if made.uid == at.uid else "topic_lost")
        assert log.append(partition_of(made), some_records(1)).first_offset == 0

    def test_unknown_partitions_are_refused(self, log: Log, topic: TopicSpec) -> None:
        """A partition number that the topic does not have is an invalid request, not an empty partition."""
        for partition in (2, -1):
            with pytest.raises(InvalidRequest) as caught:
                log.offsets(partition_of(topic, partition))
            assert caught.value.code == "unknown_partition"

    def _assert_lost(self, log: Log, at: TopicPartition) -> None:
        operations: list[Callable[[], object]] = [
            lambda: log.append(at, some_records(1)),
            lambda: log.read(at, 0, 1),
            lambda: log.offsets(at),
            lambda: log.offset_for_time(at, 0),
            lambda: log.truncate_below(at, 0),
        ]
        for operation in operations:
            with pytest.raises(Failed) as caught:
                operation()
            assert caught.value.code == "topic_lost"

    @staticmethod
    def _read_until(log: Log, at: TopicPartition, offset: int) -> None:
        """Read at an offset until something comes, or for longer than a log may take to notice a change."""
        deadline = time.monotonic() + _NOTICED_SECONDS
        while time.monotonic() < deadline and log.read(at, offset, 10).next_offset == offset:
            threading.Event().wait(0.01)

    # -- appending and reading ---------------------------------------------------------------------------------------

    def test_an_empty_partition_reads_as_its_end(self, log: Log, at: TopicPartition) -> None:
        """A fresh partition is [0, 0), and reading at its end gives nothing and stays there."""
        assert log.offsets(at) == Offsets(0, 0)
        read = log.read(at, 0, 10)
        assert (read.records.num_rows, read.next_offset) == (0, 0)
        assert read.records.schema == LOG_RECORDS

    def test_what_is_read_is_what_was_appended(self, log: Log, at: TopicPartition, clock: Callable[[], int]) -> None:
        """Every column comes back, tombstones, given times, identities, with dense offsets and the append time."""
        given = clock() - 5
        carried = identified_origins(Origin(OriginKind.JOB, "clicks", 2), 1 << 30, sequences(3, 1 << 20, 0, 3))
        records = append_records([b"a", b"\x00", b""], [b"1", None, b""], [None, given, None])
        appended = log.append(at, replaced(records, "origin", carried))
        alike, (one, two, three) = {"appended_ms": appended.last_ms, "flaw": Flaw.NONE}, carried.to_pylist()
        assert rows(log, at) == [
            {**alike, "offset": 0, "origin": one, "written_ms": None, "key": b"a", "schema_id": 1, "value": b"1"},
            {**alike, "offset": 1, "origin": two, "written_ms": given, "key": b"\x00", "schema_id": 0, "value": None},
            {**alike, "offset": 2, "origin": three, "written_ms": None, "key": b"", "schema_id": 1, "value": b""},
        ]

    def test_deletes_alone_are_read(self, log: Log, at: TopicPartition) -> None:
        """A read that gives no value at all gives its records all the same."""
        log.append(at, append_records([b"", b"a"], [None, None], [None, None]))
        assert [(row["key"], row["value"]) for row in rows(log, at)] == [(b"", None), (b"a", None)]

    def test_an_append_says_where_it_went(self, log: Log, at: TopicPartition, topic: TopicSpec) -> None:
        """The acknowledgement names the offsets and the time; partitions count for themselves."""
        first, second = log.append(at, some_records(3)), log.append(at, some_records(2))
        assert (first.first_offset, first.next_offset) == (0, 3)
        assert 0 < first.last_ms <= second.last_ms
        assert (second.first_offset, second.next_offset) == (3, 5)
        assert log.append(partition_of(topic, 1), some_records(1)).first_offset == 0

    def test_an_append_of_nothing_is_nothing(self, log: Log, at: TopicPartition) -> None:
        """An empty batch is acknowledged at the end and adds nothing."""
        log.append(at, some_records(2))
        nothing = log.append(at, some_records(0))
        assert (nothing.first_offset, nothing.next_offset) == (2, 2)
        assert log.offsets(at) == Offsets(0, 2)

    def test_reads_are_bounded(self, log: Log, at: TopicPartition) -> None:
        """A read gives at most what was asked for and says where to go on."""
        log.append(at, some_records(10))
        read = log.read(at, 4, 3)
        assert read.records.column("offset").to_pylist() == [4, 5, 6]
        assert read.next_offset == 7

    def test_a_read_keeps_below_a_known_end(self, log: Log, at: TopicPartition) -> None:
        """Nothing from the end on is given, and what lies before it is there, however lately it was appended."""
        assert log.read(at, 0, 5).next_offset == 0
        for number in range(20):
            end = log.append(at, some_records(3)).next_offset
            found = keys_below(log, at, 3 * number, end - 1), keys_below(log, at, end - 1, end)
            assert found == ([b"key-0", b"key-1"], [b"key-2"])
            assert log.read(at, end - 3, 5, end - 3).next_offset == end - 3, "an end that was passed meanwhile"

    def test_what_is_fetched_ahead_reads_as_it_would_have(self, log: Log, topic: TopicSpec, at: TopicPartition) -> None:
        """A hint changes nothing: the read tells of records, of the end, and of what is wrong with a place."""
        second, nowhere = partition_of(topic, 1), partition_of(topic, 7)
        log.append(at, some_records(20))
        log.append(second, some_records(3))
        log.fetch_ahead({at: 5, second: 3, nowhere: 0})
        log.fetch_ahead({at: 5})
        assert keys(log, at, 5) == [f"key-{number}".encode() for number in range(5, 20)]
        assert log.read(second, 3, 10).next_offset == 3
        log.fetch_ahead({second: 4})
        with pytest.raises(Failed) as beyond:
            log.read(second, 4, 1)
        assert (beyond.value.code, beyond.value.found) == ("offset_out_of_range", 4)
        with pytest.raises(AnewError) as unknown:
            log.read(nowhere, 0, 1)
        assert unknown.value.code == "unknown_partition"

    @pytest.mark.case("rules:R3")
    def test_what_was_fetched_ahead_of_a_topic_that_is_gone_is_lost(self, log: Log, at: TopicPartition) -> None:
        """Records of a topic that was made again do not pass for those that a hint was given for."""
        log.append(at, some_records(3, "old"))
        log.fetch_ahead({at: 0})
        log.delete_topic("flights_rt", "uid-1")
        log.append(partition_of(log.create_topic(AGAIN)), some_records(9, "new"))
        with pytest.raises(Failed) as caught:
            log.read(at, 0, 10)
        assert caught.value.code == "topic_lost"

    @pytest.mark.case("rules:R3")
    def test_a_position_beyond_the_end_is_an_error(self, log: Log, at: TopicPartition) -> None:
        """A reader that is past the end learns that the log lost its tail instead of waiting or jumping."""
        log.append(at, some_records(3))
        assert log.read(at, 3, 1).next_offset == 3
        with pytest.raises(Failed) as caught:
            log.read(at, 4, 1)
        assert (caught.value.code, caught.value.found) == ("offset_out_of_range", 4)

    def test_other_columns_are_refused(self, log: Log, at: TopicPartition) -> None:
        """A batch of another shape, or with a null key, is refused whole."""
        good = some_records(2)
        nulls: Any = pa.array([b"a", None], pa.binary())
        key = good.schema.get_field_index("key")
        for bad in (good.drop_columns(["origin"]), good.set_column(key, pa.field("key", pa.binary()), nulls)):
            with pytest.raises(InvalidRequest):
                log.append(at, bad)
        assert log.offsets(at) == Offsets(0, 0)

    def test_several_threads_get_dense_offsets(self, log: Log, at: TopicPartition) -> None:
        """Appends at once neither share nor leave out an offset, and each is told its own."""
        batches = [some_records(1 + number % 5, f"batch-{number}") for number in range(60)]
        with ThreadPoolExecutor(8) as pool:
            acknowledged = list(pool.map(lambda batch: log.append(at, batch), batches))
        found = keys(log, at)
        assert len(found) == sum(batch.num_rows for batch in batches)
        for appended, batch in zip(acknowledged, batches, strict=True):
            assert found[appended.first_offset : appended.next_offset] == batch.column("key").to_pylist()

    def test_one_bad_batch_spares_its_neighbours(self, log: Log, at: TopicPartition) -> None:
        """Of appends at once, just the one with a bad time is refused; the others are whole."""
        batches = [append_records([f"{n}".encode()], [b"v"], [0 if n % 10 == 0 else None]) for n in range(40)]

        def append(batch: pa.RecordBatch) -> str:
            try:
                log.append(at, batch)
            except InvalidRequest as error:
                return error.code
            return "appended"

        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(append, batches))
        assert outcomes == ["written_at_out_of_range" if n % 10 == 0 else "appended" for n in range(40)]
        assert sorted(keys(log, at)) == sorted(f"{n}".encode() for n in range(40) if n % 10)

    def test_a_second_handle_sees_the_records(
        self, log: Log, at: TopicPartition, tmp_path: Path, clock: Callable[[], int]
    ) -> None:
        """What one handle acknowledged, another one reads, and goes on where it ended."""
        log.append(at, some_records(3))
        other = self.open_log(tmp_path, clock)
        assert keys(other, at) == keys(log, at)
        assert other.append(at, some_records(1)).first_offset == 3
        assert log.offsets(at) == Offsets(0, 4)
        other.close()

    # -- times -------------------------------------------------------------------------------------------------------

    @pytest.mark.case("rules:R6")
    @pytest.mark.parametrize("ahead_ms", [2 * SKEW_LIMIT_MS, None])
    def test_given_times_are_checked(
        self, log: Log, at: TopicPartition, clock: Callable[[], int], ahead_ms: int | None
    ) -> None:
        """A time of 0 or beyond append time + limit refuses the whole batch and names the row."""
        bad = 0 if ahead_ms is None else clock() + ahead_ms
        with pytest.raises(InvalidRequest) as caught:
            log.append(at, append_records([b"a", b"b", b"c"], [b"1", b"2", b"3"], [None, 1, bad]))
        assert (caught.value.code, caught.value.found) == ("written_at_out_of_range", bad)
        assert "row 2" in caught.value.message
        assert log.offsets(at) == Offsets(0, 0)

    @pytest.mark.case("rules:R6")
    def test_given_times_may_reach_the_limits(self, log: Log, at: TopicPartition, clock: Callable[[], int]) -> None:
        """The least and the greatest allowed time are taken."""
        times = [1, clock() + SKEW_LIMIT_MS]
        log.append(at, append_records([b"a", b"b"], [b"1", b"2"], times))
        assert [row["written_ms"] for row in rows(log, at)] == times

    # -- truncation --------------------------------------------------------------------------------------------------

    def test_truncation_moves_the_begin(self, log: Log, at: TopicPartition) -> None:
        """Truncated records are gone, reading them is an error, and going back changes nothing."""
        log.append(at, some_records(5))
        log.truncate_below(at, 3)
        log.truncate_below(at, 1)
        assert log.offsets(at) == Offsets(3, 5)
        assert [row["offset"] for row in rows(log, at, 3)] == [3, 4]
        with pytest.raises(Failed) as caught:
            log.read(at, 2, 10)
        assert (caught.value.code, caught.value.found) == ("offset_out_of_range", 2)

    def test_truncation_beyond_the_end_is_refused(self, log: Log, at: TopicPartition) -> None:
        """What was never written cannot be forgotten."""
        log.append(at, some_records(5))
        with pytest.raises(Refused) as caught:
            log.truncate_below(at, 6)
        assert caught.value.code == "offset_out_of_range"
        assert log.offsets(at) == Offsets(0, 5)

    @pytest.mark.case("rules:R3")
    def test_an_emptied_partition_goes_on_counting(
        self, log: Log, at: TopicPartition, tmp_path: Path, clock: Callable[[], int]
    ) -> None:
        """Offsets survive the truncation of every record, also for a handle opened afterwards."""
        log.append(at, some_records(5))
        log.truncate_below(at, 5)
        assert log.offsets(at) == Offsets(5, 5)
        assert log.read(at, 5, 10).next_offset == 5
        other = self.open_log(tmp_path, clock)
        assert other.append(at, some_records(1)).first_offset == 5
        other.close()

    # -- setting aside -----------------------------------------------------------------------------------------------

    @pytest.fixture
    def aside(self, log: Log) -> Iterator[TopicPartition]:
        """Where records are set aside."""
        made = log.create_topic(TopicSpec("flights_dead_letters", "uid-3", 1))
        yield partition_of(made)
        log.delete_topic(made.name, made.uid)

    def test_records_are_set_aside_as_they_are(self, log: Log, at: TopicPartition, aside: TopicPartition) -> None:
        """In the order of the log, with their bytes; again means once more; what is gone is left out."""
        log.append(at, append_records([b"a", b"b", b"c", b"d"], [b"1", b"2", None, b"4"]))
        wanted = [SetAside(3, "last"), SetAside(0, "first"), SetAside(2, "a delete")]
        assert log.set_aside(at, wanted, aside) == 3
        found = [(row["key"], row["value"]) for row in rows(log, aside)]
        assert found == [(b"a", b"1"), (b"c", None), (b"d", b"4")]
        log.truncate_below(at, 2)
        assert log.set_aside(at, wanted, aside) == 2
        assert keys(log, aside, 3) == [b"c", b"d"]
        log.truncate_below(at, 4)
        assert log.set_aside(at, wanted, aside) == 0
        assert log.offsets(aside).end == 5
        assert [row["key"] for row in rows(log, at, 4)] == []

    def test_nothing_is_set_aside_in_another_topic_of_the_name(
        self, log: Log, at: TopicPartition, aside: TopicPartition
    ) -> None:
        """The topic that was asked for, or none."""
        log.append(at, some_records(2))
        with pytest.raises(Failed) as caught:
            log.set_aside(at, [SetAside(0, "bad")], replace(aside, uid="another"))
        assert caught.value.code == "topic_lost"
        assert rows(log, aside) == []


class ClockedLogContract(LogContract):
    """What a log promises whose append times are those of the clock that it was given, and never run backwards."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        """The log's clock."""
        return ManualClock()

    @pytest.mark.case("rules:R6")
    def test_a_given_time_just_beyond_the_limit_is_refused(
        self, log: Log, at: TopicPartition, clock: ManualClock
    ) -> None:
        """The limit is the append time and the skew limit, to the millisecond."""
        with pytest.raises(InvalidRequest):
            log.append(at, append_records([b"a"], [b"1"], [clock.now_ms + SKEW_LIMIT_MS + 1]))
        log.append(at, append_records([b"a"], [b"1"], [clock.now_ms + SKEW_LIMIT_MS]))

    @pytest.mark.case("rules:R6")
    def test_times_never_run_backwards(self, log: Log, at: TopicPartition, clock: ManualClock) -> None:
        """When the clock steps back, by no more than the limit, records carry the last time instead."""
        noon = clock.now_ms
        log.append(at, some_records(1))
        clock.advance(-SKEW_LIMIT_MS)
        assert log.append(at, some_records(1)).last_ms == noon
        assert [row["appended_ms"] for row in rows(log, at)] == [noon, noon]

    @pytest.mark.case("rules:R6")
    def test_a_clock_too_far_behind_is_refused(self, log: Log, at: TopicPartition, clock: ManualClock) -> None:
        """A clock further behind than the limit stops appends, and nothing is changed; it goes on afterwards."""
        log.append(at, some_records(1))
        clock.advance(-SKEW_LIMIT_MS - 1)
        with pytest.raises(Refused) as caught:
            log.append(at, some_records(1))
        assert caught.value.code == "clock_behind"
        assert log.offsets(at) == Offsets(0, 1)
        clock.advance(1)
        assert log.append(at, some_records(1)).first_offset == 1

    def test_offsets_are_found_by_time(self, log: Log, at: TopicPartition, clock: ManualClock) -> None:
        """The first offset at or after a time; the end when there is none; the begin for any earlier time."""
        assert log.offset_for_time(at, clock.now_ms) == 0
        noon = clock.now_ms
        for count in (2, 3, 1):
            log.append(at, some_records(count))
            clock.advance(10)
        expected = {0: 0, noon: 0, noon + 1: 2, noon + 10: 2, noon + 11: 5, noon + 20: 5, noon + 21: 6}
        assert {time: log.offset_for_time(at, time) for time in expected} == expected
        log.truncate_below(at, 4)
        assert log.offset_for_time(at, 0) == 4

    @pytest.mark.case("rules:R3")
    def test_an_emptied_partition_remembers_its_last_time(
        self, log: Log, at: TopicPartition, tmp_path: Path, clock: ManualClock
    ) -> None:
        """Times survive the truncation of every record, also for a handle opened afterwards."""
        last = log.append(at, some_records(5)).last_ms
        log.truncate_below(at, 5)
        assert log.offsets(at) == Offsets(5, 5)
        assert log.read(at, 5, 10).next_offset == 5
        clock.advance(-1_000)
        other = self.open_log(tmp_path, clock)
        appended = other.append(at, some_records(1))
        assert (appended.first_offset, appended.last_ms) == (5, last)
        other.close()
