"""The log on Kafka keeps the contract of logs, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anew.brokers.cluster import Brokers
from anew.core.admission import admit
from anew.log.interface import Log, TopicPartition
from anew.log.kafka.kafka_log import KafkaLog
from anew.log.kafka.native import Client
from anew.runtime.clock import now_ms
from anew.testing.builders import a_feed, append_records
from anew.testing.facts_contract import FactsContract
from anew.testing.log_contract import SKEW_LIMIT_MS, TOPIC, LogContract
from anew.testing.log_reading import keys_below
from anew.testing.partitions_contract import PartitionsContract
from anew.testing.raw_contract import RawContract
from anew.testing.telling_contract import check_appends_are_told_of


class TestKafkaLog(RawContract, FactsContract, PartitionsContract, LogContract):
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

    def test_a_reader_that_jumps_a_little_goes_on_where_it_fetches(
        self, log: Log, at: TopicPartition, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Over records that wait; back, or far ahead, it begins anew. What is read is what lies there."""
        begun: list[int] = []
        start = Client.start

        def counted(client: Client, topic: str, partition: int, offset: int, key_schema_id: int | None) -> Any:
            begun.append(offset)
            return start(client, topic, partition, offset, key_schema_id)

        monkeypatch.setattr(Client, "start", counted)
        monkeypatch.setattr("anew.log.kafka.reading._SKIPPED_RECORDS", 50)
        count = 200
        log.append(at, append_records([b"%03d" % n for n in range(count)], [b"1"] * count))
        for offset in (0, 2, 30, 31, 31, 60, 110, 40, 43, 195, 199, 113):
            end = min(offset + 3, count)
            assert keys_below(log, at, offset, end) == [b"%03d" % n for n in range(offset, end)], offset
        assert begun == [0, 2, 31, 195]

    def test_appends_are_told_of(self, log: Log, at: TopicPartition, tmp_path: Path) -> None:
        """Whoever follows the log hears of each append, and of nothing while there is none."""
        writer = self.open_log(tmp_path, now_ms)
        check_appends_are_told_of(log, writer, at)
        writer.close()
