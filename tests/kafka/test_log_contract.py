"""The log on Kafka keeps the contract of logs, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anew.brokers.cluster import Brokers
from anew.log.interface import Log, TopicPartition
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.testing.log_contract import SKEW_LIMIT_MS, TOPIC, LogContract
from anew.testing.telling_contract import check_appends_are_told_of


class TestKafkaLog(LogContract):
    """`LogContract` over a broker that all tests share."""

    @pytest.fixture(autouse=True)
    def _on_a_broker(self, brokers: Brokers) -> Iterator[None]:
        self._bootstrap = brokers.bootstrap
        yield
        log = KafkaLog(self._bootstrap, clock=now_ms)
        left = log.topic(TOPIC.name)
        if left is not None:
            log.delete_topic(left.name, left.uid)
        log.close()

    @pytest.fixture
    def clock(self) -> Callable[[], int]:
        """The machine's own, as the broker's is."""
        return now_ms

    def open_log(self, directory: Path, clock: Callable[[], int]) -> Log:
        """A handle on the broker's topics."""
        return KafkaLog(self._bootstrap, clock=clock, skew_limit_ms=SKEW_LIMIT_MS)

    def test_appends_are_told_of(self, log: Log, at: TopicPartition, tmp_path: Path) -> None:
        """Whoever follows the log hears of each append, and of nothing while there is none."""
        writer = self.open_log(tmp_path, now_ms)
        check_appends_are_told_of(log, writer, at)
        writer.close()
