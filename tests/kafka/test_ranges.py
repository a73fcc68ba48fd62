"""Bases on a real broker keep the contract of ranges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from anew.brokers.cluster import Brokers
from anew.codec.compression import compressor
from anew.core.arrow import replaced
from anew.core.errors import InvalidRequest
from anew.log.interface import Log, TopicPartition
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.segments.baserange import BaseRangeWriter
from anew.testing.range_contract import TOPIC, RangeContract, some_rows


class TestKafkaRanges(RangeContract):
    """`RangeContract` over a broker that all tests share."""

    @pytest.fixture(autouse=True)
    def _on_a_broker(self, brokers: Brokers) -> None:
        self._bootstrap = brokers.bootstrap

    def open_log(self, directory: Path, clock: Callable[[], int]) -> Log:
        """A handle on the broker's topics."""
        return KafkaLog(self._bootstrap, clock=now_ms)

    def test_a_value_that_the_topic_does_not_take_is_named(self, log: Log, at: TopicPartition) -> None:
        """A base whose value is larger than a message may be ends with both sizes."""
        rows = some_rows(1)
        large = replaced(rows, "value", pa.array([b"x" * (2 * TOPIC.max_record_bytes)], pa.binary()))
        with pytest.raises(InvalidRequest) as caught:
            BaseRangeWriter(log, at, "r-e1-t1", b"{}", compressor("none")).write(large)
        assert caught.value.code == "record_too_large"
