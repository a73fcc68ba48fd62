"""A log in memory that forgets nothing: what was truncated can still be looked at by a test."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import pyarrow as pa

from anew.core.errors import Failed, InvalidRequest, Refused
from anew.core.topics.topic import fewer_partitions
from anew.log.aside import copy_aside
from anew.log.interface import (
    APPEND_RECORDS,
    LOG_RECORDS,
    Appended,
    Flaw,
    LogRead,
    Offsets,
    PartitionFacts,
    Retention,
    SetAside,
    TopicFacts,
    TopicPartition,
    TopicSpec,
    append_id_of,
)
from anew.log.packing import NO_RECORDS, Times, no_times_of, times_of
from anew.log.refusals import check_retention, check_spec, out_of_range
from anew.log.wire import judged, kept_raw, raw_of

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}")

Row = tuple[int, int | None, bytes, bytes, int, bytes | None]
"""A record without its offset, which is its index: `anew.log.interface.LOG_RECORDS` from the second column on, without
flaws. A raw record has `anew.log.wire.RAW` as its schema's id, and may have no key."""


@dataclass(slots=True)
class Partition:
    """One partition: all records that there ever were, and from where on they can be read.

    Attributes:
        damaged: What a disk gives in the place of a record that it has damaged, by offset.
    """

    rows: list[Row] = field(default_factory=list)
    damaged: dict[int, Row] = field(default_factory=dict)
    begin: int = 0
    last_ms: int = 0
    appends: dict[bytes, Appended] = field(default_factory=dict)


@dataclass(slots=True)
class Topic:
    """A topic with its partitions, and whether it takes appends.

    Attributes:
        is_compacted: What its facts say, as of a topic that somebody else made; nothing is dropped for it.
    """

    spec: TopicSpec
    partitions: list[Partition]
    is_open: bool = True
    open_epoch: int = 0
    append_count: int = 0
    is_compacted: bool = False


@dataclass(slots=True)
class Topics:
    """What all handles on one log share.

    Attributes:
        present: The topics that exist now, by name.
        ever: All topics that there ever were, by uid.
    """

    present: dict[str, Topic] = field(default_factory=dict)
    ever: dict[str, Topic] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryLog:
    """`anew.log.interface.Log` in memory."""

    def __init__(
        self, topics: Topics, *, clock: Callable[[], int], skew_limit_ms: int = 60_000, monotone: bool = True
    ) -> None:
        """A handle on the topics, with a clock of its own.

        Args:
            topics: What all handles share.
            clock: The time in ms since the epoch.
            skew_limit_ms: How far the clock may be behind the last append, and a given time ahead of its append.
            monotone: Whether times never run backwards, as in the embedded log; those of a broker may (rule R6).
        """
        self._monotone = monotone
        self._topics = topics
        self._clock = clock
        self._skew_limit_ms = skew_limit_ms
        self._told: dict[str, tuple[str, int]] = {}

    def create_topic(self, spec: TopicSpec) -> TopicSpec:
        """See `Log.create_topic`."""
        if not _NAME.fullmatch(spec.name):
            raise InvalidRequest("bad_topic_name", "a topic cannot have this name", found=spec.name)
        check_retention(spec)
        with self._topics.lock:
            present = self._topics.present.get(spec.name)
            if present is not None and present.spec != spec:
                raise Refused("topic_exists", "another topic has this name", found=present.spec.uid, expected=spec.uid)
            if present is None:
                topic = Topic(spec, [Partition() for _ in range(spec.partitions)])
                self._topics.present[spec.name] = self._topics.ever[spec.uid] = topic
        return spec

    def set_open(self, spec: TopicSpec, *, is_open: bool, epoch: int) -> None:
        """See `Log.set_open`."""
        with self._topics.lock:
            topic = self._topic(spec.name, spec.uid)
            if epoch > topic.open_epoch:
                topic.is_open, topic.open_epoch = is_open, epoch

    def delete_topic(self, name: str, uid: str) -> None:
        """See `Log.delete_topic`."""
        with self._topics.lock:
            present = self._topics.present.get(name)
            if present is not None and present.spec.uid == uid:
                del self._topics.present[name]

    def topic(self, name: str) -> TopicSpec | None:
        """See `Log.topic`."""
        present = self._topics.present.get(name)
        return None if present is None else present.spec

    def add_partitions(self, name: str, uid: str, partitions: int) -> int:
        """See `Log.add_partitions`."""
        with self._topics.lock:
            topic = self._topic(name, uid)
            if partitions < len(topic.partitions):
                raise fewer_partitions(name, len(topic.partitions), partitions)
            grown = replace(topic.spec, partitions=partitions)
            check_spec(grown)
            topic.spec = grown
            topic.partitions += [Partition() for _ in range(partitions - len(topic.partitions))]
            return partitions

    def set_retention(self, name: str, uid: str, retention: Retention) -> None:
        """See `Log.set_retention`."""
        with self._topics.lock:
            topic = self._topic(name, uid)
            topic.spec = replace(topic.spec, retention=retention)

    def partition_count(self, name: str, uid: str) -> int:
        """See `Log.partition_count`."""
        return len(self._topic(name, uid).partitions)

    def facts(self, name: str, uid: str) -> TopicFacts:
        """See `Log.facts`."""
        with self._topics.lock:
            topic = self._topic(name, uid)
            partitions = tuple(
                PartitionFacts(p.begin, len(p.rows), p.rows[p.begin][0] if p.begin < len(p.rows) else None)
                for p in topic.partitions
            )
            return TopicFacts(uid, topic.spec.retention, topic.is_compacted, partitions)

    def apply_retention(self, at: TopicPartition, retention: Retention) -> int:
        """See `Log.apply_retention`."""
        with self._topics.lock:
            partition = self._partition(at)
            begin, newest = partition.begin, len(partition.rows) - 1
            if retention.time_ms is not None:
                since_ms = self._clock() - retention.time_ms
                while begin < newest and partition.rows[begin][0] < since_ms:
                    begin += 1
            if retention.partition_bytes is not None:
                left, within = retention.partition_bytes, newest
                for offset in range(newest, begin - 1, -1):
                    left -= _size_bytes(partition.rows[offset])
                    if left < 0:
                        break
                    within = offset
                begin = max(begin, within)
            partition.begin = begin
            return begin

    def append(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        """See `Log.append`."""
        return self._append(at, records, times_of(records), append_id_of(records))

    def append_raw(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        """See `Log.append_raw`."""
        return self._append(at, kept_raw(records), no_times_of(records), append_id_of(records))

    def _append(self, at: TopicPartition, records: pa.RecordBatch, times: Times, append_id: bytes | None) -> Appended:
        with self._topics.lock:
            partition = self._partition(at)
            if append_id in partition.appends:
                return partition.appends[append_id]
            if not self._topic(at.topic, at.uid).is_open:
                raise Refused("topic_closed", f"{at.topic} takes no writes now", found="closed")
            now_ms = self._clock()
            if self._monotone and partition.last_ms > now_ms + self._skew_limit_ms:
                raise Refused("clock_behind", "the clock is behind the last append", found=now_ms)
            appended_ms = max(now_ms, partition.last_ms) if self._monotone else now_ms
            times.check(appended_ms, self._skew_limit_ms)
            first = len(partition.rows)
            lists: list[list[Any]] = [records.column(name).to_pylist() for name in APPEND_RECORDS.names]
            partition.rows += zip(repeat(appended_ms, records.num_rows), *lists, strict=True)
            if records.num_rows:
                partition.last_ms = appended_ms
            self._topic(at.topic, at.uid).append_count += 1
            appended = Appended(first, len(partition.rows), appended_ms)
            if append_id is not None and records.num_rows:
                partition.appends[append_id] = appended
            return appended

    def read(self, at: TopicPartition, offset: int, max_records: int, end: int | None = None) -> LogRead:
        """See `Log.read`."""
        read = self._read(at, offset, max_records, end)
        return LogRead(judged(read.records, at.key_schema_id), read.next_offset)

    def read_raw(self, at: TopicPartition, offset: int, max_records: int, end: int | None = None) -> LogRead:
        """See `Log.read_raw`."""
        read = self._read(at, offset, max_records, end)
        return LogRead(raw_of(read.records, at.key_schema_id), read.next_offset)

    def _read(self, at: TopicPartition, offset: int, max_records: int, end: int | None) -> LogRead:
        with self._topics.lock:
            partition = self._partition(at)
            if not partition.begin <= offset <= len(partition.rows):
                raise out_of_range(at, offset, partition.begin, len(partition.rows))
            stop = offset + max_records if end is None else max(offset, min(offset + max_records, end))
            rows = self._proved(at, partition, offset, stop)
        return LogRead(_batch(offset, rows), offset + len(rows))

    def fetch_ahead(self, places: Mapping[TopicPartition, int], *, raw: bool = False) -> None:
        """See `Log.fetch_ahead`."""

    def touched(self, topics: Collection[str]) -> Collection[str]:
        """See `Log.touched`."""
        with self._topics.lock:
            present = {name: self._topics.present.get(name) for name in topics}
        now = {
            name: ("", 0) if topic is None else (topic.spec.uid, topic.append_count) for name, topic in present.items()
        }
        news = {name for name, count in now.items() if self._told.get(name) != count}
        self._told |= now
        return news

    def offsets(self, at: TopicPartition) -> Offsets:
        """See `Log.offsets`."""
        partition = self._partition(at)
        return Offsets(partition.begin, len(partition.rows))

    def next_offset(self, at: TopicPartition) -> int:
        """See `Log.next_offset`. There are no transactions."""
        return self.offsets(at).end

    def offset_for_time(self, at: TopicPartition, appended_ms: int) -> int:
        """See `Log.offset_for_time`."""
        partition = self._partition(at)
        late = (i for i in range(partition.begin, len(partition.rows)) if partition.rows[i][0] >= appended_ms)
        return next(late, len(partition.rows))

    def truncate_below(self, at: TopicPartition, offset: int) -> None:
        """See `Log.truncate_below`."""
        with self._topics.lock:
            partition = self._partition(at)
            if offset > len(partition.rows):
                raise Refused("offset_out_of_range", "beyond the end", found=offset, expected=len(partition.rows))
            partition.begin = max(partition.begin, offset)

    def set_aside(self, at: TopicPartition, letters: Sequence[SetAside], to: TopicPartition) -> int:
        """See `Log.set_aside`."""
        return copy_aside(self, at, letters, to)

    def close(self) -> None:
        """See `Log.close`."""

    def _proved(self, at: TopicPartition, partition: Partition, begin: int, end: int) -> list[Row]:
        """The rows, each as it was appended, up to the first that a disk has damaged."""
        rows = partition.rows[begin:end]
        wrong = min(
            (
                offset
                for offset, given in partition.damaged.items()
                if begin <= offset < begin + len(rows) and given != rows[offset - begin]
            ),
            default=None,
        )
        if wrong == begin:
            raise Failed(
                "log_corrupt",
                f"partition {at.partition} of {at.topic} is damaged",
                found=f"other bytes at offset {begin}",
                expected="the record that was appended",
            )
        return rows if wrong is None else rows[: wrong - begin]

    def _topic(self, name: str, uid: str) -> Topic:
        present = self._topics.present.get(name)
        if present is None or present.spec.uid != uid:
            found = None if present is None else present.spec.uid
            raise Failed("topic_lost", f"the topic {name} is another one, or gone", found=found, expected=uid)
        return present

    def _partition(self, at: TopicPartition) -> Partition:
        topic = self._topic(at.topic, at.uid)
        if not 0 <= at.partition < len(topic.partitions):
            raise InvalidRequest("unknown_partition", f"{at.topic} has no such partition", found=at.partition)
        return topic.partitions[at.partition]


def _size_bytes(row: Row) -> int:
    return 24 + sum(len(value) for value in row if isinstance(value, bytes))


def _batch(first_offset: int, rows: list[Row]) -> pa.RecordBatch:
    if not rows:
        return NO_RECORDS
    columns: list[list[Any]] = [
        list(range(first_offset, first_offset + len(rows))),
        *map(list, zip(*rows, strict=True)),
        [Flaw.NONE] * len(rows),
    ]
    arrays: list[pa.Array[Any]] = [pa.array(column, of) for column, of in zip(columns, LOG_RECORDS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=LOG_RECORDS)
