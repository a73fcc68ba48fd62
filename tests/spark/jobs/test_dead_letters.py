"""Records on which a job's function fails, on real Spark: they are found, left out and named, and all others count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anew.codec.avro import decode_datum, parse_schema
from anew.core.errors import AnewError
from anew.core.identity import ATTEMPT_BITS, ROW_BITS
from anew.core.jobs.batch import BatchRecord
from anew.core.jobs.deadletters import DeadLetter
from anew.core.jobs.inputs import JobInput
from anew.core.topics.topic import TopicFormat
from anew.log.interface import RAW_APPEND
from anew.rebuild.jobs.driving import is_for_good
from anew.rebuild.jobs.faults import Skipping
from anew.rebuild.jobs.running import Batches, part_frame
from anew.spark.jobs.decoding import InputTask
from anew.spark.jobs.source import Reading
from anew.spark.session import SparkSession
from tests.spark.jobs.jobs_world import KEY, JobsWorld, Seen, running_world

pytestmark = [pytest.mark.case("streams:N10"), pytest.mark.timeout(400)]

_EVENTS = [(f"flight-{number}", number) for number in range(16)]
_CODE = """
from pyspark.sql import functions as F


def classify(events):
    def check(batches):
        for batch in batches:
            for row in batch.to_pylist():
                if BAD:
                    raise ValueError(f"no such delay: {row['value']['delay']}\\nits row: {row}")
            yield batch

    checked = events.mapInArrow(check, events.schema)
    return checked.select("key", F.struct(F.lit("fine").alias("class")).alias("value"), "deleted", "timestamp")
"""
_TWO = 'row["value"]["delay"] in (7, 11)'


def _raising(condition: str) -> str:
    return _CODE.replace("BAD", condition)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[JobsWorld]:
    """Events of 16 flights."""
    with running_world(spark, tmp_path, _EVENTS) as running:
        yield running


def _skipping(world: JobsWorld, batches: Batches, limit: int, readings: Mapping[str, Reading] | None = None) -> Batches:
    """The same batches, which leave out so many records."""
    chosen = batches.run.readings if readings is None else readings
    part = partial(part_frame, world.spark, batches.run.function, chosen)
    return Batches(replace(batches.run, readings=chosen, skipping=Skipping(limit, part)), world.ledger)


def _run(world: JobsWorld, batches: Batches) -> list[BatchRecord]:
    world.begin(batches)
    batches.wait(390)
    return world.ledger.records


def _counted(world: JobsWorld, records: list[BatchRecord]) -> list[Seen]:
    """What the records of batches count of the output."""
    numbers = {(r.batch, (r.epoch << ATTEMPT_BITS) | o.attempt) for r in records for o in r.outputs}
    return [seen for seen in world.output() if (seen.batch, seen.sequence >> ROW_BITS) in numbers]


def _key(world: JobsWorld, letter: DeadLetter) -> str:
    """Of the record in the input's log."""
    read = world.log.read(world.at(letter.input, letter.partition), letter.offset, 1)
    return str(decode_datum(parse_schema(KEY), read.records.column("key")[0].as_py()))


def test_records_on_which_a_function_raises_are_left_out_and_named(world: JobsWorld) -> None:
    """Each with its place and the first line of its reason; the others count once, and rows read add up."""
    batches = _skipping(world, world.batches(code=_raising(_TWO)), 5)
    (record,) = _run(world, batches)
    assert sorted(letter.reason for letter in record.dead_letters) == [
        "no such delay: 11",
        "no such delay: 7",
    ]
    assert {_key(world, letter) for letter in record.dead_letters} == {"flight-7", "flight-11"}
    assert (record.read, record.rows, record.dead_total) == (16, 14, 2)
    assert sorted(seen.key for seen in _counted(world, [record])) == sorted(
        key for key, delay in _EVENTS if delay not in (7, 11)
    )
    more = [(f"more-{number}", number) for number in (7, 8)]
    world.write(more)
    first, second = _run(world, _skipping(world, world.batches(epoch=2, code=_raising(_TWO)), 5))
    assert (first, second.read, second.rows, second.dead_total) == (record, 2, 1, 3)


def test_more_than_the_limit_stop_the_generation_with_the_first_places(world: JobsWorld) -> None:
    """Nothing of the batch is recorded; the error has the limit, places, reasons and what to do."""
    world.begin(batches := _skipping(world, world.batches(code=_raising('row["value"]["delay"] % 5 == 3')), 1))
    with pytest.raises(AnewError) as caught:
        batches.wait(390)
    assert caught.value.code == "too_many_dead_letters"
    assert "no such delay: 3" in str(caught.value.found)
    assert "at most 1" in str(caught.value.expected)
    assert world.ledger.records == []


def test_who_leaves_nothing_out_ends_for_good_and_names_the_record(world: JobsWorld) -> None:
    """Another driver would come to the same end; nothing of the batch is recorded."""
    world.begin(batches := _skipping(world, world.batches(code=_raising('row["value"]["delay"] == 7')), 0))
    with pytest.raises(AnewError) as caught:
        batches.wait(390)
    assert (caught.value.code, is_for_good(caught.value), world.ledger.records) == ("record_failed", True, [])
    place, _, reason = str(caught.value.found).partition(": ")
    assert (place.partition(":")[0], reason) == ("events", "no such delay: 7")


def test_expressions_of_spark_and_values_that_do_not_fit(world: JobsWorld) -> None:
    """An assertion, a division by zero, a null that the output does not take, no key: each has a reason of its own."""
    code = """
from pyspark.sql import functions as F


def classify(events):
    delay = F.col("value.delay")
    asserted = F.assert_true(delay != 3, "three is none").cast("string")
    divided = F.when(delay == 5, (F.lit(1) / (delay - 5)).cast("string"))
    made = F.coalesce(asserted, divided, F.when(delay != 6, "fine"))
    key = F.when(delay != 9, F.col("key")).alias("key")
    return events.select(key, F.struct(made.alias("class")).alias("value"), "timestamp")
"""
    (record,) = _run(world, _skipping(world, world.batches(code=code), 4))
    reasons = {_key(world, letter): letter.reason for letter in record.dead_letters}
    assert reasons.keys() == {"flight-3", "flight-5", "flight-6", "flight-9"}
    assert "three is none" in reasons["flight-3"]
    assert "zero" in reasons["flight-5"]
    assert "the function gives a value that the output cannot take: class: null" in reasons["flight-6"]
    assert "the function gives a key that the output cannot take" in reasons["flight-9"]
    assert (record.rows, len(_counted(world, [record]))) == (12, 12)


def test_a_record_that_is_not_json_is_left_out(world: JobsWorld) -> None:
    """Of a JSON topic: what is not of its columns, and what is no JSON; the log keeps both."""
    columns = "delay INT"
    values = [b'{"delay": 1}', b"{nope", b'{"delay": "late"}', b'{"delay": 4}']
    rows: list[Any] = [
        pa.array([b"a", b"b", b"c", b"d"], pa.binary()),
        pa.array(values, pa.binary()),
        pa.nulls(4, pa.int64()),
    ]
    at = world.at("events", 0)
    begin = world.log.offsets(at).end
    world.log.append_raw(at, pa.RecordBatch.from_arrays(rows, schema=RAW_APPEND))
    of = JobInput(
        name="events",
        fabric="dc-0",
        topic="events",
        topic_uid=at.uid,
        partitions=world.partitions,
        format=TopicFormat.JSON,
        columns=columns,
    )
    ends = {partition: world.log.offsets(world.at("events", partition)).end for partition in range(world.partitions)}
    # Not by `json_fields`, which makes its session the active one: the next session could not register the source then.
    task = InputTask(world.location, of, bytes(pa.schema([pa.field("delay", pa.int32())]).serialize()))
    readings = {"events": Reading(task, {**ends, 0: begin}, 100)}
    (record,) = _run(world, _skipping(world, world.batches(), 3, readings))
    assert [(letter.partition, letter.offset) for letter in record.dead_letters] == [(0, begin + 1), (0, begin + 2)]
    assert all("a record of the input events cannot be read" in letter.reason for letter in record.dead_letters)
    assert sorted(seen.key for seen in _counted(world, [record])) == ["a", "d"]


@pytest.mark.case("streams:N4")
def test_a_failure_that_is_no_records_stops_as_without_it(world: JobsWorld) -> None:
    """Code that fails without any record: no record is blamed, nothing is recorded, and the error is the code's."""
    code = """
from pyspark.sql import functions as F


def classify(events):
    def broken(batches):
        raise RuntimeError("no model")
        yield

    chosen = events.select("key", F.struct(F.lit("fine").alias("class")).alias("value"), "timestamp")
    return chosen.mapInArrow(broken, chosen.schema)
"""
    world.begin(batches := _skipping(world, world.batches(code=code), 5))
    with pytest.raises(AnewError) as caught:
        batches.wait(390)
    assert (caught.value.code, "no model" in str(caught.value.found)) == ("build_failed", True)
    assert world.ledger.records == []


def test_a_stop_ends_a_search(world: JobsWorld) -> None:
    """It is heard between two evaluations: nothing is recorded, and the next driver finds the record."""
    batches = _skipping(world, world.batches(code=_raising(_TWO)), 5)
    asked = []

    def may(batch: int) -> bool:
        asked.append(batch)
        return len(asked) < 2

    world.ledger.may = may
    world.begin(batches)
    assert batches.wait(390)
    assert (world.ledger.records, asked) == ([], [0, 0])
    world.ledger.may = lambda _: True
    (record,) = _run(world, _skipping(world, world.batches(epoch=2, code=_raising(_TWO)), 5))
    assert (record.epoch, record.rows, record.dead_total) == (2, 14, 2)
