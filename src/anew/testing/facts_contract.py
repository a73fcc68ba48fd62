"""What every log promises of a topic's facts and of its retention, as tests; see `anew.log.interface`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from anew.core.errors import Failed, InvalidRequest
from anew.log.interface import (
    KEEP_FOR_EVER,
    Log,
    Offsets,
    PartitionFacts,
    Retention,
    TopicPartition,
    TopicSpec,
)
from anew.testing.builders import some_records
from anew.testing.clock import ManualClock
from anew.testing.log_contract import AGAIN, TOPIC, ClockedLogContract, LogContract
from anew.testing.log_reading import partition_of, rows

KEPT = Retention(3_600_000, 50_000_000)
_NOTICED_SECONDS = 10.0


class FactsContract(LogContract):
    """`LogContract`, and what a log tells of its topics."""

    def test_the_facts_of_a_new_topic(self, log: Log, topic: TopicSpec) -> None:
        """A topic that was made without a retention keeps its records for ever, is not compacted, and is empty."""
        facts = log.facts(topic.name, topic.uid)
        assert (facts.uid, facts.retention, facts.compacted) == (topic.uid, KEEP_FOR_EVER, False)
        assert facts.partitions == (PartitionFacts(0, 0, None), PartitionFacts(0, 0, None))

    @pytest.mark.parametrize("kept", [KEPT, Retention(KEPT.time_ms, None), Retention(None, KEPT.partition_bytes)])
    def test_a_topic_keeps_the_retention_that_it_was_made_with(
        self, log: Log, kept: Retention, tmp_path: Path, clock: Callable[[], int]
    ) -> None:
        """Another handle tells the retention; making the topic again with another one finds it as it is."""
        made = log.create_topic(replace(TOPIC, retention=kept))
        other = self.open_log(tmp_path, clock)
        assert other.facts(made.name, made.uid).retention == kept
        assert other.create_topic(replace(TOPIC, retention=Retention(7_200_000, None))) == made
        assert other.facts(made.name, made.uid).retention == kept
        other.close()

    def test_a_topic_keeps_from_now_on_what_it_is_told_to(
        self, log: Log, tmp_path: Path, clock: Callable[[], int]
    ) -> None:
        """Longer, for ever, and as before; a topic of the name that is another one is left alone."""
        made = log.create_topic(replace(TOPIC, retention=KEPT))
        other = self.open_log(tmp_path, clock)
        for kept in (KEEP_FOR_EVER, KEPT, Retention(None, 7_000_000), Retention(None, 7_000_000)):
            log.set_retention(made.name, made.uid, kept)
            assert _tells(other, made, kept)
        with pytest.raises(Failed) as caught:
            log.set_retention(made.name, "another", KEPT)
        assert caught.value.code == "topic_lost"
        assert log.facts(made.name, made.uid).retention == Retention(None, 7_000_000)
        other.close()

    @pytest.mark.parametrize("kept", [Retention(0, None), Retention(None, -1)])
    def test_a_retention_of_nothing_is_refused(self, log: Log, kept: Retention) -> None:
        """A topic cannot be made that keeps its records for no time, or in no bytes."""
        with pytest.raises(InvalidRequest) as caught:
            log.create_topic(replace(TOPIC, retention=kept))
        assert caught.value.code == "bad_topic"

    def test_facts_tell_each_partition_s_range_and_oldest_time(
        self, log: Log, topic: TopicSpec, at: TopicPartition
    ) -> None:
        """Begin, end and the append time of the oldest record that is still there, each partition for itself."""
        log.append(at, some_records(3))
        log.append(at, some_records(2))
        oldest = {row["offset"]: row["appended_ms"] for row in rows(log, at)}
        for begin in (0, 1, 3, 5):
            log.truncate_below(at, begin)
            expected = PartitionFacts(begin, 5, oldest.get(begin))
            assert log.facts(topic.name, topic.uid).partitions == (expected, PartitionFacts(0, 0, None))

    @pytest.mark.case("rules:R3")
    def test_the_facts_of_another_topic_of_the_name_are_not_told(self, log: Log, topic: TopicSpec) -> None:
        """A topic that is gone, or was made again, is topic_lost to whoever asks for the one before."""
        log.delete_topic(topic.name, topic.uid)
        for _ in range(2):
            with pytest.raises(Failed) as caught:
                log.facts(topic.name, topic.uid)
            assert caught.value.code == "topic_lost"
            log.create_topic(AGAIN)

    def test_a_retention_that_keeps_all_forgets_nothing(self, log: Log, at: TopicPartition) -> None:
        """Applied to what it keeps, a retention changes nothing and tells the begin."""
        log.append(at, some_records(5))
        log.truncate_below(at, 2)
        for kept in (KEEP_FOR_EVER, KEPT):
            assert log.apply_retention(at, kept) == 2
        assert log.offsets(at) == Offsets(2, 5)


class RetentionContract(FactsContract, ClockedLogContract):
    """What a log promises that applies retention itself, when it is told to."""

    def test_what_is_older_than_its_time_is_forgotten(self, log: Log, at: TopicPartition, clock: ManualClock) -> None:
        """Records go when their time is over, oldest first; a reader below the begin gets an error."""
        for _ in range(3):
            log.append(at, some_records(2))
            clock.advance(10)
        assert log.apply_retention(at, Retention(30, None)) == 0
        assert log.apply_retention(at, Retention(29, None)) == 2
        assert log.apply_retention(at, Retention(30, None)) == 2
        assert log.offsets(at) == Offsets(2, 6)
        with pytest.raises(Failed) as caught:
            log.read(at, 1, 10)
        assert caught.value.code == "offset_out_of_range"
        assert [row["offset"] for row in rows(log, at, 2)] == [2, 3, 4, 5]

    def test_the_newest_record_is_kept(self, log: Log, at: TopicPartition, clock: ManualClock) -> None:
        """However old and large the newest record is, it stays; an empty partition stays empty."""
        assert log.apply_retention(at, Retention(1, 1)) == 0
        for _ in range(3):
            log.append(at, some_records(1))
            clock.advance(10)
        assert log.apply_retention(at, Retention(1, 1)) == 2
        assert log.offsets(at) == Offsets(2, 3)
        assert [row["offset"] for row in rows(log, at, 2)] == [2]
        log.truncate_below(at, 3)
        assert log.apply_retention(at, Retention(1, 1)) == 3

    def test_what_is_beyond_the_size_is_forgotten(
        self, log: Log, topic: TopicSpec, at: TopicPartition, clock: ManualClock
    ) -> None:
        """The newest records stay that fit into the size; the other partition is not asked."""
        other = partition_of(topic, 1)
        for _ in range(40):
            log.append(at, some_records(100, "k" * 100))
            log.append(other, some_records(100, "k" * 100))
        begin = log.apply_retention(at, Retention(None, 200_000))
        assert 2_000 < begin < 3_900
        assert log.apply_retention(at, Retention(None, 200_000)) == begin
        assert log.offsets(at) == Offsets(begin, 4_000)
        assert log.offsets(other) == Offsets(0, 4_000)

    @pytest.mark.case("rules:R3")
    def test_retention_spares_another_topic_of_the_name(self, log: Log, at: TopicPartition, clock: ManualClock) -> None:
        """A topic that was made again is not emptied for the one before."""
        log.append(at, some_records(3))
        log.delete_topic(at.topic, at.uid)
        made = log.create_topic(AGAIN)
        log.append(partition_of(made), some_records(3))
        clock.advance(1_000)
        with pytest.raises(Failed) as caught:
            log.apply_retention(at, Retention(1, None))
        assert caught.value.code == "topic_lost"
        assert log.offsets(partition_of(made)) == Offsets(0, 3)


def _tells(log: Log, topic: TopicSpec, kept: Retention) -> bool:
    """Whether a handle tells of a topic's retention, within seconds."""
    deadline = time.monotonic() + _NOTICED_SECONDS
    while log.facts(topic.name, topic.uid).retention != kept:
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.05)
    return True
