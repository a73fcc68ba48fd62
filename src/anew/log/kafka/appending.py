"""Appending to Kafka: idempotent, acknowledged by all replicas in sync; what is unknown is looked up.

The records of an append travel together where they are few enough, and the last one carries an id. So when an answer
was lost it can be seen in the log whether they landed; see `anew.log.kafka.doubts`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from anew.core.errors import InvalidRequest, OutcomeUnknown, PartlyDone, Refused, Unreachable
from anew.log.interface import APPEND_RECORDS, Appended, TopicPartition, TopicSpec, append_id_of, new_append_id
from anew.log.kafka.connection import Connection
from anew.log.kafka.doubts import AGAIN, Doubt, Found, Lookup, append_partly
from anew.log.kafka.failures import LOST, SILENT, TOO_LARGE, final, unreachable
from anew.log.kafka.native import Client, Sent, words_of
from anew.log.kafka.ranges import Ranges
from anew.log.kafka.topics import Topics
from anew.log.packing import Times, rows_too_late
from anew.log.refusals import closed

_PAUSE_SECONDS = 0.05
_GRACE_MS = 5_000
"""How much longer than librdkafka's own deadline an append waits before it counts as unknown."""
_MOST_DOUBTS = 10_000
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
        # The partition is there, as brokers said a moment ago: it was added since the producer asked about its topic.
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""After these a producer is of no more use, or may not be."""
_UNSENT = SILENT | {KafkaError._MSG_TIMED_OUT}
"""A producer that could send nothing for as long may have lost all brokers for good: see `Connection.ask`."""
_PROBE = pa.RecordBatch.from_pylist(
    [{"written_ms": None, "origin": b"", "key": b"", "schema_id": 0, "value": None}], schema=APPEND_RECORDS
)


class _Sending(NamedTuple):
    """What became of records, which producer has them, and until when (by the monotonic clock) it may send them."""

    sent: Sent
    client: Client
    until: float


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
        self._doubts: dict[bytes, Doubt] = {}
        self._lookup = Lookup(connection, topics)

    def append(self, at: TopicPartition, records: pa.RecordBatch, times: Times) -> Appended:
        """See `Log.append` and `Log.append_raw`; ``times`` are the records' write times."""
        append_id = append_id_of(records)
        doubt = None if append_id is None else self._doubts.get(append_id)
        if append_id is not None and doubt is not None:
            found = self._settle(at, records, append_id, doubt)
            if found is not None:
                return self._judged(at, times, found)
        times.check(self._clock(), self._skew_limit_ms)
        if records.num_rows == 0:
            end = self._ranges.offsets(at).end
            return Appended(end, end, 0)
        append_id = new_append_id() if append_id is None else append_id
        begin = self._begin(at)
        deadline = time.monotonic() + self._connection.timeout_seconds
        while True:
            # Records for a topic that is gone shall not end up in one that has its name now.
            self._topics.check(at)
            sending = self._send(at, records, at.key_schema_id, append_id)
            sent = sending.sent
            if sent.landed == records.num_rows:
                self._confirm(at)
                return self._judged(at, times, self._found(at, records, append_id, sent))
            if sent.unknown:
                doubt = self._in_doubt(append_id, sending, begin)
                return self._judged(at, times, self._look_up(at, records, append_id, doubt))
            if sent.landed:
                raise append_partly(at, sent.landed, records.num_rows, words_of(sent.error))
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
                sent = self._send(at, _PROBE, 0, None).sent
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

    def _send(
        self, at: TopicPartition, records: pa.RecordBatch, key_schema_id: int, append_id: bytes | None
    ) -> _Sending:
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
                        self._client, self._parting = None, client.last_error()
        return _Sending(sent, client, time.monotonic() + self._connection.timeout_seconds + _GRACE_MS / 1000)

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
                hint=AGAIN,
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
                    f"the record with the key {key!r} (without its wire header) is larger than {at.topic} takes",
                    found=f"{size} bytes",
                    expected=f"at most {largest} bytes (the topic's max.message.bytes)",
                    hint="raise max_value_bytes if a store's; if somebody lowered the topic's limit, set that right",
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
            return said if self._client is None else self._client.last_error() or said

    def _begin(self, at: TopicPartition) -> int | None:
        """An offset before which nothing can lie that is sent from now on; None where no broker says so."""
        try:
            return self._ends[at] if at in self._ends else self._ranges.offsets(at).end
        except (Unreachable, Refused):
            return None

    def _in_doubt(self, append_id: bytes, sending: _Sending, begin: int | None) -> Doubt:
        doubt = Doubt(begin, sending.client, sending.until, sending.sent)
        with self._lock:
            if len(self._doubts) >= _MOST_DOUBTS:
                del self._doubts[next(iter(self._doubts))]
            self._doubts[append_id] = doubt
        return doubt

    def _found(self, at: TopicPartition, records: pa.RecordBatch, append_id: bytes, sent: Sent) -> Found:
        """Where and when records landed that were all acknowledged; read back only where their times differ."""
        appended = Appended(sent.first_offset, sent.last_offset + 1, sent.last_ms)
        if sent.least_ms == sent.last_ms:
            return Found(appended, np.array([sent.last_ms]))
        try:
            found = self._lookup.find(at, sent.first_offset, append_id, records)
        except (Unreachable, KafkaException, PartlyDone):
            found = None
        # Where that cannot be read, the least time decides: what was acknowledged is applied.
        return Found(appended, np.array([sent.least_ms]) if found is None else found.appended_ms)

    def _judged(self, at: TopicPartition, times: Times, found: Found) -> Appended:
        """What landed, with the rows that readers will reject: they go by the times that the broker gave (rule R6)."""
        rejected = rows_too_late(times, found.appended_ms, self._skew_limit_ms)
        return self._noted(at, replace(found.appended, rejected=rejected))

    def _look_up(self, at: TopicPartition, records: pa.RecordBatch, append_id: bytes, doubt: Doubt) -> Found:
        """Records whose answer was lost, if they are in the log.

        Raises:
            OutcomeUnknown: ``append_unknown``: they are not there, or only some are, but may still come.
            Failed: ``topic_lost``.
        """
        found: Found | None = None
        with suppress(Unreachable, KafkaException, Refused, PartlyDone):
            if doubt.begin is not None:
                found = self._lookup.find(at, doubt.begin, append_id, records)
        if found is None:
            raise self._unknown(doubt, records.num_rows)
        self._doubts.pop(append_id, None)
        return found

    def _settle(self, at: TopicPartition, records: pa.RecordBatch, append_id: bytes, doubt: Doubt) -> Found | None:
        """What became of the first attempt of an append that is repeated; None: it failed, and cannot land any more.

        (1) What is there is found at once. (2) The producer that may still send it is closed, and its deadline is
        waited for. (3) A probe is appended behind all that brokers have taken: what is not before it is not there.

        Raises:
            OutcomeUnknown: ``append_unknown``: that cannot be known yet.
            PartlyDone: ``append_partly``.
            Failed: ``topic_lost``.
        """
        with suppress(OutcomeUnknown):
            return self._look_up(at, records, append_id, doubt)
        self._retire(doubt.client)
        give_up = time.monotonic() + self._connection.timeout_seconds + 2 * _GRACE_MS / 1000
        while time.monotonic() < doubt.until or self._is_used(doubt.client):
            if time.monotonic() > give_up:
                raise self._unknown(doubt, records.num_rows)
            threading.Event().wait(_PAUSE_SECONDS)
        self._topics.check(at)
        probe = self._send(at, _PROBE, 0, None).sent
        if probe.error in TOO_LARGE and self._topics.largest_bytes(at.topic) is None:
            raise closed(at.topic)
        if doubt.begin is None or probe.landed == 0:
            raise self._unknown(doubt, records.num_rows)
        try:
            found = self._lookup.find(at, doubt.begin, append_id, records, probe.first_offset)
        except (Unreachable, KafkaException) as error:
            raise self._unknown(doubt, records.num_rows) from error
        if found is None and doubt.sent.landed:
            raise append_partly(at, doubt.sent.landed, records.num_rows, words_of(doubt.sent.error))
        self._doubts.pop(append_id, None)
        return found

    def _retire(self, client: Client) -> None:
        """Let nobody send by a producer any more, and close it once nobody waits for records in it."""
        with self._lock:
            over = self._client is client and client not in self._users
            if self._client is client:
                self._client, self._parting = None, client.last_error()
        if over:
            client.close()

    def _is_used(self, client: Client) -> bool:
        with self._lock:
            return client is self._client or client in self._users

    def _unknown(self, doubt: Doubt, count: int) -> OutcomeUnknown:
        said = self._said()
        told = f"{doubt.sent.landed} of {count} acknowledged: {words_of(doubt.sent.error)}"
        return OutcomeUnknown(
            "append_unknown",
            "Kafka did not say whether the records were appended",
            found=f"{told}; {said}" if said else told,
            expected="an acknowledgement",
            hint=AGAIN,
        )


def sizes_of(records: pa.RecordBatch) -> list[int]:
    """About how large each record is."""
    names = [name for name in ("origin", "key", "value") if name in records.schema.names]
    return [
        sum(len(value) for value in row if value is not None)
        for row in zip(*(records.column(name).to_pylist() for name in names), strict=True)
    ]
