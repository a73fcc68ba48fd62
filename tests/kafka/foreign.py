"""A program that knows docs/log-format.md alone, and none of our code."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import xxhash
from confluent_kafka import Consumer, KafkaError, TopicPartition

PARTITIONS = 4
"""How many partitions the topics have."""


class Format:
    """The format of one store's topic, by its page and ``store show``."""

    def __init__(self, shown: dict[str, Any]) -> None:
        """By what ``anew store show`` says."""
        self.key_id = shown["key_schema_id"]
        self.value_id = shown["value_schema_id"]
        self._key = fastavro.parse_schema(json.loads(shown["key_schema"]))
        schemas = shown["value_schemas"].items()
        self._values = {int(number): fastavro.parse_schema(json.loads(text)) for number, text in schemas}

    def key(self, datum: Any) -> bytes:
        """A key with its wire header."""
        return struct.pack(">bI", 0, self.key_id) + body_of(self._key, datum)

    def value(self, datum: Any) -> bytes:
        """A value with its wire header, by the store's newest schema."""
        return struct.pack(">bI", 0, self.value_id) + body_of(self._values[self.value_id], datum)

    def partition(self, datum: Any) -> int:
        """Where a key belongs."""
        hashed = xxhash.xxh64_intdigest(body_of(self._key, datum), seed=42)
        return (hashed - (1 << 64) if hashed >= 1 << 63 else hashed) % PARTITIONS

    def read(self, key: bytes, value: bytes | None) -> tuple[Any, Any]:
        """Key and value of a record; None where it is a delete."""
        magic, number = struct.unpack(">bI", key[:5])
        assert (magic, number) == (0, self.key_id)
        datum = fastavro.schemaless_reader(io.BytesIO(key[5:]), self._key, None)
        if value is None:
            return datum, None
        magic, number = struct.unpack(">bI", value[:5])
        assert magic == 0
        return datum, fastavro.schemaless_reader(io.BytesIO(value[5:]), self._values[number], None)


def body_of(schema: Any, datum: Any) -> bytes:
    """A datum in Avro's binary form."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, datum)
    return out.getvalue()


def records_of(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> Iterator[Any]:
    """All records of a topic."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "somebody", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        ended: set[int | None] = set()
        while len(ended) < partitions:
            for message in consumer.consume(100, 1.0):
                error = message.error()
                if error is None:
                    yield message
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
    finally:
        consumer.close()
