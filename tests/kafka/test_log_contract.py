"""The log on Kafka keeps the contract of logs, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anew.brokers.cluster import Brokers
from anew.core.admission import admit
from anew.log.interface import Log, TopicPartition
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.testing.builders import a_feed, append_records
from anew.testing.facts_contract import FactsContract
from anew.testing.log_contract import SKEW_LIMIT_MS, TOPIC, LogContract
from anew.testing.raw_contract import RawContract
from anew.testing.telling_contract import check_appends_are_told_of


class TestKafkaLog(RawContract, FactsContract, LogContract):
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

    @pytest.mark.case("rules:R6")
    def test_a_time_that_only_the_writer_s_clock_allows_is_rejected(self, at: TopicPartition, tmp_path: Path) -> None:
        """The broker's append time decides, as it does for readers: such a row is never told as applied."""
        ahead_ms = 2 * SKEW_LIMIT_MS
        log = self.open_log(tmp_path, lambda: now_ms() + ahead_ms)
        times = [now_ms(), now_ms() + ahead_ms, None]
        appended = log.append(at, append_records([b"a", b"b", b"c"], [b"1", b"2", b"3"], times))
        assert (appended.next_offset, appended.rejected) == (3, (1,))
        read = log.read(at, 0, 10, 3).records
        feed = a_feed(partitions=1, partitioner="any", skew_limit_ms=SKEW_LIMIT_MS)
        assert [letter.offset for letter in admit(feed, 0, 0, read, [1]).rejected] == [1]
        log.close()

    def test_appends_are_told_of(self, log: Log, at: TopicPartition, tmp_path: Path) -> None:
        """Whoever follows the log hears of each append, and of nothing while there is none."""
        writer = self.open_log(tmp_path, now_ms)
        check_appends_are_told_of(log, writer, at)
        writer.close()
