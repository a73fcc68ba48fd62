"""Batches of a generation on real Spark: every record once, whole or not at all, with an order that has no ties."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anew.core.errors import AnewError, InvalidRequest, Refused
from anew.core.jobs.batch import BatchRecord
from anew.log.interface import TopicSpec
from anew.rebuild.jobs.driving import is_for_good
from anew.rebuild.jobs.running import checked_frame
from anew.spark.jobs.sink import check_types
from anew.spark.session import SparkSession
from tests.disks import filled, small_disk
from tests.spark.jobs.jobs_world import CLASS, KEY, JobsWorld, running_world

_EVENTS = [(f"flight-{number}", number % 40) for number in range(500)]


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[JobsWorld]:
    """Events of 500 flights."""
    with running_world(spark, tmp_path, _EVENTS) as running:
        yield running


def _classes(world: JobsWorld) -> dict[str, object]:
    """Key → class, as the merge would have it: the greatest (time, batch, sequence)."""
    ordered = sorted(world.output(), key=lambda seen: (seen.written_ms, seen.batch, seen.sequence))
    return {seen.key: None if seen.value is None else seen.value["class"] for seen in ordered}


def _expected(severe: int = 15) -> dict[str, object]:
    return {key: "severe" if delay >= severe else "fine" for key, delay in _EVENTS}


@pytest.mark.case("rules:R20")
def test_every_record_comes_out_once_with_its_identity(world: JobsWorld) -> None:
    """A run to what is there now: each record once, in batches that the records name, and no two of one sequence."""
    batches = world.batches(max_records=200)
    world.begin(batches)
    assert batches.wait(60)
    assert _classes(world) == _expected()
    output = world.output()
    assert len(output) == len(_EVENTS) == len({(seen.batch, seen.sequence) for seen in output})
    assert [record.batch for record in world.ledger.records] == [0, 1, 2]
    assert sum(record.rows for record in world.ledger.records) == len(_EVENTS)
    last = world.ledger.records[-1]
    assert sum(last.end["events"].values()) == len(_EVENTS)
    assert {range_.partition for record in world.ledger.records for t in record.outputs for range_ in t.ranges} == {
        0,
        1,
        2,
    }


def test_deletes_and_times_travel(world: JobsWorld) -> None:
    """A delete comes out as one; what comes out has the time of what went in."""
    world.write([("flight-1", None)], at_ms=1_400_000_000_000)
    batches = world.batches()
    world.begin(batches)
    batches.wait(60)
    found = [seen for seen in world.output() if seen.key == "flight-1"]
    assert {(seen.value is None, seen.written_ms == 1_400_000_000_000) for seen in found} == {
        (False, False),
        (True, True),
    }


def test_a_stop_writes_a_batch_whole_or_not_at_all(world: JobsWorld) -> None:
    """Stopped from beside while batches run: what is recorded is in the output once, and the next run goes on."""
    batches = world.batches(max_records=50)
    seen: list[BatchRecord] = []
    world.ledger.after = seen.append
    world.begin(batches, until_now=False)
    while len(seen) < 2:
        assert not batches.wait(0.05)
    batches.stop()
    assert batches.wait(30)
    assert len(world.output()) == sum(record.rows for record in world.ledger.records) < len(_EVENTS)
    again = world.batches(epoch=2, max_records=50)
    world.begin(again)
    again.wait(60)
    output = world.output()
    assert len(output) == len(_EVENTS) == len({seen.key for seen in output})
    assert _classes(world) == _expected()


@pytest.mark.case("streams:B2", "streams:C7", "rules:R20")
def test_a_batch_that_runs_again_takes_the_place_of_what_it_did(world: JobsWorld) -> None:
    """A driver that dies between append and record: the batch has another epoch, which wins, and its record counts."""

    def die(record: BatchRecord) -> None:
        if record.batch == 1 and record.epoch == 1:
            raise AnewError("died", "the driver dies")

    world.ledger.after = die
    first = world.batches(max_records=200)
    world.begin(first)
    with pytest.raises(AnewError):
        first.wait(60)
    # As if the catalog had never heard of it.
    world.ledger.records.pop()
    again = world.batches(epoch=2, max_records=200)
    world.begin(again)
    again.wait(60)
    output = world.output()
    assert len(output) > len(_EVENTS)
    epochs = {seen.batch: {s.sequence >> 48 for s in output if s.batch == seen.batch} for seen in output}
    assert epochs == {0: {1}, 1: {1, 2}, 2: {2}}
    assert [(record.batch, record.epoch) for record in world.ledger.records] == [(0, 1), (1, 2), (2, 2)]
    assert len({(seen.batch, seen.sequence) for seen in output}) == len(output)
    assert _classes(world) == _expected()


@pytest.mark.case("streams:C7")
def test_a_batch_that_is_recorded_is_not_appended_again(world: JobsWorld) -> None:
    """A driver that dies between record and Spark's commit: the next one lets Spark commit, and goes on behind it."""

    def die(record: BatchRecord) -> None:
        if record.batch == 1:
            raise AnewError("died", "the driver dies")

    world.ledger.after = die
    first = world.batches(max_records=200)
    world.begin(first)
    with pytest.raises(AnewError):
        first.wait(60)
    world.ledger.after = lambda _: None
    again = world.batches(epoch=2, max_records=200)
    world.begin(again)
    again.wait(60)
    assert [(record.batch, record.epoch) for record in world.ledger.records] == [(0, 1), (1, 1), (2, 2)]
    assert len(world.output()) == len(_EVENTS)


@pytest.mark.case("streams:N8")
def test_a_driver_that_lost_its_lease_appends_nothing_more(world: JobsWorld) -> None:
    """The batch after the one in which it was lost raises before anything is written."""
    world.ledger.may = lambda batch: batch < 1
    batches = world.batches(max_records=200)
    world.begin(batches)
    assert batches.wait(60)
    assert [record.batch for record in world.ledger.records] == [0]
    assert len(world.output()) == world.ledger.records[0].rows


def test_what_is_refused_in_a_batch_keeps_its_code(world: JobsWorld) -> None:
    """Spark says in words alone what ended its query; by the code it is known whether another driver is to follow."""

    def refuse(_record: BatchRecord) -> None:
        raise Refused("epoch_outdated", "another driver has it", found=1, expected=2)

    world.ledger.after = refuse
    world.begin(batches := world.batches())
    with pytest.raises(Refused) as caught:
        batches.wait(60)
    assert (caught.value.code, caught.value.expected) == ("epoch_outdated", 2)


def test_on_a_full_disk_a_batch_fails_and_runs_again_once_there_is_room(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing of it counts, the next driver is not kept from trying, and all comes out once."""
    disk = tmp_path / "log"
    with small_disk(disk, 32), running_world(spark, tmp_path, _EVENTS) as world:
        with filled(disk):
            world.begin(batches := world.batches())
            with pytest.raises(AnewError, match="full") as caught:
                batches.wait(60)
        assert (caught.value.code, is_for_good(caught.value), world.ledger.records) == ("log_full", False, [])
        world.begin(again := world.batches(epoch=2))
        assert again.wait(60)
        assert _classes(world) == _expected()
        assert sum(record.rows for record in world.ledger.records) == len(_EVENTS)


@pytest.mark.case("streams:B9")
def test_records_that_expired_are_never_skipped(world: JobsWorld) -> None:
    """What retention took while the generation was down: it ends, and says which partition lost how many records."""
    batches = world.batches(max_records=200)
    world.ledger.may = lambda batch: batch < 1
    world.begin(batches)
    batches.wait(60)
    position = world.ledger.records[-1].end["events"][0]
    world.log.truncate_below(world.at("events", 0), position + 5)
    world.ledger.may = lambda _: True
    again = world.batches(epoch=2)
    world.begin(again)
    with pytest.raises(AnewError) as caught:
        again.wait(60)
    assert caught.value.code == "input_expired"
    assert "5 records are gone" in str(caught.value.found)
    assert [record.batch for record in world.ledger.records] == [0]


@pytest.mark.case("streams:B8")
def test_a_topic_that_was_made_again_is_not_resumed_by_number(world: JobsWorld) -> None:
    """Its identity is another one, however many records it holds."""
    batches = world.batches(max_records=200)
    world.ledger.may = lambda batch: batch < 1
    world.begin(batches)
    batches.wait(60)
    world.log.delete_topic("events", world.specs["events"].uid)
    world.log.create_topic(TopicSpec("events", "another", world.partitions))
    world.ledger.may = lambda _: True
    again = world.batches(epoch=2)
    world.begin(again)
    with pytest.raises(AnewError) as caught:
        again.wait(60)
    assert caught.value.code == "topic_lost"


def test_a_checkpoint_that_somebody_edited_is_refused(world: JobsWorld) -> None:
    """Other offsets in a planned batch, or a checkpoint that is gone: nothing is begun."""
    batches = world.batches(max_records=200)
    world.begin(batches)
    batches.wait(60)
    planned = world.folder / "checkpoint" / "offsets" / "1"
    planned.write_bytes(planned.read_bytes().replace(b'"0":', b'"0": '))
    with pytest.raises(Refused) as caught:
        world.begin(world.batches(epoch=2))
    assert caught.value.code == "checkpoint_edited"
    (world.folder / "checkpoint").rename(world.folder / "away")
    with pytest.raises(Refused) as caught:
        world.begin(world.batches(epoch=2))
    assert caught.value.code == "checkpoint_lost"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("events.select('value', 'timestamp')", "missing_column"),
        ("events.select('key', 'value')", "no_written_at"),
        ("events.withColumn('extra', F.lit(1))", "unknown_column"),
        ("1 / 0", "function_failed"),
        ("None", "not_a_frame"),
        ("events.sparkSession.range(3)", "not_streaming"),
        ("events.sparkSession.readStream.format('rate').load()", "unused_input"),
        (
            "events.select('timestamp').union(events.sparkSession.readStream.format('rate').load().select('timestamp'))",
            "foreign_stream",
        ),
        ("events.select('key').union(events.sparkSession.createDataFrame([('a',)], 'key string'))", "not_runnable"),
        ("events.select('key', 'value', 'timestamp', 'timestamp')", "column_twice"),
    ],
)
def test_a_function_that_cannot_be_run_is_refused(world: JobsWorld, body: str, code: str) -> None:
    """Before anything is begun, with a code of its own."""
    source = f"from pyspark.sql import functions as F\n\n\ndef classify(events):\n    return {body}\n"
    _, function = world.function(source)
    with pytest.raises(InvalidRequest) as caught:
        checked_frame(world.spark, function, {"events": world.reading()})
    assert caught.value.code == code


@pytest.mark.case("streams:F3")
@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("F.struct(F.lit('a').alias('class'), F.lit(1).alias('more'))", "unknown_member"),
        ("F.struct(F.lit('a').alias('class'), F.lit('b').alias('class'))", "unknown_member"),
        ("F.struct(F.lit('a').alias('clas'))", "unknown_member"),
    ],
)
def test_what_the_output_has_no_field_for_is_refused(world: JobsWorld, value: str, code: str) -> None:
    """It would be lost without a word."""
    source = f"""
from pyspark.sql import functions as F


def classify(events):
    return events.select("key", {value}.alias("value"), "timestamp")
"""
    _, function = world.function(source)
    frame = checked_frame(world.spark, function, {"events": world.reading()})
    with pytest.raises(InvalidRequest) as caught:
        check_types(frame.frame, None, CLASS)
    assert caught.value.code == code


def _assert_misfit_stops(world: JobsWorld, source: str) -> None:
    batches = world.batches(code=source)
    world.begin(batches)
    with pytest.raises(AnewError) as caught:
        batches.wait(60)
    assert caught.value.code == "output_misfit"
    assert world.ledger.records == []


def test_rows_without_a_value_are_deletes_where_all_are(world: JobsWorld) -> None:
    """A function that gives no value, and says that a row is no delete, has forgotten it."""
    source = """
from pyspark.sql import functions as F


def classify(events):
    return events.select("key", (F.col("value.delay") != 7).alias("deleted"), "timestamp")
"""
    _assert_misfit_stops(world, source)


def test_what_does_not_fit_the_output_stops_the_job(world: JobsWorld) -> None:
    """The error names the field, what was found and the key; nothing of the batch is recorded."""
    source = """
from pyspark.sql import functions as F


def classify(events):
    made = F.struct(F.when(F.col("value.delay") == 7, None).otherwise("fine").alias("class")).alias("value")
    return events.select("key", made, "timestamp")
"""
    _assert_misfit_stops(world, source)


@pytest.mark.case("streams:N1")
def test_a_quiet_partition_keeps_the_start_of_the_plan(world: JobsWorld) -> None:
    """Nothing comes in it over several drivers: what comes at last is read from the offset that the plan named."""
    ends = {partition: world.log.offsets(world.at("events", partition)).end for partition in range(3)}
    # Of the first one the last record; nothing of the others.
    start = {**ends, 0: ends[0] - 1}
    for epoch in (1, 2, 3):
        batches = world.batches(epoch=epoch, start=start)
        if epoch == 1:
            world.ledger.may = lambda _: False
        world.begin(batches)
        batches.wait(60)
        world.ledger.may = lambda _: True
    assert [record.rows for record in world.ledger.records] == [1]
    assert world.ledger.records[-1].end["events"] == ends
    more = [(f"more-{number}", 1) for number in range(40)]
    world.write(more)
    world.begin(again := world.batches(epoch=4, start=start))
    again.wait(60)
    assert {seen.key for seen in world.output()} >= {key for key, _ in more}
    assert len(world.output()) == 1 + len(more)


@pytest.mark.case("streams:N4")
def test_a_frame_is_evaluated_once_and_whole(world: JobsWorld) -> None:
    """A function with an effect of its own sees each record once, however the batch is appended and recorded."""
    seen = world.folder / "seen"
    source = f"""
from pyspark.sql import functions as F


def classify(events):
    def note(batches):
        for batch in batches:
            with open({str(seen)!r}, "a") as file:
                file.writelines(f"{{key}}\\n" for key in batch.column("key").to_pylist())
            yield batch

    chosen = events.select("key", F.struct(F.lit("fine").alias("class")).alias("value"), "timestamp")
    return chosen.mapInArrow(note, chosen.schema)
"""
    batches = world.batches(max_records=200, code=source)
    world.begin(batches)
    batches.wait(60)
    assert sorted(seen.read_text().split()) == sorted(key for key, _ in _EVENTS)
    assert len(world.output()) == len(_EVENTS)


@pytest.mark.case("streams:F3")
def test_a_column_that_no_value_of_the_output_fits_is_refused_with_both_types(world: JobsWorld) -> None:
    """Before anything is made: the error has the column, its type, and what the output's schema takes."""
    source = """
from pyspark.sql import functions as F


def classify(events):
    return events.select("key", F.struct(F.array(F.lit(1)).alias("class")).alias("value"), "timestamp")
"""
    _, function = world.function(source)
    frame = checked_frame(world.spark, function, {"events": world.reading()})
    with pytest.raises(InvalidRequest) as caught:
        check_types(frame.frame, KEY, CLASS)
    assert caught.value.code == "column_type"
    assert ("list" in str(caught.value.found), "string" in str(caught.value.expected)) == (True, True)


@pytest.mark.case("streams:B7", "streams:C7")
def test_a_partition_that_is_added_while_a_generation_runs_is_read_once(world: JobsWorld) -> None:
    """A driver notices it within a batch, dies behind an append of its records, and the next one goes on: each once.

    Also what was added while no driver ran, with a checkpoint that was written before.
    """
    died: list[int] = []

    def die(record: BatchRecord) -> None:
        if record.end["events"].get(3):
            died.append(record.batch)
            raise AnewError("died", "the driver dies")

    first = world.batches(max_records=200)
    world.begin(first, until_now=False)
    while sum(record.rows for record in world.ledger.records) < len(_EVENTS):
        assert not first.wait(0.05)
    world.ledger.after = die
    world.grow(4)
    world.write(added := [(f"added-{number}", 20) for number in range(100)])
    with pytest.raises(AnewError, match="the driver dies"):
        first.wait(60)
    # As if the catalog had never heard of the batch with the new partition.
    assert world.ledger.records.pop().batch == died[0]
    world.ledger.after = lambda _: None
    world.grow(5)
    world.write(later := [(f"later-{number}", 20) for number in range(100)])
    again = world.batches(epoch=2, max_records=200)
    world.begin(again)
    assert again.wait(60)
    written = {key for key, _ in (*_EVENTS, *added, *later)}
    assert _classes(world).keys() == written
    assert sum(record.rows for record in world.ledger.records) == len(written)
    ends = {partition: world.log.offsets(world.at("events", partition)).end for partition in range(5)}
    assert min(ends.values()) > 0
    assert world.ledger.records[-1].end["events"] == ends
    output = world.output()
    assert len({(seen.batch, seen.sequence) for seen in output}) == len(output) > len(written)
