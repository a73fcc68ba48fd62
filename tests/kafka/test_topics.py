"""Topics of our own on Kafka: the brokers keep them, and other programs write and read them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from anew.brokers.cluster import Brokers
from anew.log.interface import PartitionFacts, Retention, TopicPartition
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.testing.raw_contract import raw_records
from tests.cluster.commands import Anew, wait_until
from tests.kafka.clusters import running_on
from tests.kafka.topics import QUIET, read, write

_SECONDS = 60.0


@pytest.fixture(scope="module")
def topics(brokers: Brokers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Anew]:
    """A cluster whose log is on brokers."""
    home = tmp_path_factory.mktemp("topics") / "home"
    with running_on(brokers, "kafka topics", home, reclaim_grace_seconds=1) as anew:
        yield anew


def _settings(brokers: Brokers, topic: str) -> dict[str, str | None]:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap}, logger=QUIET)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(_SECONDS)
    return {name: entry.value for name, entry in found.items()}


def test_a_topic_is_shared_with_other_programs(topics: Anew, brokers: Brokers) -> None:
    """What anew writes others read byte for byte, and the other way round; retention is the brokers' business."""
    topics.here("topic", "create", "shared_topic", "--retention-seconds", "3600", "--retention-bytes", "1000000")
    settings = _settings(brokers, "shared_topic")
    assert (settings["retention.ms"], settings["retention.bytes"]) == ("3600000", "1000000")
    assert settings["cleanup.policy"] == "delete"
    topics.here("topic", "write", "shared_topic", "--key-field", "a", stdin='{"a":  "k"}\n')
    assert read(brokers.bootstrap, "shared_topic", 1) == [b'{"a":  "k"}']
    write(brokers.bootstrap, "shared_topic", [b'{"b": 2}', b"no JSON"])
    found = topics.here("topic", "read", "shared_topic")
    assert [(row["key"], row["value"], row["flaw"] is None) for row in found] == [
        ("k", {"a": "k"}, True),
        (None, {"b": 2}, True),
        (None, None, False),
    ]
    facts = topics.here("topic", "show", "shared_topic")["facts"]
    assert (facts["retention_seconds"], facts["retention_bytes"], facts["compacted"]) == (3600.0, 1_000_000, False)
    (partition,) = facts["partitions"]
    assert (partition["begin"], partition["end"], partition["oldest_ms"]) == (0, 3, found[0]["timestamp_ms"])


def test_a_deleted_topic_leaves_the_brokers(topics: Anew, brokers: Brokers) -> None:
    """After the grace, by its identity; a topic that another program made is in the way and stays."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap}, logger=QUIET)
    topics.here("topic", "create", "passing")
    topics.here("topic", "delete", "passing", "--yes")
    wait_until(lambda: "passing" not in admin.list_topics(timeout=_SECONDS).topics, "the topic to go")
    admin.create_topics([NewTopic("foreign", num_partitions=1)])["foreign"].result(_SECONDS)
    refused = topics.run_here("topic", "create", "foreign")
    assert (refused.code, refused.error["code"]) == (3, "topic_exists")


def test_the_facts_of_a_foreign_topic(brokers: Brokers) -> None:
    """A topic that another program made tells its retention, its compaction and its oldest record, and is read raw."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap}, logger=QUIET)
    config = {"cleanup.policy": "compact,delete", "retention.ms": "7000000", "message.timestamp.type": "CreateTime"}
    admin.create_topics([NewTopic("compacted", num_partitions=1, config=config)])["compacted"].result(_SECONDS)
    log = KafkaLog(brokers.bootstrap, clock=now_ms)
    try:
        spec = log.topic("compacted")
        assert spec is not None
        at, written_ms = TopicPartition(spec.name, spec.uid, 0), now_ms() - 60_000
        log.append_raw(at, raw_records([(b"k", b"1"), (b"k", None)], [written_ms, None]))
        first, second = log.read_raw(at, 0, 10, 2).records.to_pylist()
        assert first["timestamp_ms"] == written_ms < second["timestamp_ms"], "a topic that keeps its writers' times"
        facts = log.facts(spec.name, spec.uid)
        assert (facts.compacted, facts.retention) == (True, Retention(7_000_000, None))
        assert facts.partitions == (PartitionFacts(0, 2, written_ms),)
    finally:
        log.close()
