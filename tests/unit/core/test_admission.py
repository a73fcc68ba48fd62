"""What a reader of a feed lets in, record by record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from anew.core.admission import (
    FLAWS,
    NO_IDENTITY,
    NO_SCHEMA,
    NO_TIME,
    TIME_OUT_OF_RANGE,
    UNKNOWN_SCHEMA,
    WRONG_PARTITION,
    Admitted,
    admit,
    first_undecided,
    with_hashes,
)
from anew.core.feed import Feed, FeedKind
from anew.core.hashing import key_hash, row_hashes
from anew.core.identity import identified_origins, sequences
from anew.core.partition import XxHash64Partitioner
from anew.core.rows import ROWS
from anew.core.stamp import Origin, OriginKind
from anew.log.interface import LOG_RECORDS
from anew.testing.builders import ORIGIN, a_feed

_FEED = a_feed(partitions=1, incarnation=3)
_APPENDED_MS = 1_000_000
_SKEW_MS = _FEED.skew_limit_ms

_SCHEMAS = (1, 7)
_JOB = Origin(OriginKind.JOB, "clicks", 3)
_JOB_FEED = _FEED.model_copy(update={"kind": FeedKind.GENERATION, "origin": _JOB.encoded.hex(), "topic": "clicks_g3"})


def _records(**columns: list[Any]) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    values: dict[str, list[Any]] = {
        "offset": list(range(count)),
        "appended_ms": [_APPENDED_MS] * count,
        "written_ms": [None] * count,
        "origin": [ORIGIN] * count,
        "key": [b"key-%d" % n for n in range(count)],
        "schema_id": [1] * count,
        "value": [b"value"] * count,
        "flaw": [0] * count,
    }
    return pa.RecordBatch.from_pydict({**values, **columns}, schema=LOG_RECORDS)


def _admit(records: pa.RecordBatch, start: int = 0, feed: Feed = _FEED) -> Admitted:
    return admit(feed, 0, start, records, _SCHEMAS)


def _of_job(origin: Origin, batch: int, epoch: int = 0, count: int = 1) -> list[Any]:
    """What records of one task attempt carry as their origins."""
    return identified_origins(origin, batch, sequences(epoch, 5, 0, count)).to_pylist()


@pytest.mark.case("rules:R20")
def test_a_job_s_rows_are_stamped_with_batch_and_sequence() -> None:
    """In a generation's feed the stamp says batch and sequence, and the log's offsets go beside the rows."""
    origins = [*_of_job(_JOB, 8, count=2), *_of_job(_JOB, 8, epoch=1)]
    records = _records(offset=[4, 6, 9], origin=origins, written_ms=[3, 2, 1])
    admitted = admit(_JOB_FEED, 0, 5, records, _SCHEMAS)
    assert admitted.rejected == ()
    assert admitted.offsets.tolist() == [6, 9]
    rows = admitted.rows.to_pylist()
    assert [(row["origin"], row["feed_partition"], row["incarnation"], row["time"]) for row in rows] == [
        (_JOB.encoded, 8, 3, 2),
        (_JOB.encoded, 8, 3, 1),
    ]
    assert admitted.rows.column("offset").to_pylist() == [*sequences(0, 5, 1, 1), *sequences(1, 5, 0, 1)]
    assert not any(row["append_timed"] for row in rows)
    assert admitted.rows.schema == ROWS


@pytest.mark.case("rules:R20", "rules:R21")
def test_what_is_not_of_the_generation_is_a_dead_letter() -> None:
    """In a generation's feed a record counts only with an identity of that generation and a given time."""
    other, sooner = Origin(OriginKind.JOB, "click", 3), Origin(OriginKind.JOB, "clicks", 2)
    good = _of_job(_JOB, 8)
    origins = [b"", ORIGIN, _JOB.encoded, *_of_job(other, 8), *_of_job(sooner, 8), *good, *good, *good, *good]
    written: list[int | None] = [1, 1, 1, 1, 1, None, 0, 1, 1]
    keys = [b"key-%d" % n for n in range(9)]
    records = _records(origin=origins, written_ms=written, flaw=[0] * 8 + [2], key=keys)
    admitted = admit(_JOB_FEED, 0, 0, records, _SCHEMAS)
    reasons = {rejection.offset: rejection.reason for rejection in admitted.rejected}
    assert reasons == {
        **dict.fromkeys(range(5), NO_IDENTITY),
        5: NO_TIME,
        6: TIME_OUT_OF_RANGE,
        8: FLAWS[2],
    }
    assert admitted.offsets.tolist() == [7]
    for at in range(records.num_rows):
        alone = admit(_JOB_FEED, 0, 0, records.slice(at, 1), _SCHEMAS).rejected
        assert [(one.offset, one.reason) for one in alone] == [(at, reasons[at]) for _ in range(at in reasons)]


def test_an_undecided_value_of_a_job_is_named_by_its_place_in_the_log() -> None:
    """Whoever waits for a schema waits at an offset of the log, which the stamp of a job's row does not say."""
    records = _records(offset=[40, 42], origin=_of_job(_JOB, 8, count=2), written_ms=[1, 1], schema_id=[1, 9])
    assert first_undecided(admit(_JOB_FEED, 0, 0, records, _SCHEMAS), _SCHEMAS) == (42, 9)


@pytest.mark.case("rules:R1")
def test_records_below_start_are_passed_over() -> None:
    """A seek may be early, an apply never: nothing below the version's start comes through, nor as a dead letter."""
    records = _records(offset=[3, 5, 6, 9], written_ms=[0, None, None, None])
    admitted = _admit(records, start=6)
    assert admitted.rows.column("offset").to_pylist() == [6, 9]
    assert admitted.rejected == ()
    assert _admit(records, start=10).rows.num_rows == 0


@pytest.mark.case("rules:R6", "stores:I6")
@pytest.mark.parametrize(
    ("written_ms", "accepted"),
    [
        (1, True),
        (0, False),
        (-1, False),
        (_APPENDED_MS, True),
        (_APPENDED_MS + _SKEW_MS, True),
        (_APPENDED_MS + _SKEW_MS + 1, False),
    ],
)
def test_given_times_are_judged_by_the_append_time(written_ms: int, accepted: bool) -> None:  # noqa: FBT001 - a case
    """A given time in (0, append time + skew limit] is taken; any other is a dead letter, and the rest goes on."""
    admitted = _admit(_records(written_ms=[None, written_ms, None]))
    assert admitted.rows.column("offset").to_pylist() == ([0, 1, 2] if accepted else [0, 2])
    found = [(r.feed, r.partition, r.offset, r.reason) for r in admitted.rejected]
    assert found == ([] if accepted else [(_FEED.id, 0, 1, TIME_OUT_OF_RANGE)])


@pytest.mark.case("rules:R8")
def test_a_record_where_nobody_would_look_for_it_is_a_dead_letter() -> None:
    """A key in another partition than its hash names is turned away; with producers' own placing everybody reads it."""
    feed = a_feed(partitions=4)
    keys = [b"key-%d" % n for n in range(40)]
    here = [n for n, key in enumerate(keys) if XxHash64Partitioner(4).of(key) == 0]
    admitted = admit(feed, 0, 0, _records(key=keys), _SCHEMAS)
    assert admitted.rows.column("offset").to_pylist() == here
    assert {(r.offset, r.reason) for r in admitted.rejected} == {
        (n, WRONG_PARTITION) for n in range(40) if n not in here
    }
    own_placing = feed.model_copy(update={"partitioner": "any"})
    assert admit(own_placing, 0, 0, _records(key=keys), _SCHEMAS).rows.num_rows == 40


def test_a_value_without_a_schema_is_a_dead_letter() -> None:
    """Nobody could ever read it; a tombstone needs none, and carries none whatever its producer wrote."""
    admitted = _admit(_records(schema_id=[0, 7, 7], value=[b"x", None, b"y"]))
    assert [(r.offset, r.reason) for r in admitted.rejected] == [(0, NO_SCHEMA)]
    assert admitted.rows.column("schema_id").to_pylist() == [0, 7]


def test_what_is_let_in_carries_its_stamp() -> None:
    """Append-timed records get the log's time, others their own; incarnation, partition and hashes are filled in."""
    admitted = _admit(_records(written_ms=[None, 5]))
    assert admitted.rows.schema == ROWS
    assert admitted.rows.column("time").to_pylist() == [_APPENDED_MS, 5]
    assert admitted.rows.column("append_timed").to_pylist() == [True, False]
    assert admitted.rows.column("incarnation").to_pylist() == [3, 3]
    assert admitted.key_hashes.tolist() == [key_hash(b"key-0"), key_hash(b"key-1")]
    hashed = with_hashes(admitted.rows)
    assert hashed.column("hash").to_numpy().view("uint64").tolist() == row_hashes(admitted.rows).tolist()


@pytest.mark.case("rules:R21")
def test_everybody_decides_alike() -> None:
    """The same records give the same rejections however they are cut into reads and wherever a reader begins."""
    records = _records(written_ms=[None, 0, 5, _APPENDED_MS * 9, None, 0], schema_id=[1, 1, 0, 1, 0, 1])
    whole = {(r.offset, r.reason) for r in _admit(records).rejected}
    cut = [_admit(records.slice(at, 1)).rejected for at in range(records.num_rows)]
    assert {(r.offset, r.reason) for part in cut for r in part} == whole
    late = {(r.offset, r.reason) for r in _admit(records, start=3).rejected}
    assert late == {(offset, reason) for offset, reason in whole if offset >= 3}
    assert len(whole) == 5


@pytest.mark.case("rules:R21")
def test_what_was_decided_of_unknown_schemas_holds_for_ever() -> None:
    """Below a decision only the schemas of then count, whatever is registered later; beyond it nothing is decided."""
    records = _records(schema_id=[1, 9, 7, 9, 7, 9], value=[b"v", b"v", b"v", None, b"v", b"v"])
    feed = _FEED.with_settled(0, 2, 1).with_settled(0, 4, 7)
    for schemas in ((1, 7), (1, 7, 9)):
        admitted = admit(feed, 0, 0, records, schemas)
        assert [(r.offset, r.reason) for r in admitted.rejected] == [(1, UNKNOWN_SCHEMA)]
    late = _FEED.with_settled(0, 3, 1)
    assert [r.offset for r in admit(late, 0, 0, records, (1, 7, 9)).rejected] == [1, 2]
    assert [r.offset for r in admit(_FEED.with_settled(1, 9, 1), 0, 0, records, (1,)).rejected] == []


@pytest.mark.case("rules:R21")
def test_schemas_are_later_by_their_order_and_not_by_their_ids() -> None:
    """A registry may number a schema that came later lower: below a decision it does not count all the same."""
    records = _records(schema_id=[20, 3, 20, 3], value=[b"v"] * 4)
    feed = _FEED.with_settled(0, 2, 20)
    assert [r.offset for r in admit(feed, 0, 0, records, (20, 3)).rejected] == [1]
    assert [r.offset for r in admit(feed, 0, 0, records, (3, 20)).rejected] == []


@pytest.mark.case("rules:R21")
def test_the_first_undecided_record_is_named() -> None:
    """Who does not know a schema waits there; a tombstone names none."""
    admitted = _admit(_records(schema_id=[1, 9, 7, 8], value=[b"v", None, b"v", b"v"]))
    assert first_undecided(admitted, (1, 7)) == (3, 8)
    assert first_undecided(admitted, (1,)) == (2, 7)
    assert first_undecided(admitted, (1, 7, 8)) is None


def test_decisions_are_as_few_as_the_schemas() -> None:
    """A later decision by the same schemas replaces the one before; an earlier offset decides nothing again."""
    feed = _FEED.with_settled(0, 5, 1).with_settled(1, 3, 1).with_settled(0, 9, 1).with_settled(0, 7, 4)
    assert [(s.partition, s.below, s.newest_schema_id) for s in feed.settled] == [(1, 3, 1), (0, 9, 1)]
    assert [s.below for s in feed.with_settled(0, 12, 4).settled_in(0)] == [9, 12]
