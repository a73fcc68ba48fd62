"""What every log promises of partitions that are added to a topic, as tests; see `anew.log.interface`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anew.core.errors import AnewError, Failed, InvalidRequest, Refused
from anew.log.interface import Log, Offsets, TopicPartition, TopicSpec, present_partitions
from anew.testing.builders import some_records
from anew.testing.log_contract import AGAIN, TOPIC, LogContract
from anew.testing.log_reading import keys, partition_of

_NOTICED_SECONDS = 10.0


class PartitionsContract(LogContract):
    """`LogContract`, and what becomes of a topic that gets more partitions."""

    def test_partitions_that_are_added_are_empty_and_take_records(
        self, log: Log, topic: TopicSpec, tmp_path: Path, clock: Callable[[], int]
    ) -> None:
        """The new ones begin at 0 and take records, through handles that were open before; the old ones stay."""
        other = self.open_log(tmp_path, clock)
        for handle in (log, other):
            # Each handle knows the topic with its first partitions.
            handle.append(partition_of(topic, 1), some_records(2))
            assert len(keys(handle, partition_of(topic, 1))) >= 2
            assert handle.partition_count(topic.name, topic.uid) == 2
        assert log.add_partitions(topic.name, topic.uid, 4) == 4
        assert log.offsets(partition_of(topic, 3)) == Offsets(0, 0)
        assert _noticed(other, topic, 4)
        assert other.append(partition_of(topic, 3), some_records(3)).first_offset == 0
        assert log.append(partition_of(topic, 2), some_records(1)).first_offset == 0
        for handle in (log, other):
            held = [len(keys(handle, at)) for at in present_partitions(handle, topic.name, topic.uid)]
            assert held == [0, 4, 1, 3]
            assert len(handle.facts(topic.name, topic.uid).partitions) == 4
        found = log.topic(topic.name)
        assert found is not None
        assert (found.uid, found.partitions) == (topic.uid, 4)
        other.close()

    def test_as_many_partitions_as_there_are_change_nothing(self, log: Log, topic: TopicSpec) -> None:
        """A repeat finds what the first attempt made, with the records that were written since."""
        assert log.add_partitions(topic.name, topic.uid, 2) == 2
        for _ in range(2):
            assert log.add_partitions(topic.name, topic.uid, 3) == 3
            log.append(partition_of(topic, 2), some_records(1))
        assert log.offsets(partition_of(topic, 2)) == Offsets(0, 2)

    def test_fewer_partitions_are_refused(self, log: Log, topic: TopicSpec, at: TopicPartition) -> None:
        """Nothing is taken away, nor is anything made of a number that no topic can have."""
        log.append(at, some_records(2))
        with pytest.raises(Refused) as refused:
            log.add_partitions(topic.name, topic.uid, 1)
        assert refused.value.code == "fewer_partitions"
        with pytest.raises(InvalidRequest) as invalid:
            log.add_partitions(topic.name, topic.uid, 1_000_000)
        assert invalid.value.code == "bad_topic"
        assert log.partition_count(topic.name, topic.uid) == 2
        assert log.offsets(at) == Offsets(0, 2)

    @pytest.mark.case("rules:R3")
    def test_another_topic_of_the_name_gets_no_partitions(self, log: Log, topic: TopicSpec) -> None:
        """Of a topic that is gone, or was made again, nobody adds or counts partitions for the one before."""
        log.delete_topic(topic.name, topic.uid)
        acts: list[Callable[[], object]] = [
            lambda: log.add_partitions(topic.name, topic.uid, 3),
            lambda: log.partition_count(topic.name, topic.uid),
        ]
        for _ in range(2):
            for act in acts:
                with pytest.raises(Failed) as caught:
                    act()
                assert caught.value.code == "topic_lost"
            made = log.create_topic(AGAIN)
        assert log.partition_count(made.name, made.uid) == TOPIC.partitions

    def test_a_partition_that_was_not_added_is_unknown(self, log: Log, topic: TopicSpec) -> None:
        """Behind the last partition there is none, before and after the topic got more."""
        for partition in (2, 3):
            with pytest.raises(AnewError) as caught:
                log.offsets(partition_of(topic, partition))
            assert caught.value.code == "unknown_partition"
            log.add_partitions(topic.name, topic.uid, partition + 1)
            assert log.offsets(partition_of(topic, partition)) == Offsets(0, 0)


def _noticed(log: Log, topic: TopicSpec, partitions: int) -> bool:
    """Whether a handle tells of so many partitions within seconds."""
    deadline = time.monotonic() + _NOTICED_SECONDS
    while log.partition_count(topic.name, topic.uid) != partitions:
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.05)
    return True
