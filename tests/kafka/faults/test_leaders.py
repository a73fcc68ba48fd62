"""A partition whose leader is gone: whoever knew that leader finds the next one in time, within seconds."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka.admin import AdminClient

from anew.brokers.cluster import Brokers
from anew.core.errors import OutcomeUnknown, Unreachable
from anew.log.interface import Appended, Log, Offsets, TopicPartition, TopicSpec
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.testing.builders import some_records
from anew.testing.log_reading import keys_below, partition_of
from tests.cluster.commands import wait_until
from tests.kafka.topics import QUIET

_SECONDS = 60.0
"""Much longer than a broker's session and an operation, much shorter than clients keep what they know of a cluster."""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_who_knew_the_leader_finds_the_next(cluster: Brokers, number: signal.Signals) -> None:
    """Begin, end, times and records are there again for clients that used them before, and that only used them."""
    name = f"led_{number.name}"
    logs = [KafkaLog(cluster.bootstrap, clock=now_ms) for _ in range(2)]
    topic = logs[0].create_topic(TopicSpec(name, f"uid of {name}", 1))
    at = partition_of(topic)
    logs[0].append(at, some_records(5, "before"))
    assert [log.offsets(at).end for log in logs] == [5, 5]
    cluster.kill(_leader_of(cluster, name), number)
    wait_until(lambda: _ends(logs[1], at) == Offsets(0, 5), "the partition's end, by who only asks for it", _SECONDS)
    assert logs[1].offset_for_time(at, 0) == 0
    assert len(keys_below(logs[1], at, 0, 5)) == 5
    appended: list[Appended] = []
    wait_until(lambda: _append(logs[0], at, appended), "an append to the next leader", _SECONDS)
    assert keys_below(logs[1], at, 0, appended[0].next_offset)[5:] == [b"after-0", b"after-1"]
    logs[1].truncate_below(at, 3)
    assert logs[1].offsets(at) == Offsets(3, 7)
    for log in logs:
        log.close()


def _ends(log: Log, at: TopicPartition) -> Offsets | None:
    try:
        return log.offsets(at)
    except Unreachable:
        return None


def _append(log: Log, at: TopicPartition, appended: list[Appended]) -> bool:
    """What was under way to a leader that stands still is unknown, and never comes: that one leads no more."""
    try:
        appended.append(log.append(at, some_records(2, "after")))
    except (Unreachable, OutcomeUnknown):
        return False
    return True


def _leader_of(cluster: Brokers, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap}, logger=QUIET)
    leader: int = admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
    return leader
