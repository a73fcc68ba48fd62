"""Appends whose answer was lost: what is known of them, and whether they are in the log."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException

from anew.core.errors import PartlyDone
from anew.log.interface import Appended, TopicPartition
from anew.log.kafka.connection import QUIET, Connection
from anew.log.kafka.failures import unreachable
from anew.log.kafka.native import APPEND_HEADER, Client, Sent
from anew.log.kafka.topics import Topics
from anew.log.wire import HEADER_BYTES, has_raw_columns

AGAIN = "repeat the append under its id: where it landed, it is found"
_PAUSE_SECONDS = 0.05
_LOOKED_UP_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Doubt:
    """An append of which nobody said whether it landed.

    Attributes:
        begin: It cannot lie before this offset; None where that was not known when it was sent.
        client: The producer that may still send it while it is open.
        until: When that producer gives it up, by the monotonic clock.
        sent: What was known of its records.
    """

    begin: int | None
    client: Client
    until: float
    sent: Sent


@dataclass(frozen=True, slots=True)
class Found:
    """An append that is in the log.

    Attributes:
        appended_ms: The append time of each record, shape (records,), or the one of all, shape (1,).
    """

    appended: Appended
    appended_ms: npt.NDArray[np.int64]


class Lookup:
    """Looks for appends by their ids."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection, self._topics = connection, topics

    def find(
        self, at: TopicPartition, begin: int, append_id: bytes, records: pa.RecordBatch, end: int | None = None
    ) -> Found | None:
        """The append with an id at or behind ``begin``; None: there is none up to ``end``, or as far as can be read.

        Raises:
            Unreachable: Brokers do not give all records up to there in time.
            KafkaException: Brokers refuse, or have forgotten records from ``begin`` on.
            PartlyDone: ``append_partly``: its last record is there, and not all before it.
            Failed: ``topic_lost``.
        """
        # Also behind transactions of others that are still open, which a reader of committed records does not see.
        told = {"isolation.level": "read_uncommitted", "auto.offset.reset": "error", "group.id": "anew"}
        keys: list[Any] = [key or b"" for key in records.column("key").to_pylist()]
        header_bytes = 0 if has_raw_columns(records) else HEADER_BYTES
        deadline = time.monotonic() + self._connection.timeout_seconds
        consumer = Consumer({**self._connection.settings(told), "enable.partition.eof": "true"}, logger=QUIET)
        recent: deque[tuple[int, bytes, int]] = deque(maxlen=len(keys))
        try:
            consumer.assign([confluent_kafka.TopicPartition(at.topic, at.partition, begin)])
            while time.monotonic() < deadline:
                for message in consumer.consume(_LOOKED_UP_AT_ONCE, _PAUSE_SECONDS):
                    error = message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    offset: Any = message.offset()
                    if error is not None:
                        if end is None or offset > end:
                            return None
                        continue
                    key = bytes(message.key() or b"")[header_bytes:]
                    recent.append((offset, key, message.timestamp()[1]))
                    if (APPEND_HEADER, append_id) in (message.headers() or []):
                        self._topics.check(at)
                        return _whole(at, list(recent), keys)
                    if end is not None and offset >= end:
                        return None
        finally:
            consumer.close()
        raise unreachable(
            self._connection.bootstrap,
            f"not all records from {begin} on of partition {at.partition} of {at.topic}",
            self._connection.timeout_seconds,
        )


def append_partly(at: TopicPartition, landed: int, count: int, found: str) -> PartlyDone:
    """Some records of an append are in the log, and the others are not."""
    return PartlyDone(
        "append_partly",
        f"{landed} of {count} records of an append to partition {at.partition} of {at.topic} are in the log",
        found=found,
        expected="all of them, or none",
        hint="read the keys, and write again what is missing",
    )


def _whole(at: TopicPartition, recent: list[tuple[int, bytes, int]], keys: list[bytes]) -> Found:
    first = recent[-1][0] - len(keys) + 1
    if [(offset, key) for offset, key, _ in recent] != list(zip(range(first, first + len(keys)), keys, strict=True)):
        raise append_partly(at, 1, len(keys), "the last record, and not all others right before it")
    times = np.array([ms for _, _, ms in recent], dtype=np.int64)
    return Found(Appended(first, first + len(keys), int(times[-1])), times)
