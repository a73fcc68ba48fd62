"""Nearline writes into a real log: where records land, what is acknowledged, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anew.api.stores.routing import Routing
from anew.client.writer import Writer
from anew.codec.avro import decode_datum, encode_datum, parse_schema
from anew.core.errors import AnewError, InvalidRequest, OutcomeUnknown, PartlyDone, Refused, Unreachable
from anew.core.feed import Feed, FeedPartition, PositionMap
from anew.core.partition import XxHash64Partitioner
from anew.log.embedded import EmbeddedLog
from anew.log.interface import Appended, Log, TopicPartition, TopicSpec
from anew.testing.builders import KEY_SCHEMA, ORIGIN, VALUE_SCHEMA, a_feed
from anew.testing.clock import NOON_MS, ManualClock
from tests.unit.client.fleet import a_fleet

_FEED = a_feed(partitions=4)
_KEYS = [f"key-{number}" for number in range(20)]


def _routing(feed: Feed | None = _FEED, **changes: Any) -> Routing:
    return a_fleet(feed=feed).routing.model_copy(update=changes)


def _partition(key: str) -> int:
    return XxHash64Partitioner(_FEED.partitions).of(_encoded(key))


def _encoded(key: str) -> bytes:
    return encode_datum(parse_schema(KEY_SCHEMA), key)


def _at(partition: int) -> TopicPartition:
    return TopicPartition(_FEED.topic, _FEED.topic_uid, partition)


def _position(log: Log) -> PositionMap:
    ends = {FeedPartition(_FEED.id, p): log.offsets(_at(p)).end for p in range(_FEED.partitions)}
    return PositionMap({at: end for at, end in ends.items() if end > 0})


def _rows(log: Log, partition: int | None = None) -> list[dict[str, Any]]:
    partitions = range(_FEED.partitions) if partition is None else [partition]
    return [row for p in partitions for row in log.read(_at(p), 0, 100_000).records.to_pylist()]


def _keys(log: Log) -> list[str]:
    return sorted(decode_datum(parse_schema(KEY_SCHEMA), row["key"]) for row in _rows(log))


@dataclass
class _Faulty:
    """A log in front of another one; ``faults`` are raised by the next appends, after the append for a lost answer."""

    inner: EmbeddedLog
    faults: list[AnewError] = field(default_factory=list)
    closed: bool = False
    between: Callable[[], object] = lambda: None

    def append(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None and not isinstance(fault, OutcomeUnknown):
            raise fault
        appended = self.inner.append(at, records)
        if fault is not None:
            between, self.between = self.between, lambda: None
            between()
            raise fault
        return appended

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class _Rejecting(_Faulty):
    """A log whose broker gave times by which readers reject some rows of each append."""

    rows: tuple[int, ...] = ()

    def append(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        return replace(self.inner.append(at, records), rejected=self.rows)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """A log with the feed's topic."""
    opened = EmbeddedLog(tmp_path / "log", clock=ManualClock(), durable=False)
    opened.create_topic(TopicSpec(_FEED.topic, _FEED.topic_uid, _FEED.partitions))
    yield opened
    opened.close()


@pytest.fixture
def writer(log: EmbeddedLog) -> Writer:
    """A writer of the store."""
    return Writer(_routing(), log)


def _refused(act: Any, *arguments: Any, **options: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        act(*arguments, **options)
    return caught.value


def test_records_land_where_their_keys_belong(log: EmbeddedLog, writer: Writer) -> None:
    """Each record is in the feed partition of its key, with the schema's id, its body and the fabric's origin."""
    for key in _KEYS:
        writer.put(key, {"text": f"of {key}"})
    assert writer.flush() == _position(log)
    schema = parse_schema(VALUE_SCHEMA)
    for partition in range(_FEED.partitions):
        for row in _rows(log, partition):
            key = decode_datum(parse_schema(KEY_SCHEMA), row["key"])
            assert _partition(key) == partition
            assert (row["schema_id"], row["origin"], row["written_ms"]) == (1, ORIGIN, None)
            assert decode_datum(schema, row["value"]) == {"text": f"of {key}"}
    assert _keys(log) == sorted(_KEYS)


def test_the_newest_schema_writes(log: EmbeddedLog) -> None:
    """With several value schemas a value is written by the one that the store got last, whatever its id."""
    wider = VALUE_SCHEMA.replace("]}", ', {"name": "stars", "type": "int", "default": 5}]}')
    writer = Writer(_routing(schemas={1: VALUE_SCHEMA, 10: VALUE_SCHEMA, 2: wider}), log)
    writer.put("key-0", {"text": "a"})
    writer.flush()
    (row,) = _rows(log)
    assert row["schema_id"] == 2
    assert decode_datum(parse_schema(wider), row["value"]) == {"text": "a", "stars": 5}


def test_the_position_is_behind_what_was_written_here(log: EmbeddedLog, writer: Writer) -> None:
    """Each flush moves the position of the partitions that it wrote to, and of no other; nothing new, nothing moves."""
    assert writer.flush() == PositionMap()
    writer.put("key-0", {"text": "a"})
    first = writer.flush()
    assert first == PositionMap({FeedPartition(_FEED.id, _partition("key-0")): 1})
    assert writer.flush() == first
    writer.put("key-0", {"text": "b"})
    writer.delete("key-0")
    assert writer.close() == PositionMap({FeedPartition(_FEED.id, _partition("key-0")): 3})
    assert writer.accepted == 3


def test_a_delete_is_a_tombstone_with_its_time(log: EmbeddedLog, writer: Writer) -> None:
    """A delete has no value and no schema; a given time goes with it, and order within the key is kept."""
    writer.put("key-0", {"text": "a"}, written_at=NOON_MS - 5)
    writer.delete("key-0", written_at=NOON_MS - 4)
    writer.delete("absent")
    writer.flush()
    rows = [(row["schema_id"], row["value"] is None, row["written_ms"]) for row in _rows(log, _partition("key-0"))]
    assert rows[:2] == [(1, False, NOON_MS - 5), (0, True, NOON_MS - 4)]
    assert _keys(log) == ["absent", "key-0", "key-0"]


def test_full_buffers_are_written_before_anybody_asks(log: EmbeddedLog, writer: Writer) -> None:
    """A long run of puts is appended in batches; memory holds one of them at most."""
    for number in range(2_500):
        writer.put(f"many-{number}", {"text": ""})
    assert len(_rows(log)) == 2_000
    writer.close()
    assert len(_rows(log)) == 2_500


@pytest.mark.case("stores:I7")
@pytest.mark.parametrize(
    ("value", "named"), [({"text": 7}, "text"), ({}, "text"), ({"text": "a", "size": 1}, "size"), ("a", "Value")]
)
def test_a_value_that_does_not_fit_is_refused(log: EmbeddedLog, writer: Writer, value: Any, named: str) -> None:
    """A value that is none of the newest schema is refused naming the field, and nothing of it is ever written."""
    error = _refused(writer.put, "key-0", value)
    assert (error.code, named in str(error)) == ("value_misfit", True)
    writer.close()
    assert (_rows(log), writer.accepted) == ([], 0)


def test_a_key_that_does_not_fit_is_refused(log: EmbeddedLog, writer: Writer) -> None:
    """Keys are checked as values are, for puts and deletes."""
    assert _refused(writer.put, 7, {"text": "a"}).code == "value_misfit"
    assert _refused(writer.delete, None).code == "value_misfit"
    writer.close()
    assert (_rows(log), writer.accepted) == ([], 0)


def test_a_value_that_is_too_large_is_refused(log: EmbeddedLog, writer: Writer) -> None:
    """The limit counts the Avro body: 100 bytes are accepted, 101 are refused with both numbers and the key."""
    writer.put("fits", {"text": "x" * 98})
    error = _refused(writer.put, "key-0", {"text": "x" * 99})
    assert error.code == "value_too_large"
    assert "101 bytes" in error.found
    assert "key-0" in error.found
    assert "100" in error.expected
    writer.close()
    assert _keys(log) == ["fits"]


@pytest.mark.case("stores:I6")
def test_a_write_time_in_the_future_is_refused(log: EmbeddedLog, writer: Writer) -> None:
    """A time within the skew limit is accepted; beyond it nothing of its batch is written, all other batches are."""
    writer.put("key-0", {"text": "bad"}, written_at=NOON_MS + 60_001)
    for key in _KEYS:
        writer.put(key, {"text": "good"}, written_at=NOON_MS + 60_000)
    lost = [key for key in _KEYS if _partition(key) == _partition("key-0")]
    assert 0 < len(lost) < len(_KEYS)
    assert _refused(writer.flush).code == "written_at_out_of_range"
    assert _keys(log) == sorted(set(_KEYS) - set(lost))
    assert (writer.accepted, writer.position) == (len(_KEYS) - len(lost), _position(log))
    for key in lost:
        writer.put(key, {"text": "good"}, written_at=NOON_MS + 60_000)
    writer.close()
    assert _keys(log) == sorted(_KEYS)


@pytest.mark.parametrize("written_at", [0, -1, 2**63, 10**30])
def test_what_is_no_time_is_refused_at_once(log: EmbeddedLog, writer: Writer, written_at: int) -> None:
    """Zero, negative and immense times are refused where they are given; nothing else is lost with them."""
    writer.put("key-0", {"text": "a"})
    for act in (lambda: writer.put("key-0", {"text": "b"}, written_at=written_at), lambda: _delete(writer, written_at)):
        error = _refused(act)
        assert (error.code, error.found) == ("written_at_out_of_range", written_at)
    writer.close()
    assert _keys(log) == ["key-0"]


def _delete(writer: Writer, written_at: int) -> None:
    writer.delete("key-0", written_at=written_at)


@pytest.mark.parametrize("written_at", [None, NOON_MS])
@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_a_lost_answer_undoes_nothing(log: EmbeddedLog, lost: int, written_at: int | None) -> None:
    """However many answers are lost, a record is in the log once: what others acknowledged since comes after it."""
    faulty = _Faulty(log, [OutcomeUnknown("append_unknown", "lost")] * lost)
    writer, other = Writer(_routing(), faulty), Writer(_routing(), log)

    def delete() -> None:
        other.delete("key-0", written_at=written_at)
        other.flush()

    faulty.between = delete
    writer.put("key-0", {"text": "a"}, written_at=written_at)
    for _ in range(lost // 2):
        with pytest.raises(OutcomeUnknown):
            writer.flush()
        writer.put("key-0", {"text": "b"}, written_at=written_at)
    writer.flush()
    values = [row["value"] for row in _rows(log, _partition("key-0"))]
    assert values[1:] == [None] + [encode_datum(parse_schema(VALUE_SCHEMA), {"text": "b"})] * (lost // 2)
    assert writer.accepted == writer.acknowledged == 1 + lost // 2


def test_records_that_readers_reject_are_not_acknowledged(log: EmbeddedLog) -> None:
    """Of a batch that a broker timed otherwise than the writer's clock, each record is judged as readers will."""
    writer = Writer(_routing(), _Rejecting(log, rows=(1,)))
    for number, written_at in enumerate((NOON_MS, NOON_MS + 60_000, NOON_MS - 1)):
        writer.put("key-0", {"text": str(number)}, written_at=written_at)
    with pytest.raises(PartlyDone) as caught:
        writer.flush()
    assert caught.value.code == "written_at_out_of_range"
    assert ("1 of 3" in caught.value.message, "key-0" in caught.value.found) == (True, True)
    assert (writer.accepted, writer.acknowledged) == (2, 2)
    assert writer.flush() == _position(log)


def test_an_outcome_that_stays_unknown_is_said_and_can_be_flushed_again(log: EmbeddedLog) -> None:
    """Two lost answers are handed on; what was not acknowledged is still buffered."""
    faulty = _Faulty(log, [OutcomeUnknown("append_unknown", "lost")] * 2)
    writer = Writer(_routing(), faulty)
    writer.put("key-0", {"text": "a"})
    with pytest.raises(OutcomeUnknown):
        writer.flush()
    assert writer.position == PositionMap()
    assert writer.flush() == _position(log)
    assert _keys(log) == ["key-0"]


@pytest.mark.parametrize("fault", [Unreachable("log_busy", "busy"), Refused("clock_behind", "behind")])
def test_what_could_not_be_written_stays_buffered(log: EmbeddedLog, fault: AnewError) -> None:
    """After an error that changed nothing a second flush writes every record, once."""
    writer = Writer(_routing(), _Faulty(log, [fault]))
    for key in _KEYS:
        writer.put(key, {"text": "a"})
    with pytest.raises(type(fault)):
        writer.flush()
    writer.flush()
    assert _keys(log) == sorted(_KEYS)


def test_a_refusal_of_the_replay_drops_the_batch(log: EmbeddedLog) -> None:
    """A batch that the log refuses when it is replayed does not come again for ever."""
    faults: list[AnewError] = [OutcomeUnknown("append_unknown", "lost"), InvalidRequest("written_at_out_of_range", "x")]
    writer = Writer(_routing(), _Faulty(log, faults))
    writer.put("key-0", {"text": "a"})
    assert _refused(writer.flush).code == "written_at_out_of_range"
    writer.flush()
    assert _keys(log) == ["key-0"]
    assert (writer.accepted, writer.acknowledged) == (0, 0)


def test_leaving_the_block_flushes_and_an_error_gives_up(log: EmbeddedLog) -> None:
    """Without an error all is on disk behind the block; with one, what was only buffered is not written."""
    faulty = _Faulty(log)
    with Writer(_routing(), faulty) as writer:
        writer.put("key-0", {"text": "a"})
    assert (_keys(log), faulty.closed) == (["key-0"], True)
    faulty = _Faulty(log)
    with pytest.raises(ZeroDivisionError), Writer(_routing(), faulty) as writer:
        writer.put("key-1", {"text": 1 / 0})
    assert (_keys(log), faulty.closed) == (["key-0"], True)


@pytest.mark.parametrize(
    ("routing", "code", "hint"),
    [
        (_routing(feed=None), "not_hybrid", "hybrid=true"),
        (_routing(writes=False), "writes_disabled", "anew store update flights --set writes=true"),
    ],
)
def test_a_store_that_takes_no_writes_refuses_a_writer(
    log: EmbeddedLog, routing: Routing, code: str, hint: str
) -> None:
    """No writer is made for a store that is not hybrid or whose writes are off; the refusal says what to do."""
    fleet = a_fleet()
    fleet.routing = routing
    faulty = _Faulty(log)
    with pytest.raises(Refused) as caught:
        fleet.store(lambda _routing: faulty).writer()
    assert (caught.value.code, hint in str(caught.value.hint)) == (code, True)
    assert (faulty.closed, _rows(log)) == (True, [])


def test_a_store_s_writer_asks_for_the_newest_routing(log: EmbeddedLog) -> None:
    """Writes that were closed a moment ago are refused although the routing that is known allowed them."""
    fleet = a_fleet(feed=_FEED)
    store = fleet.store(lambda _routing: log)
    store.writer()
    fleet.route(writes=False)
    with pytest.raises(Refused) as caught:
        store.writer()
    assert caught.value.code == "writes_disabled"
