"""Topics and records for tests of brokers, through librdkafka."""

from __future__ import annotations

import logging

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

_SECONDS = 60.0
QUIET = logging.getLogger("tests.kafka")
"""For clients that are meant to fail: what they say goes nowhere."""
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


def make_topic(bootstrap: str, name: str, copies: int = 1) -> None:
    """Make a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET)
    topic = NewTopic(name, num_partitions=1, replication_factor=copies)
    admin.create_topics([topic], operation_timeout=_SECONDS)[name].result(_SECONDS)


def write(bootstrap: str, name: str, values: list[bytes], compression: str = "none") -> None:
    """Write records; all of them are acknowledged by all copies."""
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "compression.type": compression}, logger=QUIET)
    for value in values:
        producer.produce(name, value, on_delivery=lambda error, _record: failures.append(str(error)) if error else None)
    left = producer.flush(_SECONDS)
    assert (left, failures) == (0, []), (left, failures)


def read(bootstrap: str, name: str, count: int) -> list[bytes]:
    """The first records of a topic, so many."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "tests", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "error"}, logger=QUIET)
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        found = consumer.consume(count, _SECONDS)
    finally:
        consumer.close()
    assert [str(message.error()) for message in found if message.error()] == []
    return [message.value() or b"" for message in found]
