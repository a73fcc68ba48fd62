"""A broker that is written to and read from, in a JVM that notes which classes it loads: ``... FOLDER OPTIONS``."""

from __future__ import annotations

import os
import signal
import sys
from time import time_ns

from anew.brokers.configuration import BrokerSettings
from anew.log.interface import TopicPartition, TopicSpec
from anew.log.kafka.kafka_log import KafkaLog
from anew.testing.builders import append_records
from tests.brokers import running_brokers
from tests.cluster.commands import wait_until


def main(options: str) -> None:
    """Run it to its end, at which the JVM writes its notes."""
    with running_brokers(BrokerSettings(environment={1: {"JDK_JAVA_OPTIONS": options}})) as brokers:
        log = KafkaLog(brokers.cluster.bootstrap, clock=lambda: time_ns() // 1_000_000)
        topic = log.create_topic(TopicSpec("loading_rt", "loading", 1))
        at = TopicPartition(topic.name, topic.uid, 0)
        log.append(at, append_records([b"key"], [b"value"]))
        assert log.read(at, 0, 1).records.num_rows == 1
        log.set_open(topic, is_open=False, epoch=1)
        log.truncate_below(at, 1)
        log.delete_topic(topic.name, topic.uid)
        log.close()
        os.kill(brokers.pid, signal.SIGTERM)
        wait_until(lambda: brokers.cluster.pid(1) is None, "the end of the broker")


if __name__ == "__main__":
    main(sys.argv[2])
