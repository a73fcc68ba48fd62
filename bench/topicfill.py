"""What somebody writes who serves a topic from RocksDB: a process that reads it with confluent-kafka, as it comes.

It makes the most of both libraries: records are taken ten thousand at a time and written as batches, without RocksDB's
own log, because the topic can be read again.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from rocksdict import Rdict, WriteBatch, WriteOptions

from bench.load import rocksdict_options

_TAKEN_AT_ONCE = 10_000
_WAIT_SECONDS = 0.02
_PATIENCE_SECONDS = 300.0


class Filling:
    """A process that fills databases; see `filling`."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel

    def finish(self) -> None:
        """Wait until everything that the topic holds now is in the databases, and these are on disk."""
        self._channel.send(None)
        self._answer()

    def held(self, sample: Mapping[bytes, bytes]) -> tuple[int, dict[bytes, bytes]]:
        """After `finish`: how many keys they hold, and the values of some, as long as in the sample, by those keys.

        Keys and values begin with what Avro and the wire put before them; the sample's have one length each.
        """
        self._channel.send(sample)
        found: tuple[int, dict[bytes, bytes]] = self._answer()
        return found

    def _answer(self) -> Any:
        if not self._channel.poll(_PATIENCE_SECONDS):
            raise AssertionError("the databases were not filled in time")
        return self._channel.recv()


@contextmanager
def filling(bootstrap: str, topic: str, partitions: int, folder: Path) -> Iterator[Filling]:
    """A process that reads a topic, from now on, into one database per partition below a fresh folder."""
    folder.mkdir()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_fill, args=(theirs, bootstrap, (topic, partitions), folder), daemon=True)
    process.start()
    try:
        ours.recv()  # it has begun
        yield Filling(ours)
    finally:
        process.terminate()
        process.join()


def _fill(channel: Connection, bootstrap: str, source: tuple[str, int], folder: Path) -> None:
    topic, partitions = source
    settings: dict[str, Any] = {"group.id": "by-hand", "enable.auto.commit": False, "fetch.queue.backoff.ms": 2}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    databases = [_opened(folder / str(number)) for number in range(partitions)]
    reached, ends = [0] * partitions, None
    channel.send(None)
    while ends is None or any(offset < end for offset, end in zip(reached, ends, strict=True)):
        if ends is None and channel.poll():
            channel.recv()
            ends = [_end(consumer, TopicPartition(topic, number)) for number in range(partitions)]
        _put(consumer.consume(_TAKEN_AT_ONCE, _WAIT_SECONDS), databases, reached)
    for database in databases:
        database.flush()
    channel.send(None)
    channel.send(_held(databases, channel.recv()))
    channel.poll(None)  # until the process is ended


def _opened(path: Path) -> Rdict:
    database, options = Rdict(str(path), rocksdict_options()), WriteOptions()
    # A property of the library's, which its types call a method.
    setattr(options, "disable_wal", True)  # noqa: B010
    database.set_write_options(options)
    return database


def _end(consumer: Consumer, at: TopicPartition) -> int:
    found = consumer.get_watermark_offsets(at, _PATIENCE_SECONDS)
    if found is None:
        raise AssertionError("the broker does not say where the topic ends")
    return int(found[1])


def _put(messages: Sequence[Any], databases: list[Rdict], reached: list[int]) -> None:
    batches: dict[int, WriteBatch] = {}
    for message in messages:
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        number = message.partition()
        if number not in batches:
            batches[number] = WriteBatch(raw_mode=True)
        batches[number].put(message.key(), message.value())
        reached[number] = message.offset() + 1
    for number, batch in batches.items():
        databases[number].write(batch)


def _held(databases: list[Rdict], sample: Mapping[bytes, bytes]) -> tuple[int, dict[bytes, bytes]]:
    count, found = 0, {}
    key_bytes, value_bytes = (len(part) for part in next(iter(sample.items())))
    for database in databases:
        pairs: Any = database.items()
        for key, value in pairs:
            count += 1
            if key[-key_bytes:] in sample:
                found[key[-key_bytes:]] = value[-value_bytes:]
    return count, found
