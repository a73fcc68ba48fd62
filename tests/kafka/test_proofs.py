"""What a reader asks brokers of partitions of which nothing is heard."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

import pytest

from anew.brokers.cluster import Brokers
from anew.core.errors import Failed
from anew.log.interface import Offsets, TopicPartition, TopicSpec
from anew.log.kafka import reading
from anew.log.kafka.connection import Connection
from anew.log.kafka.kafka_log import KafkaLog
from anew.log.kafka.ranges import Ranges
from anew.log.kafka.topics import Topics
from anew.runtime.clock import now_ms
from anew.testing.builders import some_records
from tests.cluster.commands import wait_until

_PARTITIONS = 24


@pytest.fixture
def log(brokers: Brokers) -> Iterator[KafkaLog]:
    """A handle on the broker's topics."""
    log = KafkaLog(brokers.bootstrap, clock=now_ms)
    yield log
    log.close()


@pytest.fixture
def ats(log: KafkaLog) -> Iterator[list[TopicPartition]]:
    """The partitions of a topic of the test's own."""
    name = f"proofs-{now_ms()}"
    topic = log.create_topic(TopicSpec(name, name, _PARTITIONS))
    yield [TopicPartition(topic.name, topic.uid, number) for number in range(_PARTITIONS)]
    left = log.topic(topic.name)
    if left is not None:
        log.delete_topic(left.name, left.uid)


def test_still_partitions_are_proved_together(
    log: KafkaLog, ats: list[TopicPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are still, one request asks for the ends of all; none is asked for by itself."""
    offsets, ends = Ranges.offsets, Ranges.ends
    alone: list[TopicPartition] = []
    together: list[int] = []

    def counted(self: Ranges, at: TopicPartition) -> Offsets:
        alone.append(at)
        return offsets(self, at)

    def counted_together(self: Ranges, asked: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        together.append(len(asked))
        return ends(self, asked)

    for at in ats:
        assert log.read(at, 0, 10).next_offset == 0
    monkeypatch.setattr(reading, "_PROOF_SECONDS", 0.4)
    monkeypatch.setattr(Ranges, "offsets", counted)
    monkeypatch.setattr(Ranges, "ends", counted_together)

    def read_all() -> bool:
        assert [log.read(at, 0, 10).next_offset for at in ats] == [0] * _PARTITIONS
        return len(together) >= 3

    began = time.monotonic()
    wait_until(read_all, "three proofs")
    assert alone == []
    assert max(together) == _PARTITIONS
    assert len(together) <= 2 * (time.monotonic() - began) / 0.4 + 2


def test_ends_are_those_of_the_topics_that_were_asked_for(
    log: KafkaLog, ats: list[TopicPartition], brokers: Brokers
) -> None:
    """Of a topic that is not there, or was made again, no end is told."""
    log.append(ats[3], some_records(5))
    connection = Connection(brokers.bootstrap, {}, 10.0)
    ranges = Ranges(connection, Topics(connection))
    another = TopicPartition(ats[0].topic, "AAAAAAAAAAAAAAAAAAAAAA", 0)
    missing = TopicPartition("nowhere_rt", "AAAAAAAAAAAAAAAAAAAAAA", 0)
    # Those that cannot be told are left out: on a busy machine the first question may meet no connection yet.
    wait_until(lambda: len(ranges.ends(ats)) == _PARTITIONS, "all ends to be told")
    with connection.operation():
        found = ranges.ends(ats)
        assert {at.partition for at, end in found.items() if end == 5} == {3}
        assert len(found) == _PARTITIONS
        assert ranges.ends([another, missing]) == {}
    connection.close()


def test_a_still_partition_of_a_topic_that_went_is_lost(
    log: KafkaLog, ats: list[TopicPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads on at the end of a topic that was deleted is told so, although nothing comes any more."""
    monkeypatch.setattr(reading, "_PROOF_SECONDS", 0.4)
    assert log.read(ats[0], 0, 10).next_offset == 0
    log.delete_topic(ats[0].topic, ats[0].uid)

    def lost() -> bool:
        try:
            log.read(ats[0], 0, 10)
        except Failed as error:
            return error.code == "topic_lost"
        return False

    wait_until(lost, "the loss to be said")
