"""A writer and a reader of a topic, and an account of what the writer was told that the log knows nothing of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from anew.core.errors import OutcomeUnknown, Unreachable
from anew.log.interface import Log, TopicPartition, TopicSpec
from anew.log.kafka.kafka_log import KafkaLog
from anew.runtime.clock import now_ms
from anew.testing.builders import some_records
from anew.testing.log_reading import keys_below
from tests.cluster.commands import wait_until

TIMEOUT_SECONDS = 3.0
"""Of an operation: shorter than brokers stand still in these tests."""
_JOIN_SECONDS = 60.0
_PAUSE_SECONDS = 0.03
"""Between two appends, and two rounds of reading: what the brokers make good needs the processors too."""


@dataclass
class Account:
    """What a writer was told.

    Attributes:
        acknowledged: Partition → offset → the key that is there.
        tried: Partition → all keys that may be there, in the order in which they were appended.
        unknown: How often nobody could say what became of an append.
        not_done: How often an append was said not to have been done.
        said: What was said last of an append that was not acknowledged.
    """

    acknowledged: dict[int, dict[int, bytes]]
    tried: dict[int, list[bytes]]
    appends: int = 0
    unknown: int = 0
    not_done: int = 0
    said: str = ""
    refused_keys: set[bytes] = field(default_factory=set)


class Appending:
    """Appends to all partitions in turn, never the same key twice, until it is stopped."""

    def __init__(self, log: Log, topic: TopicSpec) -> None:
        partitions = range(topic.partitions)
        self.account = Account({p: {} for p in partitions}, {p: [] for p in partitions})
        self._log, self._topic = log, topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopped.set()
        self._thread.join(_JOIN_SECONDS)
        assert not self._thread.is_alive()

    def await_appends(self, count: int) -> None:
        """Wait until so many more were acknowledged."""
        wanted = self.account.appends + count
        try:
            wait_until(lambda: self.account.appends >= wanted or not self._thread.is_alive(), f"{count} more appends")
        except AssertionError as error:
            error.add_note(f"of the last append that was not acknowledged it was said: {self.account.said}")
            raise
        assert self._thread.is_alive(), "the writer ended by an error that it may not have"

    def _run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            number += 1
            partition = number % self._topic.partitions
            self._append(partition, f"append-{number}", 1 + number % 7)
            self._stopped.wait(_PAUSE_SECONDS)

    def _append(self, partition: int, name: str, count: int) -> None:
        records = some_records(count, name)
        keys: list[Any] = records.column("key").to_pylist()
        self.account.tried[partition] += keys
        try:
            appended = self._log.append(TopicPartition(self._topic.name, self._topic.uid, partition), records)
        except OutcomeUnknown as error:
            self.account.unknown, self.account.said = self.account.unknown + 1, str(error)
        except Unreachable as error:
            self.account.not_done, self.account.said = self.account.not_done + 1, str(error)
            self.account.refused_keys.update(keys)
        else:
            offsets = range(appended.first_offset, appended.next_offset)
            self.account.acknowledged[partition].update(zip(offsets, keys, strict=True))
            self.account.appends += 1


class Following:
    """Reads all partitions on, as a node does, until it is stopped."""

    def __init__(self, log: Log, topic: TopicSpec) -> None:
        self.found: dict[int, list[bytes]] = {partition: [] for partition in range(topic.partitions)}
        self._log, self._topic = log, topic
        self._stopped = threading.Event()
        self._offsets = dict.fromkeys(self.found, 0)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def await_ends(self, ends: dict[int, int]) -> None:
        """Wait until it came so far."""
        wait_until(
            lambda: all(self._offsets[p] >= end for p, end in ends.items()) or not self._thread.is_alive(),
            f"the reader to come to {ends}",
        )
        assert self._thread.is_alive(), "the reader ended by an error that it may not have"

    def stop(self) -> None:
        """End."""
        self._stopped.set()
        self._thread.join(_JOIN_SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for partition, offset in self._offsets.items():
                try:
                    read = self._log.read(TopicPartition(self._topic.name, self._topic.uid, partition), offset, 500)
                except Unreachable:
                    continue
                self.found[partition] += [row["key"] for row in read.records.to_pylist()]
                self._offsets[partition] = read.next_offset
            self._stopped.wait(_PAUSE_SECONDS)


@dataclass(frozen=True)
class Load:
    """A topic that is written and read; the writer and the reader have connections of their own."""

    log: Log
    topic: TopicSpec
    writer: Appending
    reader: Following

    def check(self) -> None:
        """End the writer; each record that it was told of is where it was told, and the reader read what is there."""
        self.writer.stop()
        told = self.writer.account
        assert told.appends > 0
        ends = {p: self.log.offsets(self._at(p)).end for p in range(self.topic.partitions)}
        self.reader.await_ends(ends)
        self.reader.stop()
        for partition, end in ends.items():
            there = keys_below(self.log, self._at(partition), 0, end)
            # Without transactions each offset has a record.
            assert len(there) == end
            acknowledged = told.acknowledged[partition]
            assert {offset: there[offset] for offset in acknowledged} == acknowledged
            assert self.reader.found[partition] == there, "read more, less, or in another order"
            keys = set(there)
            assert len(keys) == len(there), "a record that was sent again is there twice"
            tried = told.tried[partition]
            assert [key for key in tried if key in keys] == there, "out of order, or of nobody"
            assert not told.refused_keys & keys, "said not to be done, and is there"

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic.name, self.topic.uid, partition)


@contextmanager
def loaded(bootstrap: str, name: str, partitions: int) -> Iterator[Load]:
    """A topic under load, until the block ends; `Load.check` it at its end."""
    # Who looks at the end has time: brokers that just came back may need more than an operation of the load may take.
    patience = (_JOIN_SECONDS, TIMEOUT_SECONDS, TIMEOUT_SECONDS)
    logs = [KafkaLog(bootstrap, clock=now_ms, timeout_seconds=seconds) for seconds in patience]
    topic = logs[0].create_topic(TopicSpec(name, f"uid of {name}", partitions))
    load = Load(logs[0], topic, Appending(logs[1], topic), Following(logs[2], topic))
    try:
        yield load
    finally:
        load.writer.stop()
        load.reader.stop()
        logs[0].delete_topic(topic.name, topic.uid)
        for log in logs:
            log.close()
