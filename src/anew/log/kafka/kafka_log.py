"""The log on Kafka: one object per fabric and process, over the brokers of that fabric."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from anew.log.interface import (
    Appended,
    LogRead,
    Offsets,
    Retention,
    SetAside,
    TopicFacts,
    TopicPartition,
    TopicSpec,
    present_partitions,
)
from anew.log.kafka.appending import Appender
from anew.log.kafka.aside import Aside
from anew.log.kafka.connection import Connection
from anew.log.kafka.ranges import Ranges
from anew.log.kafka.reading import Reader, Reading
from anew.log.kafka.topics import Topics
from anew.log.packing import no_times_of, times_of

_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class KafkaLog:
    """`anew.log.interface.Log` on Kafka."""

    def __init__(
        self,
        bootstrap: str,
        *,
        clock: Callable[[], int],
        properties: Mapping[str, str] = _NO_PROPERTIES,
        skew_limit_ms: int = 60_000,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Keep how to reach the brokers; they are asked when something is wanted of them.

        Args:
            bootstrap: ``HOST:PORT,…`` of some brokers.
            clock: The time in ms since the epoch; writers' times are checked by it before they are sent. What counts in
                the end is the broker's append time, by which readers judge.
            properties: librdkafka's settings, such as those of TLS and SASL.
            skew_limit_ms: How far a given time may be ahead.
            timeout_seconds: How long an operation may take. An append may take as long again to see what became of it,
                and closing a topic as long for each of its partitions.
        """
        self._connection = Connection(bootstrap, properties, timeout_seconds)
        self._topics = Topics(self._connection)
        self._ranges = Ranges(self._connection, self._topics)
        self._reader = Reader(self._connection, self._topics, self._ranges)
        self._appender = Appender(self._connection, self._topics, self._ranges, clock, skew_limit_ms)
        self._aside = Aside(self._connection, self._topics, self._ranges)

    def cluster_id(self) -> str:
        """What Kafka identifies the cluster by, whichever broker or listener is asked.

        Raises:
            Unreachable: No broker answers.
        """
        with self._connection.operation():
            return self._topics.cluster_id()

    def create_topic(self, spec: TopicSpec) -> TopicSpec:
        """See `Log.create_topic`."""
        with self._connection.operation():
            return self._topics.create(spec)

    def set_open(self, spec: TopicSpec, *, is_open: bool, epoch: int) -> None:
        """See `Log.set_open`."""
        with self._connection.operation():
            changed = self._topics.tell(spec, is_open=is_open, epoch=epoch)
        if changed and not is_open:
            self._appender.await_closed(spec)

    def delete_topic(self, name: str, uid: str) -> None:
        """See `Log.delete_topic`."""
        with self._connection.operation():
            self._topics.delete(name, uid)

    def topic(self, name: str) -> TopicSpec | None:
        """See `Log.topic`."""
        with self._connection.operation():
            return self._topics.spec(name)

    def add_partitions(self, name: str, uid: str, partitions: int) -> int:
        """See `Log.add_partitions`."""
        with self._connection.operation():
            return self._topics.grow(name, uid, partitions)

    def partition_count(self, name: str, uid: str) -> int:
        """See `Log.partition_count`. A broker is asked, by one request."""
        with self._connection.operation():
            return self._topics.check(TopicPartition(name, uid, 0)).partitions

    def facts(self, name: str, uid: str) -> TopicFacts:
        """See `Log.facts`. Read from the brokers, as they have it now."""
        with self._connection.operation():
            kept = self._topics.kept(name)
            partitions = self._ranges.facts(present_partitions(self, name, uid))
            self._topics.check(TopicPartition(name, uid, 0))
        return TopicFacts(uid, kept.retention, kept.compacted, partitions)

    def set_retention(self, name: str, uid: str, retention: Retention) -> None:
        """See `Log.set_retention`. Settings of the topic, which the brokers apply."""
        with self._connection.operation():
            self._topics.keep(name, uid, retention)

    def apply_retention(self, at: TopicPartition, retention: Retention) -> int:
        """See `Log.apply_retention`. The brokers apply what the topic's settings say."""
        return self.offsets(at).begin

    def append(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        """See `Log.append`."""
        return self._appender.append(at, records, times_of(records))

    def append_raw(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        """See `Log.append_raw`."""
        return self._appender.append(at, records, no_times_of(records))

    def read(self, at: TopicPartition, offset: int, max_records: int, end: int | None = None) -> LogRead:
        """See `Log.read`."""
        with self._connection.operation():
            return self._reader.read(Reading(at, at.key_schema_id), offset, max_records, end)

    def read_raw(self, at: TopicPartition, offset: int, max_records: int, end: int | None = None) -> LogRead:
        """See `Log.read_raw`."""
        with self._connection.operation():
            return self._reader.read(Reading(at, None), offset, max_records, end)

    def fetch_ahead(self, places: Mapping[TopicPartition, int], *, raw: bool = False) -> None:
        """See `Log.fetch_ahead`."""
        self._reader.fetch_ahead(places, raw=raw)

    def touched(self, topics: Collection[str]) -> Collection[str]:
        """See `Log.touched`. What is read on is fetched ahead."""
        return self._reader.touched(topics)

    def offsets(self, at: TopicPartition) -> Offsets:
        """See `Log.offsets`."""
        with self._connection.operation():
            return self._ranges.offsets(at)

    def next_offset(self, at: TopicPartition) -> int:
        """See `Log.next_offset`; the high watermark."""
        with self._connection.operation():
            return self._ranges.next_offset(at)

    def offset_for_time(self, at: TopicPartition, appended_ms: int) -> int:
        """See `Log.offset_for_time`."""
        with self._connection.operation():
            return self._ranges.offset_for_time(at, appended_ms)

    def truncate_below(self, at: TopicPartition, offset: int) -> None:
        """See `Log.truncate_below`."""
        with self._connection.operation():
            self._ranges.truncate_below(at, offset)

    def set_aside(self, at: TopicPartition, letters: Sequence[SetAside], to: TopicPartition) -> int:
        """See `Log.set_aside`. Each copy has the record's own bytes and headers, with ours besides."""
        return self._aside.copy(at, letters, to)

    def close(self) -> None:
        """See `Log.close`."""
        self._reader.close()
        self._appender.close()
        self._connection.close()
