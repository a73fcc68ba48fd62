"""Transactions of other producers: what is open is not the end yet, what was aborted is never seen (rule R7)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from anew.brokers.cluster import Brokers
from anew.log.interface import Log, Offsets, TopicPartition, TopicSpec
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.testing.builders import some_records
from anew.testing.log_reading import keys, keys_below, partition_of
from tests.cluster.commands import wait_until

_TOPIC = TopicSpec("transacted_rt", "uid-transacted", 1)
_KEY = b"\x00\x00\x00\x00\x01"


@pytest.fixture
def log(brokers: Brokers) -> Iterator[Log]:
    """A log on the broker."""
    log = KafkaLog(brokers.bootstrap, clock=now_ms)
    yield log
    log.delete_topic(_TOPIC.name, _TOPIC.uid)
    log.close()


@pytest.fixture
def at(log: Log) -> TopicPartition:
    """The one partition of a topic."""
    return partition_of(log.create_topic(_TOPIC))


@pytest.fixture
def producer(brokers: Brokers) -> Producer:
    """Somebody else's, with a transaction begun."""
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": "somebody"})
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def _send(producer: Producer, count: int) -> None:
    for number in range(count):
        producer.produce(_TOPIC.name, key=_KEY + b"theirs-%d" % number, value=None, partition=0)
    assert producer.flush(30) == 0


@pytest.mark.case("rules:R7")
def test_an_open_transaction_holds_the_end_back(log: Log, at: TopicPartition, producer: Producer) -> None:
    """Nothing from its first record on can be read until it ends, however much others write; then all of it can."""
    log.append(at, some_records(2, "before"))
    _send(producer, 3)
    log.append(at, some_records(2, "after"))
    assert log.offsets(at) == Offsets(0, 2)
    assert log.next_offset(at) == 7
    assert len(keys(log, at)) == 2
    producer.commit_transaction(30)
    # Their five records, and the one of Kafka's own that ends the transaction, which a broker writes a moment later.
    wait_until(lambda: log.offsets(at).end == 8, "the end of the transaction")
    assert log.next_offset(at) == 8
    found = keys_below(log, at, 2, 8)
    assert [key[:6] for key in found] == [b"theirs"] * 3 + [b"after-"] * 2


@pytest.mark.case("rules:R7")
def test_an_aborted_transaction_is_never_seen(log: Log, at: TopicPartition, producer: Producer) -> None:
    """Its records are passed over, and reading comes to the end although no record is there."""
    log.append(at, some_records(2, "before"))
    _send(producer, 5)
    producer.abort_transaction(30)
    # Its five records, and the one of Kafka's own that ends the transaction, which a broker writes a moment later.
    wait_until(lambda: log.offsets(at).end == 8, "the end of the transaction")
    read = log.read(at, 2, 10, 8)
    assert (read.records.num_rows, read.next_offset) == (0, 8)
    log.append(at, some_records(1, "after"))
    assert [key[:6] for key in keys(log, at)] == [b"before", b"before", b"after-"]


@pytest.mark.case("rules:R7")
@pytest.mark.parametrize("offset", [2, 4, 7, 8])
def test_a_jump_over_an_aborted_transaction_lands_behind_it(
    log: Log, at: TopicPartition, producer: Producer, offset: int
) -> None:
    """A reader that goes on from a place before it, into it or behind it, gets what comes next."""
    log.append(at, some_records(2, "before"))
    _send(producer, 5)
    producer.abort_transaction(30)
    wait_until(lambda: log.offsets(at).end == 8, "the end of the transaction")
    log.append(at, some_records(2, "after"))
    assert len(keys_below(log, at, 0, 1)) == 1
    assert [key[:6] for key in keys_below(log, at, offset, 10)] == [b"after-"] * 2
