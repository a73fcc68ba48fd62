"""The binding to librdkafka and the library that confluent-kafka brings agree, field by field, on what a record is.

Over librdkafka's own simulated broker, in this process; confluent-kafka's objects are the other side.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import confluent_kafka
import pyarrow as pa
import pytest

from anew.core.errors import Failed
from anew.log.interface import APPEND_RECORDS, RAW_APPEND
from anew.log.kafka import native
from anew.log.kafka.native import APPEND_HEADER, Client

TOPIC, PARTITION, KEY_SCHEMA = "layout", 2, 0x01020304
APPEND_ID = bytes(range(16))
SECONDS = 20
TOLD_MS = 1_234
"""The append time that the simulated broker names whenever it acknowledges."""
VALUE_SCHEMAS = (0x7F6E5D4C, 0, 9)
KEYS = (b"first \x00 key", b"", b"k" * 3_000)
VALUES = (b"\xff value" * 500, None, b"")
WRITTEN = (1_700_000_000_123, None, 9_007_199_254_740_993)
ORIGINS = (b"", b"\x01\x02\x03", b"origin\x00")


class Broker(NamedTuple):
    """A simulated broker, and the address that its clients take."""

    producer: confluent_kafka.Producer
    settings: dict[str, str]


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Lives as long as the producer that made it."""
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (one,) = producer.list_topics(timeout=SECONDS).brokers.values()
    yield Broker(producer, {"bootstrap.servers": f"{one.host}:{one.port}"})
    producer.purge()


def wire(schema: int, body: bytes) -> bytes:
    """A body behind its header."""
    return b"\x00" + schema.to_bytes(4, "big") + body


def headers_of(row: int) -> list[tuple[str, str | bytes | None]]:
    """What is sent beside a record."""
    written, is_last = WRITTEN[row], row == len(KEYS) - 1
    return [
        *([("anew-origin", ORIGINS[row])] if ORIGINS[row] else []),
        *([] if written is None else [("anew-written-at", str(written).encode())]),
        *([(APPEND_HEADER, APPEND_ID)] if is_last else []),
    ]


def records() -> pa.RecordBatch:
    """Records in which each field has a value of its own."""
    columns: dict[str, list[Any]] = {
        "written_ms": [*WRITTEN],
        "origin": [*ORIGINS],
        "key": [*KEYS],
        "schema_id": [*VALUE_SCHEMAS],
        "value": [*VALUES],
    }
    return pa.RecordBatch.from_pydict(columns, schema=APPEND_RECORDS)


def test_the_library_is_of_a_version_that_the_binding_knows() -> None:
    """The number that is checked is the one that confluent-kafka tells."""
    text, number = confluent_kafka.libversion()
    native._check_librdkafka(number)
    assert text.split(".")[:2] == [str(number >> 24), str(number >> 16 & 0xFF)]


@pytest.mark.parametrize("number", [0, 0x010903FF, 0x020F01FF, 0x030000FF], ids=hex)
def test_another_version_is_refused(number: int) -> None:
    """Before a struct of it is looked into, with what was found and what to install."""
    with pytest.raises(Failed) as caught:
        native._check_librdkafka(number)
    assert caught.value.code == "unknown_library_version"
    assert caught.value.expected == "2.16.0 or later, below 3.0.0"
    assert "confluent-kafka" in str(caught.value.hint)


def test_what_is_appended_is_what_confluent_kafka_reads(broker: Broker) -> None:
    """Topic, partition, offset, time, key, value and headers of each record."""
    before_ms = int(time.time() * 1_000)
    client = Client({**broker.settings, "message.timeout.ms": "10000"}, is_producer=True)
    sent = client.append(
        TOPIC, PARTITION, records(), key_schema_id=KEY_SCHEMA, append_id=APPEND_ID, timeout_ms=SECONDS * 1_000
    )
    client.close()
    assert (sent.landed, sent.lost, sent.unknown, sent.error) == (3, 0, 0, 0), native.words_of(sent.error)
    assert (sent.first_offset, sent.last_offset, sent.least_ms, sent.last_ms) == (0, 2, TOLD_MS, TOLD_MS)
    consumer = confluent_kafka.Consumer({**broker.settings, "group.id": "none"})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, PARTITION, 0)])
    for row in range(3):
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None
        value = VALUES[row]
        assert (message.topic(), message.partition(), message.offset()) == (TOPIC, PARTITION, row)
        assert message.key() == wire(KEY_SCHEMA, KEYS[row])
        assert message.value() == (None if value is None else wire(VALUE_SCHEMAS[row], value))
        assert (message.headers() or []) == headers_of(row)
        assert before_ms <= message.timestamp()[1] <= time.time() * 1_000
    consumer.close()


def test_what_confluent_kafka_sends_is_what_is_read(broker: Broker) -> None:
    """Offset, time, key, value, schema, origin and write time of each record, and the end of the partition."""
    for row, (key, schema, value) in enumerate(zip(KEYS, VALUE_SCHEMAS, VALUES, strict=True)):
        body = None if value is None else wire(schema, value)
        broker.producer.produce(
            TOPIC, body, wire(KEY_SCHEMA, key), PARTITION, timestamp=1_000 + row, headers=headers_of(row)
        )
    assert broker.producer.flush(SECONDS) == 0
    client = Client({**broker.settings, "enable.partition.eof": "true"}, is_producer=False)
    cursor = client.start(TOPIC, PARTITION, 0, KEY_SCHEMA)
    taken: list[dict[str, Any]] = []
    deadline = time.monotonic() + SECONDS
    while not cursor.at_end and time.monotonic() < deadline:
        got = cursor.take(2, 1_000)
        assert got.error == 0, native.words_of(got.error)
        taken += got.records.to_pylist()
    assert taken == [
        {
            "offset": row,
            "appended_ms": 1_000 + row,
            "written_ms": WRITTEN[row],
            "origin": ORIGINS[row],
            "key": KEYS[row],
            "schema_id": VALUE_SCHEMAS[row],
            "value": VALUES[row],
            "flaw": 0,
        }
        for row in range(3)
    ]
    assert (cursor.position, cursor.at_end) == (3, True)
    cursor.stop()
    client.close()


RAW_PAIRS = ((None, b"{}"), (b"", b""), (b"key \x00", None), (None, b"\xff" * 3_000))
RAW_TIMES = (1_700_000_000_123, None, 1_600_000_000_000, 1)


def test_raw_records_are_what_confluent_kafka_reads(broker: Broker) -> None:
    """Key and value byte for byte, also none and empty ones, the time that was given, and the append's id alone."""
    columns: dict[str, list[Any]] = {
        "key": [key for key, _ in RAW_PAIRS],
        "value": [value for _, value in RAW_PAIRS],
        "timestamp_ms": [*RAW_TIMES],
    }
    raw = pa.RecordBatch.from_pydict(columns, schema=RAW_APPEND)
    client = Client({**broker.settings, "message.timeout.ms": "10000"}, is_producer=True)
    sent = client.append(TOPIC, PARTITION, raw, key_schema_id=1, append_id=APPEND_ID, timeout_ms=SECONDS * 1_000)
    client.close()
    assert (sent.landed, sent.error) == (4, 0), native.words_of(sent.error)
    consumer = confluent_kafka.Consumer({**broker.settings, "group.id": "none"})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, PARTITION, 0)])
    for row, (key, value) in enumerate(RAW_PAIRS):
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None
        assert (message.key(), message.value()) == (key, value)
        assert RAW_TIMES[row] in (None, message.timestamp()[1])
        assert (message.headers() or []) == ([(APPEND_HEADER, APPEND_ID)] if row == 3 else [])
    consumer.close()


def test_what_confluent_kafka_sends_is_read_raw(broker: Broker) -> None:
    """Offset, time, key and value as they are, whatever they are."""
    for row, (key, value) in enumerate(RAW_PAIRS):
        broker.producer.produce(TOPIC, value, key, PARTITION, timestamp=1_000 + row, headers=headers_of(0))
    assert broker.producer.flush(SECONDS) == 0
    client = Client({**broker.settings, "enable.partition.eof": "true"}, is_producer=False)
    cursor = client.start(TOPIC, PARTITION, 0, None)
    taken: list[dict[str, Any]] = []
    deadline = time.monotonic() + SECONDS
    while not cursor.at_end and time.monotonic() < deadline:
        got = cursor.take(3, 1_000)
        assert got.error == 0, native.words_of(got.error)
        taken += got.records.to_pylist()
    expected = [(row, 1_000 + row, key, value) for row, (key, value) in enumerate(RAW_PAIRS)]
    assert [(each["offset"], each["timestamp_ms"], each["key"], each["value"]) for each in taken] == expected
    cursor.stop()
    client.close()


def test_an_error_is_told_with_its_code() -> None:
    """A message's first field: what could not be sent in time is lost, and why."""
    client = Client({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": "300"}, is_producer=True)
    sent = client.append(TOPIC, PARTITION, records(), key_schema_id=1, append_id=APPEND_ID, timeout_ms=SECONDS * 1_000)
    client.close()
    assert (sent.landed, sent.lost, sent.error) == (0, 3, confluent_kafka.KafkaError._MSG_TIMED_OUT)
