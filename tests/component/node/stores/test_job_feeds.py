"""A node that applies the feed of a job's generation: identities order its records, offsets say where they lie."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from anew.client.expectation import expectation_of
from anew.core.admission import NO_IDENTITY, NO_TIME
from anew.core.feed import FeedKind, PositionMap
from anew.core.identity import identified_origins, sequences
from anew.core.merge import Cell, merge_all
from anew.core.partition import XxHash64Partitioner
from anew.core.stamp import Origin, OriginKind, Stamp, fabric_origin
from anew.log.interface import APPEND_RECORDS, TopicPartition, TopicSpec
from anew.node.stores.feeds import MEETS_NOTHING
from anew.storage import portions
from anew.testing.builders import FABRIC
from tests.component.client.test_expectation import expected_cells
from tests.component.node.harness import (
    World,
    caught_up,
    clock,
    config,
    engine_in,
    key_of,
    value_of,
    wait_for,
    world,
)
from tests.component.node.stores.fleet import subject_of
from tests.property.core.histories import rows_of

pytestmark = [pytest.mark.processes, pytest.mark.case("rules:R20")]

_JOB = Origin(OriginKind.JOB, "clicks", 2)
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Output:
    """One record of the job."""

    text: str
    value: str | None
    written_ms: int | None
    batch: int = 0
    epoch: int = 0
    row: int = 0
    schema_id: int = 1

    @property
    def origin(self) -> bytes:
        """What it carries as its origin."""
        (carried,) = identified_origins(_JOB, self.batch, sequences(self.epoch, 7, self.row, 1)).to_pylist()
        assert carried is not None
        return carried

    @property
    def cell(self) -> Cell:
        """The cell that it makes where nothing else is."""
        stamp = Stamp(self.written_ms or 0, _JOB.encoded, False, 1, self.batch, *self._sequence)
        return Cell(stamp, None if self.value is None else key_of(self.value), 0 if self.value is None else 1)

    @property
    def _sequence(self) -> list[int]:
        found: list[int] = sequences(self.epoch, 7, self.row, 1).tolist()
        return found


@pytest.fixture
def words(tmp_path: Path) -> Iterator[World]:
    """A world whose feed is that of a generation; no versions yet."""
    with world(tmp_path) as made:
        of_job = {"kind": FeedKind.GENERATION, "origin": _JOB.encoded.hex()}
        made.feed = made.feed.model_copy(update=of_job)
        yield made


def put_out(words: World, output: Output, origin: bytes | None = None) -> tuple[int, int]:
    """Append one record of the job where its key belongs; partition and offset."""
    partition = XxHash64Partitioner(words.feed.partitions).of(key_of(output.text))
    record = {
        "written_ms": output.written_ms,
        "origin": output.origin if origin is None else origin,
        "key": key_of(output.text),
        "schema_id": 0 if output.value is None else output.schema_id,
        "value": None if output.value is None else key_of(output.value),
    }
    at = TopicPartition(words.feed.topic, words.feed.topic_uid, partition)
    return partition, words.log.append(at, pa.RecordBatch.from_pylist([record], schema=APPEND_RECORDS)).first_offset


def test_the_later_identity_wins_wherever_it_lies(words: World, tmp_path: Path) -> None:
    """Of equal times the later batch wins, and in a batch the greater epoch, in whatever order they were appended."""
    words.version(1, {"b": "base"})
    now = clock()
    put_out(words, Output("a", "of batch 1", now, batch=1))
    put_out(words, Output("a", "of batch 0 again", now, batch=0, epoch=9))
    put_out(words, Output("b", "first try, row 3", now, epoch=0, row=3))
    put_out(words, Output("b", "second try", now, epoch=1))
    put_out(words, Output("b", "first try, row 4", now, epoch=0, row=4))
    put_out(words, Output("c", "older", now - 1, batch=5))
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the feed", lambda: caught_up(engine))
        assert [value_of(engine, key) for key in "abc"] == ["of batch 1", "second try", "older"]
        put_out(words, Output("c", "same time, earlier batch", now - 1, batch=4, epoch=3))
        put_out(words, Output("a", None, now, batch=2))
        wait_for("the delete", lambda: value_of(engine, "a") is None and caught_up(engine))
        assert value_of(engine, "c") == "older"
        positions = [replica.position for replica in engine.report().replicas]
        found = PositionMap({at: offset for position in positions for at, offset in position.items()})
        assert found == words.ends()
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the replicas", lambda: caught_up(engine))
        assert [value_of(engine, key) for key in "abc"] == [None, "second try", "older"]


@pytest.mark.case("rules:R21")
def test_what_is_put_aside_is_named_by_its_place_in_the_log(words: World, tmp_path: Path) -> None:
    """Dead letters, records that meet no cell and values of unknown schemas are told with offsets of the log."""
    floor = clock() - _HOUR_MS
    words.version(1, {}, tombstone_floor_ms=floor)
    now = clock()
    put_out(words, Output("a", "good", now, batch=900))
    foreign = put_out(words, Output("a", "a writer's", now), fabric_origin(FABRIC).encoded)
    other = put_out(words, Output("a", "another generation's", now), b"\x01clicks\x00" + bytes(7) + b"\x03" + bytes(12))
    untimed = put_out(words, Output("a", "without a time", None, batch=900))
    late = put_out(words, Output("never seen", "late", floor - 1, batch=900, row=77))
    partition, offset = put_out(words, Output("z", "of an unknown schema", now, batch=900, row=88, schema_id=77))
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        (asked,) = wait_for("the question", lambda: engine.report().unknown_schemas)
        assert (asked.partition, asked.offset, asked.schema_id) == (partition, offset, 77)
        words.schemas = {1: '"string"', 77: '"string"'}
        engine.accept(words.desired())
        wait_for("the value", lambda: value_of(engine, "z") == "of an unknown schema" and caught_up(engine))
        assert value_of(engine, "a") == "good"
        found = {(letter.partition, letter.offset): letter.reason for letter in engine.report().dead_letters}
        assert found == {foreign: NO_IDENTITY, other: NO_IDENTITY, untimed: NO_TIME, late: MEETS_NOTHING}


@pytest.mark.case("rules:R1", "rules:R6", "rules:R18", "stores:G5")
def test_replicas_with_other_batches_hold_what_the_definition_says(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts, repeated batches, ties: wherever the batches of a node end, it holds the merge of all, as expected."""
    chance, now = random.Random(5), clock()
    keys = [f"k{number}" for number in range(12)]
    passed_over = [Output(chance.choice(keys), "below the start", now, batch=99, row=row) for row in range(20)]
    for output in passed_over:
        put_out(words, output)
    start = words.ends()
    words.version(1, {}, start=start, config=config("none"))
    outputs = defaultdict[str, list[Output]](list)
    for row in range(300):
        value = None if chance.random() < 0.2 else f"value {row}"
        places = {"batch": chance.randrange(4), "epoch": chance.randrange(2), "row": row}
        output = Output(chance.choice(keys), value, now - chance.randrange(3), **places)
        outputs[output.text].append(output)
        put_out(words, output)
    wanted = {text: merge_all(output.cell for output in found) for text, found in outputs.items()}
    for most in (1, 7, 4_000):
        monkeypatch.setattr(portions, "BATCH_RECORDS", most)
        with engine_in(tmp_path / f"{most}") as engine:
            engine.accept(words.desired())
            wait_for("the feed", lambda engine=engine: caught_up(engine))  # type: ignore[misc]  # bound at once
            for text, cell in wanted.items():
                assert cell is not None
                assert value_of(engine, text) == (None if cell.value is None else cell.value[1:].decode())
    expectation = expectation_of(
        subject_of(words, {}).version, FABRIC, words.feeds, words.ends(), words.deep, words.log
    )
    for place, _ in expectation.fingerprints():
        mine = [(key_of(text), cell) for text, cell in wanted.items() if cell is not None]
        hashes = dict(zip([key for key, _ in mine], rows_of(mine).column("hash").to_pylist(), strict=True))
        for key, row_hash in expected_cells(expectation, place):
            assert hashes.pop(key) == row_hash


@pytest.mark.case("rules:R9")
def test_a_feed_is_added_to_replicas_that_are_there(tmp_path: Path) -> None:
    """A job's feed comes beside nearline writes: it is applied from its first record, and nothing is loaded again."""
    with world(tmp_path) as words:
        rt, now = words.feed, clock()
        of_job = {"kind": FeedKind.GENERATION, "origin": _JOB.encoded.hex(), "topic": "words-clicks-2"}
        job = rt.model_copy(update={**of_job, "topic_uid": "t2", "incarnation": 2})
        words.log.create_topic(TopicSpec(job.topic, job.topic_uid, job.partitions))
        version = words.version(1, {"a": "base", "b": "base", "c": "base"})
        words.write("a", "written", written_ms=now)
        words.feed = job
        put_out(words, Output("a", "put out at the same time", now))
        put_out(words, Output("b", "put out", now))
        with engine_in(tmp_path) as engine:
            engine.accept(words.desired(feeds=(rt,)))
            wait_for("the writes", lambda: caught_up(engine) and value_of(engine, "a") == "written")
            replicas = [holding.replica for holding in engine.holdings()]
            assert value_of(engine, "b") == "base"
            start = version.start.merged(dict.fromkeys(job.feed_partitions(), 0))
            words.versions[1] = version.model_copy(update={"feeds": (rt.id, job.id), "start": start})
            engine.accept(words.desired(feeds=(rt, job)))
            wait_for("the job's records", lambda: value_of(engine, "b") == "put out" and caught_up(engine))
            assert [value_of(engine, key) for key in "ac"] == ["written", "base"], "a fabric wins on equal times"
            assert [holding.replica for holding in engine.holdings()] == replicas
            stamps = {replica.cell(key_of("b")) for replica in replicas if replica is not None} - {None}
            assert [cell.stamp.origin for cell in stamps if cell is not None] == [_JOB.encoded]
