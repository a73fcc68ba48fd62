"""A producer that was fenced, and answers that never came: what is unknown is looked up in the log."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from anew.brokers.cluster import Brokers
from anew.core.errors import OutcomeUnknown, Unreachable
from anew.log.interface import Offsets, TopicPartition, TopicSpec
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.testing.builders import some_records
from anew.testing.log_reading import keys, partition_of
from tests.cluster.commands import wait_until
from tests.kafka.topics import QUIET

_TOPIC = TopicSpec("fenced_rt", "uid-fenced", 1)


@pytest.fixture
def patient(brokers: Brokers) -> Iterator[KafkaLog]:
    """A log on the tier's broker for what comes after a fault: who stood still may need long to find back."""
    patient = KafkaLog(brokers.bootstrap, clock=now_ms, timeout_seconds=60.0)
    yield patient
    patient.close()


@pytest.fixture
def log(brokers: Brokers, patient: KafkaLog) -> Iterator[KafkaLog]:
    """Another one, whose operations end soon."""
    log = KafkaLog(brokers.bootstrap, clock=now_ms, timeout_seconds=3.0)
    yield log
    log.close()
    patient.delete_topic(_TOPIC.name, _TOPIC.uid)


@pytest.fixture
def at(patient: KafkaLog) -> TopicPartition:
    """The one partition of a topic."""
    return partition_of(patient.create_topic(_TOPIC))


@pytest.mark.case("rules:R7")
def test_what_a_fenced_producer_left_is_never_seen(brokers: Brokers, log: KafkaLog, at: TopicPartition) -> None:
    """Another one takes its transactional id: its open transaction is aborted; ours, which have none, are not hit."""
    first, second = (_producer(brokers) for _ in range(2))
    first.init_transactions(30)
    first.begin_transaction()
    first.produce(at.topic, key=b"\x00\x00\x00\x00\x01zombie", value=None, partition=0)
    assert first.flush(30) == 0
    log.append(at, some_records(1, "ours"))
    assert log.offsets(at) == Offsets(0, 0), "the open transaction holds the end back"
    second.init_transactions(30)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(30)
    assert caught.value.args[0].code() == KafkaError._FENCED
    wait_until(lambda: log.offsets(at).end == 3, "the end of the transaction")
    assert keys(log, at) == [b"ours-0"]
    assert log.append(at, some_records(1, "later")).first_offset == 3


def test_an_append_whose_answer_never_came_is_looked_up(
    brokers: Brokers, log: KafkaLog, patient: KafkaLog, at: TopicPartition
) -> None:
    """The broker stands still in the middle of an append: either it is found in the log, or it is called unknown."""
    log.append(at, some_records(1, "before"))
    found: list[object] = []

    def append() -> None:
        try:
            found.append(log.append(at, some_records(3, "doubtful")))
        except OutcomeUnknown as error:
            found.append(error.code)
        except Unreachable:
            found.append("not appended")

    brokers.kill(1, signal.SIGSTOP)
    thread = threading.Thread(target=append)
    try:
        thread.start()
        thread.join(60)
    finally:
        brokers.kill(1, signal.SIGCONT)
    assert found, "it ended in its time, and said how"
    patient.append(at, some_records(1, "after"))
    there = keys(patient, at)
    doubtful = [key for key in there if key.startswith(b"doubtful")]
    # All or nothing, once; and only an answer that was unknown leaves both open.
    assert doubtful in ([], [b"doubtful-0", b"doubtful-1", b"doubtful-2"])
    if found == ["not appended"]:
        assert doubtful == []
    assert (there[0], there[-1]) == (b"before-0", b"after-0")


def _producer(brokers: Brokers) -> Producer:
    return Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": "fenced"}, logger=QUIET)
