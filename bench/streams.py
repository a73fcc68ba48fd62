"""Stream jobs as the product runs them, beside bare, tuned Structured Streaming on the same broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from anew.api.location import LogLocation
from anew.core.feed import FeedKind
from anew.runtime.clock import new_id
from anew.spark.session import session_for_queries, spark_session
from bench.brokers import add_connector, check_connector, running_broker
from bench.kafkascan import ROOMY
from bench.measuring import Bench, Claim, Measured, Repeats, take_turns, times_as_fast
from bench.serving import make_served_store, serving_node, wait_until
from bench.streaming import JOB_ORIGIN, PARTITIONS, FilledTopic, Streams, filled_topic, new_topic, sink_into, written
from bench.synthetic import KEY_BYTES, SEED, VALUE_BYTES

_BATCH_RECORDS, _SMALL_BATCH = 250_000, 500
_FIGURES = {"key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES, "partitions": PARTITIONS}


@contextmanager
def _streams(folder: Path) -> Iterator[tuple[Streams, LogLocation]]:
    with running_broker(folder) as log, spark_session(None, ROOMY) as started:
        spark = session_for_queries(started)
        add_connector(spark)
        yield Streams(spark, folder), log


class _TopicToTopic:
    """Both sides from one topic into fresh ones, checked to write the same number of records."""

    def __init__(self, streams: Streams, topic: FilledTopic, max_records: int) -> None:
        """Nothing has run."""
        self._streams, self.topic, self._max_records = streams, topic, max_records
        self._wrote: int | None = None

    def ours(self) -> float:
        """Seconds until the last record is written."""
        to = new_topic(self.topic.location, "marked")
        sink = sink_into(self.topic.location, *to)
        ran = self._streams.ours(self.topic, sink, self._max_records, dict.fromkeys(range(PARTITIONS), 0))
        return self.checked(ran.seconds, to)

    def bare(self) -> float:
        """Likewise by hand."""
        to = new_topic(self.topic.location, "bare")
        return self.checked(self._streams.bare(self.topic, to[0], self._max_records).seconds, to)

    def checked(self, seconds: float, to: tuple[str, str]) -> float:
        """The seconds, if as many records were written as before.

        Raises:
            AssertionError: The sides differ.
        """
        wrote = written(self.topic.location, *to)
        self._wrote = wrote if self._wrote is None else self._wrote
        if wrote != self._wrote:
            raise AssertionError(f"the sides differ: {wrote} records, and {self._wrote} before")
        return seconds


def run_own(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """The source alone, with so many records in the topic."""
    with _streams(folder) as (streams, log):
        return [_measure_own(streams, filled_topic(log, size), repeats) for size in sizes]


def _measure_own(streams: Streams, topic: FilledTopic, repeats: Repeats) -> Measured:
    turns: dict[str, Callable[[], float]] = {
        "ours": lambda: streams.ours_to_nobody(topic, _BATCH_RECORDS).seconds,
        "connector": lambda: streams.connector_to_nobody(topic, _BATCH_RECORDS).seconds,
    }
    return Measured(topic.records, take_turns(turns, repeats), figures={**_FIGURES, "batch": _BATCH_RECORDS})


def run_stream(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """From topic to topic, with so many records in the first one."""
    with _streams(folder) as (streams, log):
        measured = []
        for size in sizes:
            sides = _TopicToTopic(streams, filled_topic(log, size), _BATCH_RECORDS)
            turns = {"ours": sides.ours, "bare": sides.bare}
            measured.append(Measured(size, take_turns(turns, repeats), figures={**_FIGURES, "batch": _BATCH_RECORDS}))
        return measured


def run_small(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Batches of few records, so many of them."""
    with _streams(folder) as (streams, log):
        topic = filled_topic(log, max(sizes) * _SMALL_BATCH)
        return [_measure_small(streams, topic, size, repeats) for size in sizes]


def _measure_small(streams: Streams, topic: FilledTopic, batches: int, repeats: Repeats) -> Measured:
    held = topic.records // PARTITIONS
    start = {partition: max(0, held - batches * _SMALL_BATCH // PARTITIONS) for partition in range(PARTITIONS)}
    named = json.dumps({topic.name: {str(partition): offset for partition, offset in start.items()}})

    def ours() -> float:
        sink = sink_into(topic.location, *new_topic(topic.location, "marked"))
        return streams.ours(topic, sink, _SMALL_BATCH, start).batch_seconds * batches

    def bare() -> float:
        to, _ = new_topic(topic.location, "bare")
        return streams.bare(topic, to, _SMALL_BATCH, named).batch_seconds * batches

    seconds = take_turns({"ours": ours, "bare": bare}, repeats)
    return Measured(batches, seconds, figures={**_FIGURES, "batch": _SMALL_BATCH})


def run_store(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """From a topic into a store, until the node has applied the last record."""
    with _streams(folder) as (streams, log):
        measured = []
        for size in sizes:
            sides = _TopicToTopic(streams, filled_topic(log, size), _BATCH_RECORDS)
            into = _IntoStore(streams, sides, folder)
            turns = {"ours": into.ours, "bare to a topic": sides.bare}
            measured.append(Measured(size, take_turns(turns, repeats), figures={**_FIGURES, "batch": _BATCH_RECORDS}))
        return measured


class _IntoStore:
    """The job into the store that a node serves, whose version follows the job alone."""

    def __init__(self, streams: Streams, sides: _TopicToTopic, folder: Path) -> None:
        """No store is there."""
        self._streams, self._sides, self._folder = streams, sides, folder

    def ours(self) -> float:
        """Seconds until the last record can be read."""
        topic = self._sides.topic
        made = make_served_store(self._folder / new_id(), PARTITIONS, topic.location, PARTITIONS)
        of_job = {"kind": FeedKind.GENERATION, "origin": JOB_ORIGIN.encoded.hex()}
        store = replace(made, feed=made.feed.model_copy(update=of_job))
        sink = sink_into(topic.location, store.feed.topic, store.feed.topic_uid)
        with serving_node(store) as node:
            began = time.perf_counter()
            self._streams.ours(topic, sink, _BATCH_RECORDS, dict.fromkeys(range(PARTITIONS), 0))
            ends = store.ends()
            wait_until(lambda: node.position().reaches(ends))
            seconds = time.perf_counter() - began
        return self._sides.checked(seconds, (store.feed.topic, store.feed.topic_uid))


def _a_second(found: Sequence[Measured]) -> float:
    return found[-1].rate("ours")


def _more_than_bare(found: Sequence[Measured]) -> float:
    return found[-1].median("ours") / found[-1].median("bare")


BENCHES = (
    Bench(
        "stream-own",
        "a job's source on Kafka, to nobody, beside Spark's Kafka connector",
        "records",
        (500_000, 1_000_000, 2_000_000),
        (2_000,),
        (times_as_fast("ours ÷ connector", "ours", "connector", 0.85),),
        run_own,
        SEED,
        check_connector,
    ),
    Bench(
        "stream",
        "a stateless job from topic to topic on Kafka, beside bare Structured Streaming",
        "records",
        (250_000, 500_000, 1_000_000),
        (2_000,),
        (times_as_fast("ours ÷ bare", "ours", "bare", 0.9),),
        run_stream,
        SEED,
        check_connector,
    ),
    Bench(
        "stream-small",
        "batches of 500 records of the same job, beside the same batches of bare Structured Streaming",
        "batches",
        (10, 20, 40),
        (8,),
        (Claim("ours ÷ bare, time", _more_than_bare, most=1.5),),
        run_small,
        SEED,
        check_connector,
    ),
    Bench(
        "stream-store",
        "a stateless job on Kafka into a store, until readable, beside bare Structured Streaming to a topic",
        "records",
        (250_000, 500_000, 1_000_000),
        (2_000,),
        (Claim("records a second, until readable", _a_second, least=60_000),),
        run_store,
        SEED,
        check_connector,
    ),
    Bench(
        "rewind",
        "a job's whole history from topic to topic on Kafka, until the last record is written, beside a bare query",
        "records",
        (1_250_000, 2_500_000, 5_000_000),
        (2_000,),
        (Claim("ours ÷ bare, time", _more_than_bare, most=1.15),),
        run_stream,
        SEED,
        check_connector,
    ),
)
