"""Setting Kafka's records aside, as they are: whatever is wrong with one, its copy has the same bytes and headers."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from anew.core.errors import Failed, OutcomeUnknown
from anew.log.interface import SetAside, TopicPartition
from anew.log.kafka.connection import QUIET, Connection
from anew.log.kafka.failures import DAMAGED, OUT_OF_RANGE, damaged, refusal, unreachable
from anew.log.kafka.ranges import Ranges
from anew.log.kafka.topics import Topics
from anew.log.refusals import out_of_range

_WAIT_SECONDS = 0.1
_FAR_RECORDS = 5_000
"""Records further apart than this are fetched each on its own."""
_OURS = "anew-dead-"
_READS: dict[str, str | int | bool] = {
    "group.id": "anew",
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "check.crcs": True,
    "enable.partition.eof": True,
}
_WRITES: dict[str, str | int | bool] = {"acks": "all", "enable.idempotence": True, "message.max.bytes": 1_000_000_000}


class Aside:
    """Copies records. Safe to use from several threads: nothing is kept between two calls."""

    def __init__(self, connection: Connection, topics: Topics, ranges: Ranges) -> None:
        self._connection, self._topics, self._ranges = connection, topics, ranges

    def copy(self, at: TopicPartition, letters: Sequence[SetAside], to: TopicPartition) -> int:
        """See `Log.set_aside`."""
        self._topics.check(to)
        reasons = {letter.offset: letter.reason for letter in letters}
        found = [(message, _headers(message, reasons)) for message in self._read(at, reasons)]
        self._topics.check(at)
        if found:
            self._write(to, found)
        return len(found)

    def _read(self, at: TopicPartition, offsets: Collection[int]) -> Iterator[Message]:
        """The records at some offsets, in order; those that are gone, or that nobody may see, are left out."""
        present = self._ranges.offsets(at)
        waiting = [offset for offset in sorted(offsets) if present.begin <= offset < present.end]
        consumer = Consumer(self._connection.settings(_READS), logger=QUIET)
        try:
            reached = None
            for offset in waiting:
                if reached is not None and reached > offset:
                    continue
                if reached is None or offset - reached > _FAR_RECORDS:
                    consumer.assign([confluent_kafka.TopicPartition(at.topic, at.partition, offset)])
                message = self._next(consumer, at, offset)
                reached = present.end if message is None else _offset_of(message) + 1
                if message is not None and _offset_of(message) in offsets:
                    yield message
        finally:
            consumer.close()

    def _next(self, consumer: Consumer, at: TopicPartition, offset: int) -> Message | None:
        """The first record from an offset on; None at the end."""
        deadline = time.monotonic() + self._connection.timeout_seconds
        while time.monotonic() < deadline:
            message = consumer.poll(_WAIT_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is None:
                if _offset_of(message) >= offset:
                    return message
            elif error.code() == KafkaError._PARTITION_EOF:
                return None
            elif error.code() in DAMAGED:
                raise damaged(at, offset, error.str())
            elif error.code() in OUT_OF_RANGE:
                present = self._ranges.offsets(at)
                raise out_of_range(at, offset, present.begin, present.end)
            else:
                self._check(error, at)
        words = f"no record from offset {offset} on of partition {at.partition} of {at.topic}"
        raise unreachable(self._connection.bootstrap, words, self._connection.timeout_seconds)

    def _check(self, error: KafkaError, at: TopicPartition) -> None:
        """Raise unless an error of reading may pass."""
        what = f"read {at.topic}"
        try:
            self._connection.passing(KafkaException(error), what)
        except KafkaException:
            raise Failed("log_failed", f"Kafka does not {what}", found=error.str(), hint="look at its logs") from None

    def _write(self, to: TopicPartition, copies: Sequence[tuple[Message, list[tuple[str, bytes]]]]) -> None:
        milliseconds = int(self._connection.timeout_seconds * 1000)
        producer = Producer(self._connection.settings({**_WRITES, "delivery.timeout.ms": milliseconds}), logger=QUIET)
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                errors.append(error)

        for message, headers in copies:
            key: Any = message.key()
            value: Any = message.value()
            producer.produce(
                to.topic,
                value,
                key,
                to.partition,
                on_delivery=delivered,
                headers=headers,  # type: ignore[arg-type]  # its stubs want another list
            )
        left = producer.flush(self._connection.timeout_seconds + 1)
        for error in errors:
            refused = refusal(error.code(), error.str(), f"write to {to.topic}")
            if refused is not None:
                raise refused
        if errors or left:
            raise OutcomeUnknown(
                "append_unknown",
                f"Kafka did not say of all records that they were copied to {to.topic}",
                found=errors[0].str() if errors else f"{left} without an answer",
                expected=f"{len(copies)} acknowledged",
                hint="they are copied again",
            )
        self._topics.check(to)


def _offset_of(message: Message) -> int:
    offset: int | None = message.offset()
    if offset is None:
        raise Failed("log_failed", "Kafka gave a record without an offset", found=None, expected="an offset")
    return offset


def _headers(message: Message, reasons: dict[int, str]) -> list[tuple[str, bytes]]:
    """The record's own headers, and ours: where it was, and why it is set aside."""
    offset = _offset_of(message)
    ours = {
        "topic": str(message.topic()),
        "partition": str(message.partition()),
        "offset": str(offset),
        "timestamp": str(message.timestamp()[1]),
        "reason": reasons[offset],
    }
    theirs: Any = message.headers() or []
    return [*theirs, *((f"{_OURS}{name}", text.encode()) for name, text in ours.items())]
