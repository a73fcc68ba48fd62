"""Topics as a program sees them: where records land, and what is read."""

from __future__ import annotations

from typing import Any

import pytest

from anew.api.topics import CreateTopic, TopicView
from anew.client.topicreads import Edge
from anew.client.topics import Topic
from anew.client.topicwriter import TopicWriter, partition_of
from anew.core.errors import InvalidRequest, NotFound, OutcomeUnknown, Refused, Unreachable
from anew.core.feed import FeedPartition
from anew.core.partition import XxHash64Partitioner
from anew.log.interface import Appended, TopicPartition
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA, append_records
from anew.testing.raw_contract import raw_pairs, raw_records, wire
from tests.component.controller.harness import Cluster, refused
from tests.component.controller.topics.conftest import Opened


def _create(cluster: Cluster, **fields: Any) -> TopicView:
    return cluster.client.create_topic(CreateTopic(name="clicks", **fields))


def _read(topic: Topic, *arguments: Any, **options: Any) -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in topic.read(*arguments, **options)]


def test_json_values_are_kept_as_json(cluster: Cluster, opened: Opened) -> None:
    """A value is its JSON text, a key its text, or the JSON of what is no text."""
    view = _create(cluster, columns="user STRING")
    position = opened("clicks").write([{"user": "ü", "n": 1}, {"user": 7, "n": None}], key="user")
    expected: list[tuple[Any, Any]] = [("ü".encode(), '{"user":"ü","n":1}'.encode()), (b"7", b'{"user":7,"n":null}')]
    assert raw_pairs(cluster.log, partition_of(view, 0)) == expected
    assert _read(opened("clicks")) == [("ü", {"user": "ü", "n": 1}), ("7", {"user": 7, "n": None})]
    assert dict(position.items()) == {FeedPartition("dc-0/clicks#1", 0): 2}


def test_avro_records_have_the_wire_form(cluster: Cluster, opened: Opened) -> None:
    """Key and value by the topic's schemas and ids; a value that is none is a delete."""
    view = _create(cluster, key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA)
    with opened("clicks").writer() as writer:
        writer.put("a", {"text": "x"})
        writer.put("b", None)
    assert view.key_schema_id is not None
    assert view.value_schema_id is not None
    assert raw_pairs(cluster.log, partition_of(view, 0)) == [
        (wire(view.key_schema_id, b"\x02a"), wire(view.value_schema_id, b"\x02x")),
        (wire(view.key_schema_id, b"\x02b"), None),
    ]
    assert _read(opened("clicks")) == [("a", {"text": "x"}), ("b", None)]
    assert opened("clicks").write([{"text": "t"}], key="text").to_json() == {"dc-0/clicks#1": {"0": 3}}


def test_bytes_are_kept_as_they_are(cluster: Cluster, opened: Opened) -> None:
    """Neither part is touched, and either may be missing."""
    _create(cluster, format="bytes")
    pairs: list[tuple[Any, Any]] = [(None, b"\xff"), (b"", b""), (b"k", None)]
    with opened("clicks").writer() as writer:
        for key, value in pairs:
            writer.put(key, value)
    assert _read(opened("clicks")) == pairs


def test_a_key_has_one_partition_and_no_key_has_all(cluster: Cluster, opened: Opened) -> None:
    """Keys go by the hash of their bytes, as everywhere; what has no key is dealt in turn."""
    view = _create(cluster, partitions=4)
    topic, partitioner = opened("clicks"), XxHash64Partitioner(4)
    topic.write([{"id": f"u{number % 5}"} for number in range(40)], key="id")
    found = {(record.key, record.partition) for record in topic.read()}
    assert found == {(f"u{number}", partitioner.of(f"u{number}".encode())) for number in range(5)}
    before = [cluster.log.offsets(partition_of(view, number)).end for number in range(4)]
    topic.write(range(10))
    after = [cluster.log.offsets(partition_of(view, number)).end for number in range(4)]
    assert [now - then for now, then in zip(after, before, strict=True)] == [3, 3, 2, 2]


@pytest.mark.parametrize(
    ("format_of", "key", "value"),
    [
        ("json", None, {"a": object()}),
        ("json", None, float("nan")),
        ("json", {1, 2}, 1),
        ("bytes", None, "text"),
        ("bytes", 1, b""),
        ("avro", 1, {"text": "x"}),
        ("avro", "a", {"texts": "x"}),
    ],
)
def test_what_does_not_fit_is_not_written(
    cluster: Cluster, opened: Opened, format_of: str, key: Any, value: Any
) -> None:
    """A record that the format does not have is refused with what was found; others are written."""
    schemas = {"key_schema": KEY_SCHEMA, "value_schema": VALUE_SCHEMA} if format_of == "avro" else {}
    view = _create(cluster, format=format_of, **schemas)
    with opened("clicks").writer() as writer:
        assert refused(InvalidRequest, lambda: writer.put(key, value)).code == "value_misfit"
    assert (writer.accepted, cluster.log.offsets(partition_of(view, 0)).end) == (0, 0)


def test_a_key_that_is_to_be_there_is(cluster: Cluster, opened: Opened) -> None:
    """A value without the member that is to be its key, and an Avro record without a key, are refused."""
    _create(cluster)
    for row in ({"a": 1}, {"id": None}, 7):
        error = refused(InvalidRequest, lambda row=row: opened("clicks").write([row], key="id"))  # type: ignore[misc]  # mypy knows no type of a lambda's default
        assert error.code == "no_key"
    cluster.client.create_topic(CreateTopic(name="avro", key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA))
    assert refused(InvalidRequest, lambda: opened("avro").write([{"text": "x"}])).code == "no_key"
    writer = opened("avro").writer()
    assert refused(InvalidRequest, lambda: writer.put_bytes(b"a", b"b")).code == "bad_topic_format"
    writer.close()


def test_records_are_read_in_the_order_of_their_times(cluster: Cluster, opened: Opened) -> None:
    """From the oldest, from the newest, from an offset of one partition; never more than asked for."""
    _create(cluster, partitions=3)
    topic = opened("clicks")
    for number in range(9):
        topic.write([number], key=lambda _: f"key-{number % 4}")
        cluster.clock.advance(10)
    values = [record.value for record in topic.read()]
    assert values == [*range(9)]
    assert [record.value for record in topic.read(limit=4)] == [0, 1, 2, 3]
    assert [record.value for record in topic.read(Edge.NEWEST, limit=4)] == [5, 6, 7, 8]
    of_one = [record.value for record in topic.read() if record.partition == 1]
    assert [record.value for record in topic.read(partition=1)] == of_one
    assert [record.value for record in topic.read(1, partition=1)] == of_one[1:]


def test_reads_that_cannot_be_are_refused(cluster: Cluster, opened: Opened) -> None:
    """An offset without a partition, an unknown topic or partition, and no records at all."""
    _create(cluster, partitions=2)
    topic = opened("clicks")
    assert refused(InvalidRequest, lambda: topic.read(0)).code == "bad_offset"
    assert refused(InvalidRequest, lambda: topic.read(limit=0)).code == "bad_limit"
    assert refused(NotFound, lambda: topic.read(partition=2)).code == "unknown_partition"
    assert refused(NotFound, lambda: opened("other")).code == "unknown_topic"


def test_what_is_not_of_the_format_is_shown_with_its_flaw(cluster: Cluster, opened: Opened) -> None:
    """A foreign program may write anything; a read says what is wrong with each record, and goes on."""
    view = _create(cluster)
    cluster.log.append_raw(partition_of(view, 0), raw_records([(b"\xff", b"{"), (None, None), (b"k", b"1")]))
    found = opened("clicks").read()
    assert [(record.key, record.value) for record in found] == [(b"\xff", None), (None, None), ("k", 1)]
    assert [record.flaw is None for record in found] == [False, True, True]
    made = CreateTopic(name="avro", key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA)
    at = partition_of(cluster.client.create_topic(made), 0)
    cluster.log.append_raw(at, raw_records([(None, b"x")]))
    cluster.log.append(at, append_records([b"\x02a"], [b"\x02x"]))
    flaws = [record.flaw for record in opened("avro").read()]
    assert flaws == ["no key", "unknown value schema 1"]


def test_a_topic_that_is_not_made_yet_is_refused(
    cluster: Cluster, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the log has not made it nobody can write or read it, and is told so."""

    def away(*_: object) -> Any:
        raise Unreachable("log_unreachable", "the log does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.log, "create_topic", away)
        _create(cluster)
    topic = opened("clicks")
    for act in (topic.writer, topic.read):
        assert refused(Refused, act).code == "topic_not_ready"


class _LosesAnswers:
    """A log that appends, and loses the answer the first times."""

    def __init__(self, log: Any, times: int) -> None:
        self._log, self._times = log, times

    def append_raw(self, at: TopicPartition, records: Any) -> Appended:
        appended: Appended = self._log.append_raw(at, records)
        self._times -= 1
        if self._times >= 0:
            raise OutcomeUnknown("append_unknown", "the answer was lost")
        return appended

    def close(self) -> None:
        """The log is another's."""


@pytest.mark.case("rules:R22")
@pytest.mark.parametrize("times", [1, 3])
def test_a_record_is_written_once_whatever_answers_are_lost(cluster: Cluster, times: int) -> None:
    """A batch is repeated under its id at once, and again by the next flush."""
    view = _create(cluster)
    writer = TopicWriter(view, _LosesAnswers(cluster.log, times))  # type: ignore[arg-type]  # as much of a log as it asks
    writer.put(None, 1)
    if times > 1:
        refused(OutcomeUnknown, writer.flush)
        assert (writer.accepted, writer.acknowledged) == (1, 0)
    writer.put(None, 2)
    writer.close()
    assert [value for _, value in raw_pairs(cluster.log, partition_of(view, 0))] == [b"1", b"2"]
    assert writer.acknowledged == 2
