"""What every log promises of records whose bytes it keeps as they are, as tests; see `anew.log.interface`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anew.core.errors import Failed, InvalidRequest, Refused
from anew.log.interface import (
    RAW_APPEND,
    RAW_RECORDS,
    Flaw,
    Log,
    Offsets,
    TopicPartition,
    TopicSpec,
    append_id_of,
    identified,
)
from anew.testing.builders import append_records, some_records
from anew.testing.log_contract import LogContract
from anew.testing.log_reading import rows

KEY_SCHEMA = 1
"""Of `TopicPartition`s that say nothing else."""


def raw_records(
    pairs: Sequence[tuple[bytes | None, bytes | None]], times: Sequence[int | None] | None = None
) -> pa.RecordBatch:
    """Raw records to append: keys and values, and times."""
    columns: dict[str, list[Any]] = {
        "key": [key for key, _ in pairs],
        "value": [value for _, value in pairs],
        "timestamp_ms": [None] * len(pairs) if times is None else list(times),
    }
    return pa.RecordBatch.from_pydict(columns, schema=RAW_APPEND)


def wire(schema_id: int, body: bytes) -> bytes:
    """A body in wire form."""
    return b"\x00" + schema_id.to_bytes(4, "big") + body


def raw_rows(log: Log, at: TopicPartition, offset: int = 0) -> list[dict[str, Any]]:
    """All records from an offset on, as they are, up to the end of now."""
    found: list[dict[str, Any]] = []
    end = log.offsets(at).end
    while offset < end:
        read = log.read_raw(at, offset, 7, end)
        assert offset < read.next_offset <= end
        assert read.records.schema == RAW_RECORDS
        found += read.records.to_pylist()
        offset = read.next_offset
    return found


def raw_pairs(log: Log, at: TopicPartition, offset: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of all records from an offset on."""
    return [(row["key"], row["value"]) for row in raw_rows(log, at, offset)]


class RawContract(LogContract):
    """`LogContract`, and records without schemas."""

    def test_bytes_are_read_as_they_were_appended(self, log: Log, at: TopicPartition) -> None:
        """No key and an empty one, no value and an empty one, and any bytes come back, in order, with dense offsets."""
        pairs = [(None, b"{}"), (b"", b""), (b"key", None), (None, None), (b"\x00\x01", b"\xff" * 3_000), (b"k", b"")]
        appended = log.append_raw(at, raw_records(pairs))
        assert (appended.first_offset, appended.next_offset, appended.rejected) == (0, 6, ())
        found = raw_rows(log, at)
        assert [(row["key"], row["value"]) for row in found] == pairs
        assert [row["offset"] for row in found] == list(range(6))
        assert {row["timestamp_ms"] for row in found} == {appended.last_ms}

    def test_one_side_alone_may_be_null(self, log: Log, at: TopicPartition) -> None:
        """Records that all lack the key, or all lack the value, are read like others."""
        for pairs in ([(None, b"a"), (None, b"b")], [(b"a", None), (b"b", None)], [(None, None)], [(b"", b"")]):
            first = log.append_raw(at, raw_records(pairs)).first_offset
            assert raw_pairs(log, at, first) == pairs

    def test_the_log_s_time_counts(self, log: Log, at: TopicPartition, clock: Callable[[], int]) -> None:
        """A time that a writer gives does not pass for the append time, so that times go on as the log counts."""
        appended = log.append_raw(at, raw_records([(b"a", b"1"), (b"b", b"2")], [1, None]))
        assert [row["timestamp_ms"] for row in raw_rows(log, at)] == [appended.last_ms] * 2
        assert abs(appended.last_ms - clock()) < 60_000

    def test_a_slice_of_a_batch_is_appended_alone(self, log: Log, at: TopicPartition) -> None:
        """Records that are cut out of a larger batch are those that are appended."""
        pairs = [(None if number % 3 == 0 else f"{number}".encode(), b"v" * number) for number in range(10)]
        log.append_raw(at, raw_records(pairs).slice(3, 4))
        assert raw_pairs(log, at) == pairs[3:7]

    def test_a_record_with_schemas_has_the_wire_form(self, log: Log, at: TopicPartition) -> None:
        """What was appended with schemas is read raw as Confluent's serialisers write it, deletes too."""
        log.append(at, append_records([b"a", b"", b"c"], [b"1", b"", None]))
        expected = [
            (wire(KEY_SCHEMA, b"a"), wire(1, b"1")),
            (wire(KEY_SCHEMA, b""), wire(1, b"")),
            (wire(KEY_SCHEMA, b"c"), None),
        ]
        assert raw_pairs(log, at) == expected

    def test_bytes_in_wire_form_are_a_record_with_schemas(self, log: Log, at: TopicPartition) -> None:
        """A raw record that somebody's serialiser made reads like one that was appended with schemas."""
        log.append_raw(at, raw_records([(wire(KEY_SCHEMA, b"a"), wire(7, b"1")), (wire(KEY_SCHEMA, b""), None)]))
        found = [(row["key"], row["schema_id"], row["value"], row["flaw"]) for row in rows(log, at)]
        assert found == [(b"a", 7, b"1", Flaw.NONE), (b"", 0, None, Flaw.NONE)]
        assert {(row["written_ms"], row["origin"]) for row in rows(log, at)} == {(None, b"")}

    def test_other_bytes_are_flawed_records(self, log: Log, at: TopicPartition) -> None:
        """A read with schemas says of a raw record what is wrong with it; offsets and times are as of all others."""
        key, value = wire(KEY_SCHEMA, b"a"), wire(7, b"1")
        cases = [
            ((None, value), Flaw.NO_KEY),
            ((None, b"{}"), Flaw.NO_KEY),
            ((b"", value), Flaw.KEY_WITHOUT_HEADER),
            ((b"key", b"{}"), Flaw.KEY_WITHOUT_HEADER),
            ((b"\x01" + key[1:], value), Flaw.KEY_WITHOUT_HEADER),
            ((wire(KEY_SCHEMA + 1, b"a"), value), Flaw.UNKNOWN_KEY_SCHEMA),
            ((wire(KEY_SCHEMA + 1, b"a"), b"{}"), Flaw.UNKNOWN_KEY_SCHEMA),
            ((key, b""), Flaw.VALUE_WITHOUT_HEADER),
            ((key, b'{"a": 1}'), Flaw.VALUE_WITHOUT_HEADER),
            ((key, value), Flaw.NONE),
            ((key, None), Flaw.NONE),
        ]
        appended = log.append_raw(at, raw_records([pair for pair, _ in cases]))
        found = rows(log, at)
        assert [(row["offset"], row["flaw"]) for row in found] == [(i, flaw) for i, (_, flaw) in enumerate(cases)]
        assert {row["appended_ms"] for row in found} == {appended.last_ms}
        assert raw_pairs(log, at) == [pair for pair, _ in cases]

    def test_a_topic_holds_both_kinds(self, log: Log, at: TopicPartition) -> None:
        """Raw and other records side by side are read either way, each as what it is, also in turns."""
        log.append(at, some_records(2))
        log.append_raw(at, raw_records([(None, b"{}"), (wire(KEY_SCHEMA, b"k"), wire(3, b"v"))]))
        log.append(at, some_records(1))
        flaws = [Flaw.NONE, Flaw.NONE, Flaw.NO_KEY, Flaw.NONE, Flaw.NONE]
        keys = [wire(KEY_SCHEMA, b"key-0"), wire(KEY_SCHEMA, b"key-1"), None, wire(KEY_SCHEMA, b"k")]
        for _ in range(2):
            assert [row["flaw"] for row in rows(log, at)] == flaws
            assert [key for key, _ in raw_pairs(log, at)] == [*keys, wire(KEY_SCHEMA, b"key-0")]
        assert [row["key"] for row in rows(log, at)][3:] == [b"k", b"key-0"]

    def test_raw_reads_are_bounded(self, log: Log, at: TopicPartition) -> None:
        """A raw read gives at most what was asked for, ends at a known end, and says where to go on."""
        log.append_raw(at, raw_records([(None, f"{number}".encode()) for number in range(10)]))
        read = log.read_raw(at, 4, 3, 10)
        assert (read.records.column("offset").to_pylist(), read.next_offset) == ([4, 5, 6], 7)
        read = log.read_raw(at, 7, 3, 9)
        assert (read.records.column("value").to_pylist(), read.next_offset) == ([b"7", b"8"], 9)
        read = log.read_raw(at, 10, 3)
        assert (read.records.num_rows, read.next_offset, read.records.schema) == (0, 10, RAW_RECORDS)

    @pytest.mark.case("rules:R3")
    def test_a_raw_position_outside_is_an_error(self, log: Log, at: TopicPartition) -> None:
        """Below the begin and beyond the end a raw read fails as every read does, and so it does of a lost topic."""
        log.append_raw(at, raw_records([(None, b"1"), (None, b"2")]))
        log.truncate_below(at, 1)
        for offset in (0, 3):
            with pytest.raises(Failed) as caught:
                log.read_raw(at, offset, 1)
            assert caught.value.code == "offset_out_of_range"
        log.delete_topic(at.topic, at.uid)
        operations: list[Callable[[], object]] = [
            lambda: log.append_raw(at, raw_records([(None, b"1")])),
            lambda: log.read_raw(at, 1, 1),
        ]
        for operation in operations:
            with pytest.raises(Failed) as caught:
                operation()
            assert caught.value.code == "topic_lost"

    def test_columns_of_the_other_kind_are_refused(self, log: Log, at: TopicPartition) -> None:
        """Neither append takes the other one's records."""
        with pytest.raises(InvalidRequest):
            log.append_raw(at, some_records(1))
        with pytest.raises(InvalidRequest):
            log.append(at, raw_records([(b"a", b"1")]))
        assert log.offsets(at) == Offsets(0, 0)

    def test_a_record_with_schemas_cannot_pass_for_a_raw_one(self, log: Log, at: TopicPartition) -> None:
        """No schema has a negative id, by which a log may mark raw records."""
        good = some_records(2)
        ids: Any = pa.array([1, -1], pa.int32())
        place = good.schema.get_field_index("schema_id")
        with pytest.raises(InvalidRequest) as caught:
            log.append(at, good.set_column(place, good.schema.field("schema_id"), ids))
        assert (caught.value.code, caught.value.found) == ("bad_records", -1)
        assert log.offsets(at) == Offsets(0, 0)

    def test_a_raw_append_of_nothing_is_nothing(self, log: Log, at: TopicPartition) -> None:
        """An empty batch is acknowledged at the end and adds nothing."""
        log.append_raw(at, raw_records([(None, b"1")]))
        nothing = log.append_raw(at, raw_records([]))
        assert (nothing.first_offset, nothing.next_offset) == (1, 1)
        assert log.offsets(at) == Offsets(0, 1)

    def test_a_closed_topic_takes_no_raw_records(self, log: Log, at: TopicPartition, topic: TopicSpec) -> None:
        """What closes a topic closes it to raw appends as well."""
        log.set_open(topic, is_open=False, epoch=5)
        with pytest.raises(Refused) as caught:
            log.append_raw(at, raw_records([(None, b"1")]))
        assert caught.value.code == "topic_closed"


class RawRepeatContract(RawContract):
    """`RawContract`, and that raw appends are known by their ids."""

    def test_a_repeated_raw_append_is_found(
        self, log: Log, at: TopicPartition, tmp_path: Path, clock: Callable[[], int]
    ) -> None:
        """Under its id a raw append is made once, through whatever handle."""
        records = identified(raw_records([(None, b"1"), (b"k", None)]))
        assert append_id_of(records) is not None
        first = log.append_raw(at, records)
        log.append_raw(at, raw_records([(None, b"2")]))
        other = self.open_log(tmp_path, clock)
        assert log.append_raw(at, records) == other.append_raw(at, records) == first
        other.close()
        assert log.offsets(at).end == 3
