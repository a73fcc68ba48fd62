"""Functions that keep state between batches, on real Spark: what they remember is there once, whatever dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anew.core.errors import AnewError, InvalidRequest
from anew.core.jobs.batch import BatchRecord
from anew.rebuild.jobs.calling import Loaded
from anew.rebuild.jobs.running import checked_frame
from anew.spark.jobs.source import Reading
from anew.spark.session import SparkSession
from tests.spark.jobs.jobs_world import JobsWorld, running_world

_EVENTS = [(f"flight-{number}", number % 40) for number in range(500)]
COUNT = """
from pyspark.sql import functions as F


def classify(events):
    of = (F.col("value.delay") % 7).cast("string").alias("key")
    counted = events.groupBy(of).agg(F.count("*").alias("n"), F.max("timestamp").alias("written_at"))
    return counted.select("key", F.struct(F.col("n").cast("string").alias("class")).alias("value"), "written_at")
"""


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[JobsWorld]:
    """Events of 500 flights."""
    with running_world(spark, tmp_path, _EVENTS) as running:
        yield running


def _counts(world: JobsWorld) -> dict[str, int]:
    """Key → count, as the merge would have it: the greatest (time, batch, sequence)."""
    ordered = sorted(world.output(), key=lambda seen: (seen.written_ms, seen.batch, seen.sequence))
    return {seen.key: int(str(seen.value["class"])) for seen in ordered if seen.value is not None}


def _expected(*more: tuple[str, int]) -> dict[str, int]:
    return dict(Counter(str(delay % 7) for _, delay in (*_EVENTS, *more)))


def _run(world: JobsWorld, epoch: int) -> None:
    batches = world.batches(epoch=epoch, max_records=200, code=COUNT)
    world.begin(batches)
    assert batches.wait(120)


def test_what_was_counted_is_remembered(world: JobsWorld) -> None:
    """Over batches, and by the next driver: only what changes is written, and the sums are those of all records."""
    _run(world, 1)
    assert _counts(world) == _expected()
    world.write([("late", 3)])
    _run(world, 2)
    assert _counts(world) == _expected(("late", 3))
    assert world.ledger.records[-1].rows == 1


@pytest.mark.case("streams:C7")
@pytest.mark.parametrize("recorded", [1, 2])
def test_a_driver_that_dies_behind_its_append_counts_nothing_twice(world: JobsWorld, recorded: int) -> None:
    """Before its record: the batch is appended again. After it, before Spark's commit: its state alone comes again."""

    def die(record: BatchRecord) -> None:
        if record.batch == 1:
            raise AnewError("died", "the driver dies")

    world.ledger.after = die
    world.begin(first := world.batches(max_records=200, code=COUNT))
    with pytest.raises(AnewError, match="the driver dies"):
        first.wait(120)
    del world.ledger.records[recorded:]
    world.ledger.after = lambda _: None
    _run(world, 2)
    assert [(record.batch, record.epoch) for record in world.ledger.records] == [
        (0, 1),
        (1, 3 - recorded),
        (2, 2),
    ]
    assert _counts(world) == _expected()


WINDOWS = """
from pyspark.sql import functions as F


def classify(events):
    dated = events.withWatermark("timestamp", "30 minutes")
    windows = dated.groupBy(F.window("timestamp", "10 minutes"))
    counted = windows.agg(F.count("*").alias("n"), F.max("timestamp").alias("at"))
    key, value = F.col("window.start").cast("string").alias("key"), F.struct(F.col("n").cast("string").alias("class"))
    return counted.select(key, value.alias("value"), F.col("at").alias("written_at"))
"""


@pytest.mark.case("streams:N2")
def test_history_under_a_watermark_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Ten hours appended within a minute, and partitions of which some are busy at other hours: each record counts.

    Read by share of backlog, as Spark's connector does it, a third of them are dropped as late.
    """
    hour_ms, begin_ms, count = 3_600_000, 1_400_000_000_000, 5_000
    evenly = np.linspace(0, 10 * hour_ms, count)
    late = np.concatenate([np.linspace(0, 9 * hour_ms, count // 10), np.linspace(9 * hour_ms, 10 * hour_ms, count)])
    with running_world(spark, tmp_path, []) as world:
        for partition, times in enumerate((evenly, late, late[::2])):
            world.write_times(partition, (begin_ms + times).astype(np.int64))
        world.begin(batches := world.batches(max_records=500, code=WINDOWS))
        assert batches.wait(240)
        total = 2 * count + count // 10 + len(late[::2])
        assert sum(record.read for record in world.ledger.records) == total
        assert len(world.ledger.records) > 20
        assert sum(_counts(world).values()) == total


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("events.select('key', 'value', 'timestamp').limit(3)", "stateful_operator"),
        ("events.orderBy('key')", "stateful_operator"),
        ("events.groupBy('key').agg(F.first('value').alias('value'))", "no_written_at"),
    ],
)
@pytest.mark.case("streams:D3")
def test_state_that_nobody_can_keep_or_date_is_refused(world: JobsWorld, body: str, code: str) -> None:
    """Operators whose state cannot go elsewhere, and an aggregation that does not say when its rows were written."""
    source = f"from pyspark.sql import functions as F\n\n\ndef classify(events):\n    return {body}\n"
    _, function = world.function(source)
    with pytest.raises(InvalidRequest) as caught:
        checked_frame(world.spark, function, {"events": world.reading()})
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("body", "state", "mode"),
    [
        ("events.dropDuplicates(['key'])", "Deduplicate", "update"),
        ("late.dropDuplicatesWithinWatermark(['key'])", "DeduplicateWithinWatermark", "update"),
        ("events.join(others.select('key'), 'key')", "Join", "update"),
        (
            "late.join(then, F.expr('then between timestamp and timestamp + interval 1 hour'), 'left_outer')"
            ".select(late['*'])",
            "Join",
            "append",
        ),
        ("events.union(events).unionByName(others)", "", "append"),
    ],
)
def test_which_operators_keep_state_is_known_before_anything_is_begun(
    world: JobsWorld, body: str, state: str, mode: str
) -> None:
    """With which rows a batch gives: those that changed, where Spark has that."""
    found = checked_frame(world.spark, *_of_two(world, body))
    assert (", ".join(found.state), found.mode) == (state, mode)


def test_an_input_is_not_joined_with_itself(world: JobsWorld) -> None:
    """Spark would plan two streams of it, whose ends may differ; given twice, each has positions of its own."""
    with pytest.raises(InvalidRequest) as caught:
        checked_frame(world.spark, *_of_two(world, "events.join(events.select('key'), 'key').unionByName(others)"))
    assert (caught.value.code, caught.value.found) == ("input_twice", "events")


ALONE = """
from pyspark.sql import functions as F


def classify(events, others):
    late = events.withWatermark("timestamp", "1 minute")
    then = others.select(F.col("key").alias("other"), F.col("timestamp").alias("then"))
    then = then.withWatermark("then", "1 minute")
    met = F.expr("concat(other, '!') = key and then between timestamp and timestamp + interval 1 minute")
    alone = late.join(then, met, "left_outer")
    return alone.select("key", F.struct(F.lit("alone").alias("class")).alias("value"), "timestamp")
"""


def _run_alone(world: JobsWorld, epoch: int) -> None:
    """What no other record meets is written once the watermark has passed it: in a batch that reads nothing."""
    _, function = world.function(ALONE, inputs=("events", "others"))
    batches = world.batches(epoch=epoch)
    batches.run = replace(batches.run, function=function, readings=_two_readings(world))
    world.begin(batches)
    assert batches.wait(120)


def _minutes(first: int, last: int) -> list[tuple[str, int]]:
    return [(f"flight-{minute}", minute) for minute in range(first, last)]


@pytest.mark.case("streams:N6")
@pytest.mark.parametrize("is_lost", ["nothing", "the commit", "the record"])
def test_a_crash_in_a_batch_without_data_loses_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path, is_lost: str
) -> None:
    """Its rows come once, and the watermark is as before; what is written after a restart behind it comes as well."""
    begin_ms = 1_400_000_000_000

    def die(record: BatchRecord) -> None:
        if record.read == 0 and record.rows and is_lost != "nothing":
            raise AnewError("died", "the driver dies")

    with running_world(spark, tmp_path, []) as world:
        for key, minute in _minutes(0, 20):
            world.write([(key, 1)], at_ms=begin_ms + minute * 60_000)
        world.ledger.after = die
        if is_lost == "nothing":
            _run_alone(world, 1)
        else:
            with pytest.raises(AnewError, match="the driver dies"):
                _run_alone(world, 1)
        world.ledger.after = lambda _: None
        died = world.ledger.records[-1]
        assert (died.read, died.rows > 10) == (0, True)
        if is_lost == "the record":
            world.ledger.records.pop()
        _run_alone(world, 2)
        again = next(record for record in world.ledger.records if record.batch == died.batch)
        assert (again.rows, again.watermark_ms) == (died.rows, died.watermark_ms)
        for key, minute in _minutes(20, 40):
            world.write([(key, 1)], at_ms=begin_ms + minute * 60_000)
        _run_alone(world, 3)
        counted = sum(record.rows for record in world.ledger.records)
        assert {seen.key for seen in world.output()} >= {key for key, _ in _minutes(0, 37)}
        assert counted == len({seen.key for seen in world.output()})


def test_a_watermark_follows_one_input(world: JobsWorld) -> None:
    """The one that is ahead would make records of the other late; each with its own, and the lowest of them counts."""
    with pytest.raises(InvalidRequest) as caught:
        checked_frame(world.spark, *_of_two(world, "events.unionByName(others).withWatermark('timestamp', '1 hour')"))
    assert caught.value.code == "watermark_of_several_inputs"
    each = "late.unionByName(others.withWatermark('timestamp', '1 hour')).dropDuplicates(['key', 'timestamp'])"
    assert checked_frame(world.spark, *_of_two(world, each)).state == ("Deduplicate",)


def _of_two(world: JobsWorld, body: str) -> tuple[Loaded, dict[str, Reading]]:
    """A function of the same topic as two inputs, and how these are read."""
    source = f"""
from pyspark.sql import functions as F


def classify(events, others):
    late = events.withWatermark("timestamp", "1 hour")
    then = others.select(F.col("timestamp").alias("then")).withWatermark("then", "1 hour")
    return {body}
"""
    two = _two_readings(world)
    inputs = two if "others" in body or "then" in body else {"events": two["events"]}
    source = source if "others" in inputs else source.replace(", others", "").replace("then = others", "then = events")
    return world.function(source, inputs=tuple(inputs))[1], inputs


def _two_readings(world: JobsWorld) -> dict[str, Reading]:
    """One topic as two inputs."""
    events = world.reading()
    others = replace(events, task=replace(events.task, of=events.task.of.model_copy(update={"name": "others"})))
    return {"events": events, "others": others}
