"""Appending to Kafka: idempotent, acknowledged by all replicas in sync; what is unknown is looked up.

The records of an append travel together where they are few enough, and the last one carries an id. So when an answer
was lost it can be seen in the log whether they landed.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException

from anew.core.errors import InvalidRequest, OutcomeUnknown, Refused, Unreachable
from anew.log.interface import APPEND_RECORDS, Appended, TopicPartition, TopicSpec
from anew.log.kafka.connection import QUIET, Connection
from anew.log.kafka.failures import LOST, SILENT, TOO_LARGE, final, unreachable
from anew.log.kafka.native import APPEND_HEADER, WIRE_HEADER_BYTES, Client, Sent, words_of
from anew.log.kafka.ranges import Ranges
from anew.log.kafka.topics import Topics
from anew.log.packing import times_of
from anew.log.refusals import closed

_PAUSE_SECONDS = 0.05
_ID_BYTES = 16
_GRACE_MS = 5_000
"""How much longer than librdkafka's own deadline an append waits before it counts as unknown."""
_LOOK_BACK_MS = 300_000
_LOOKED_UP_AT_ONCE = 1_000
_SETTINGS: dict[str, str | int | bool] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 1,
    "batch.num.messages": 100_000,
    "message.max.bytes": 1_000_000_000,
    # A topic of which no broker knows is not waited for: it is looked at instead.
    "topic.metadata.propagation.max.ms": 1_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
}
_WORN_OUT = frozenset(
    {
        KafkaError._FATAL,
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        # Of a producer that may write nowhere: it never asks again, even when it may.
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""After these a producer is of no more use, or may not be."""
_UNSENT = SILENT | {KafkaError._MSG_TIMED_OUT}
"""A producer that could send nothing for as long may have lost all brokers for good: see `Connection.ask`."""
_PROBE = pa.RecordBatch.from_pylist(
    [{"written_ms": None, "origin": b"", "key": b"", "schema_id": 0, "value": None}], schema=APPEND_RECORDS
)


class Appender:
    """Appends records. Safe to use from several threads."""

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
        ranges: Ranges,
        clock: Callable[[], int],
        skew_limit_ms: int,
    ) -> None:
        self._connection, self._topics, self._ranges = connection, topics, ranges
        self._clock, self._skew_limit_ms = clock, skew_limit_ms
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._parting = ""
        self._users: Counter[Client] = Counter()
        self._ends: dict[TopicPartition, int] = {}

    def append(self, at: TopicPartition, records: pa.RecordBatch, key_schema_id: int) -> Appended:
        """See `Log.append`."""
        times_of(records).check(self._clock(), self._skew_limit_ms)
        if records.num_rows == 0:
            end = self._ranges.offsets(at).end
            return Appended(end, end, 0)
        deadline = time.monotonic() + self._connection.timeout_seconds
        while True:
            # Records for a topic that is gone shall not end up in one that has its name now.
            self._topics.check(at)
            append_id, began_ms = os.urandom(_ID_BYTES), self._clock()
            sent = self._send(at, records, key_schema_id, append_id)
            if sent.landed == records.num_rows:
                self._confirm(at)
                return self._noted(at, Appended(sent.first_offset, sent.last_offset + 1, sent.last_ms))
            if sent.unknown or sent.landed:
                return self._noted(at, self._look_up(at, records, append_id, began_ms, sent))
            self._judge(at, records, sent.error)
            if time.monotonic() + _PAUSE_SECONDS > deadline:
                raise self._not_sent(sent.error)
            threading.Event().wait(_PAUSE_SECONDS)

    def await_closed(self, spec: TopicSpec) -> None:
        """Return once every partition refuses records; none is accepted from then on.

        A leader that is chosen later knows of the setting: it learns of both from the same log, in order.

        Raises:
            Unreachable: Some partition does not say so in time.
        """
        for partition in range(spec.partitions):
            at = TopicPartition(spec.name, spec.uid, partition)
            deadline = time.monotonic() + self._connection.timeout_seconds
            while True:
                sent = self._send(at, _PROBE, 0, None)
                if sent.error in TOO_LARGE:
                    break
                if sent.error in LOST:
                    self._topics.check(at)
                if time.monotonic() > deadline:
                    raise self._not_sent(sent.error)
                threading.Event().wait(_PAUSE_SECONDS)

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            clients = {*self._users, *filter(None, [self._client])}
            self._client = None
        for client in clients:
            client.close()

    def _send(self, at: TopicPartition, records: pa.RecordBatch, key_schema_id: int, append_id: bytes | None) -> Sent:
        timeout_ms = int(self._connection.timeout_seconds * 1000)
        with self._using(timeout_ms) as client:
            sent = client.append(
                at.topic,
                at.partition,
                records,
                key_schema_id=key_schema_id,
                append_id=append_id,
                timeout_ms=timeout_ms + _GRACE_MS,
            )
            # While something is under way it stays: Kafka turns away what comes late of a producer that went on, and
            # could not if another one did.
            if sent.error in _WORN_OUT or (sent.error in _UNSENT and sent.lost == records.num_rows):
                with self._lock:
                    if self._client is client:
                        self._client, self._parting = None, client.said()
        return sent

    @contextmanager
    def _using(self, timeout_ms: int) -> Iterator[Client]:
        """The producer; one that is worn out is closed by the last who waits for records in it."""
        with self._lock:
            if self._client is None:
                settings = self._connection.settings({**_SETTINGS, "message.timeout.ms": timeout_ms})
                self._client = Client(settings, is_producer=True)
            client = self._client
            self._users[client] += 1
        try:
            yield client
        finally:
            with self._lock:
                self._users[client] -= 1
                left = self._users[client]
                if not left:
                    del self._users[client]
                over = not left and self._client is not client
            if over:
                client.close()

    def _confirm(self, at: TopicPartition) -> None:
        """Of records that landed: it was this topic when they were in it, if it is now, because ids never come again.

        Raises:
            OutcomeUnknown: ``append_unknown``: nobody says which topic it is now.
            Failed: ``topic_lost``.
        """
        try:
            self._topics.check(at)
        except Unreachable as error:
            raise OutcomeUnknown(
                "append_unknown",
                "Kafka took the records, and does not say whether the topic is still the one that was meant",
                found=error.found,
                expected=error.expected,
                hint="doing the same again is harmless: replayed records change nothing",
            ) from error

    def _noted(self, at: TopicPartition, appended: Appended) -> Appended:
        self._ends[at] = max(appended.next_offset, self._ends.get(at, 0))
        return appended

    def _judge(self, at: TopicPartition, records: pa.RecordBatch, error: int) -> None:
        """What it means that nothing was appended; returns when it may go better the next time."""
        if error in LOST:
            self._topics.check(at)
        if error in TOO_LARGE:
            self._topics.check(at)
            largest = self._topics.largest_bytes(at.topic)
            if largest is None:
                raise closed(at.topic)
            sizes = sizes_of(records)
            size = max(sizes)
            if size > largest:
                key = records.column("key")[sizes.index(size)].as_py()
                raise InvalidRequest(
                    "record_too_large",
                    f"the record with the key {key!r} (its Avro body) is larger than {at.topic} takes",
                    found=f"{size} bytes",
                    expected=f"at most {largest} bytes (the topic's max.message.bytes)",
                    hint="raise the store's max_value_bytes; if somebody lowered the topic's limit, set that right",
                )
        refused = final(error, words_of(error), f"write to {at.topic}")
        if refused is not None:
            raise refused

    def _not_sent(self, error: int) -> Unreachable:
        said = self._said()
        words = words_of(error) if error else "no acknowledgement"
        return unreachable(
            self._connection.bootstrap, f"{words}; {said}" if said else words, self._connection.timeout_seconds
        )

    def _said(self) -> str:
        """What was said last of brokers, also by a producer that was let go for it."""
        with self._lock:
            said, self._parting = self._parting, ""
            return said if self._client is None else self._client.said() or said

    def _look_up(
        self, at: TopicPartition, records: pa.RecordBatch, append_id: bytes, began_ms: int, sent: Sent
    ) -> Appended:
        """Whether records whose answer was lost are in the log.

        Raises:
            OutcomeUnknown: ``append_unknown``: they are not there, or only some are, but may still come.
            Failed: ``topic_lost``.
        """
        keys: list[Any] = records.column("key").to_pylist()
        found: Appended | None
        try:
            begin = self._ends.get(at)
            if begin is None:
                begin = self._ranges.offset_for_time(at, began_ms - _LOOK_BACK_MS)
            found = self._find(at, begin, append_id, keys)
        except (Unreachable, KafkaException, Refused):
            found = None
        if found is not None:
            return found
        said = self._said()
        raise OutcomeUnknown(
            "append_unknown",
            "Kafka did not say whether the records were appended",
            found=f"{sent.landed} of {len(keys)} acknowledged: {words_of(sent.error)}{'; ' if said else ''}{said}",
            expected="an acknowledgement",
            hint="doing the same again is harmless: replayed records change nothing",
        )

    def _find(self, at: TopicPartition, begin: int, append_id: bytes, keys: list[bytes]) -> Appended | None:
        told = {"isolation.level": "read_committed", "auto.offset.reset": "error", "group.id": "anew"}
        end = self._ranges.offsets(at).end
        deadline = time.monotonic() + self._connection.timeout_seconds
        consumer = Consumer({**self._connection.settings(told), "enable.partition.eof": "true"}, logger=QUIET)
        try:
            consumer.assign([confluent_kafka.TopicPartition(at.topic, at.partition, begin)])
            recent: deque[tuple[int | None, bytes]] = deque(maxlen=len(keys))
            while time.monotonic() < deadline:
                for message in consumer.consume(_LOOKED_UP_AT_ONCE, _PAUSE_SECONDS):
                    error = message.error()
                    if error is not None:
                        if error.code() == KafkaError._PARTITION_EOF:
                            return None
                        raise KafkaException(error)
                    offset: Any = message.offset()
                    recent.append((offset, bytes(message.key() or b"")[WIRE_HEADER_BYTES:]))
                    if (APPEND_HEADER, append_id) in (message.headers() or []):
                        first = offset - len(keys) + 1
                        self._topics.check(at)
                        whole = list(recent) == list(zip(range(first, offset + 1), keys, strict=True))
                        return Appended(first, offset + 1, message.timestamp()[1]) if whole else None
                    if offset + 1 >= end:
                        return None
            return None
        finally:
            consumer.close()


def sizes_of(records: pa.RecordBatch) -> list[int]:
    """About how large each record is."""
    names = ("origin", "key", "value")
    return [
        sum(len(value) for value in row if value is not None)
        for row in zip(*(records.column(name).to_pylist() for name in names), strict=True)
    ]
