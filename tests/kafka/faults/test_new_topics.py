"""Brokers hear of a new topic one after the other: none that has not yet makes it pass for lost."""

from __future__ import annotations

from anew.brokers.cluster import Brokers
from anew.log.interface import TopicSpec
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.testing.builders import some_records
from anew.testing.log_reading import partition_of

_TOPICS = 20


def test_a_topic_that_was_just_made_is_never_lost(cluster: Brokers) -> None:
    """Made, looked at and written at once by clients that ask any of three brokers, again and again."""
    makes, writes = (KafkaLog(cluster.bootstrap, clock=now_ms) for _ in range(2))
    for number in range(_TOPICS):
        topic = makes.create_topic(TopicSpec(f"new_{number}_rt", f"uid-new-{number}", 1))
        at = partition_of(topic)
        assert writes.append(at, some_records(2)).next_offset == 2
        assert makes.offsets(at).end == 2
    for log in (makes, writes):
        log.close()
