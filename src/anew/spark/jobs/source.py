"""A topic as a source of Spark: planned on the driver, read by tasks as Arrow batches.

A generation follows it as a stream. Parts of a batch are read as a frame of fixed rows, to find and to leave out
records on which the function fails (`read_ranges`).

Offsets are ``{"input": name, partition: next offset, …}``: Spark keeps them by the order of its sources alone. A
partition of the topic is read by one task, so that its order is the frame's order within a task; a small batch is read
by few tasks, because each costs more than it has to read. A range that the log does not
hold is an error, never skipped (cases B8, B9).

The partitions are those that the topic has at each batch. One that offsets do not name was added after these were
written, by whoever wrote them, and is read from offset 0 (case B7).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from anew.api.location import LogLocation
from anew.api.waiting import wait_seconds
from anew.core.errors import Failed
from anew.core.jobs.deadletters import spans_between
from anew.core.jobs.inputs import JobInput, Offsets, Span, next_offset
from anew.core.topics.topic import TopicFormat
from anew.log.interface import Log, TopicPartition, present_partitions
from anew.log.open import BUILD_TIMEOUT_SECONDS, no_clock, open_log
from anew.log.settling import settled_offsets
from anew.log.through import read_through
from anew.spark.failures import told_to_driver
from anew.spark.jobs.admission import Admission
from anew.spark.jobs.decoding import InputTask, decoder, frame_schema, times_of
from anew.spark.jobs.operators import streams_of
from anew.spark.worker import begin_task, required_build

_FORMAT = "anew-topic"
INPUT = "input"
_TASK, _START, _MAX_RECORDS, _ALIGNED = "task", "start", "max_records", "aligned"
_BUILD, _RANGES = "build", "ranges"

_TASK_RECORDS = 5_000
"""A task has at least about so many records to read, where there are as many."""

_HOME = str(Path(__file__).parents[3])
"""From where this process imports the package: a folder, or the zip that the driver was sent."""

_LOGS: dict[LogLocation, Log] = {}
"""Open logs of this worker: one for all of its tasks, because to connect takes longer than to read a small batch."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How an input is read.

    Attributes:
        task: The input, and where it is.
        start: Partition → offset, of every partition that there was when it was planned; where a query without a
            checkpoint begins.
        max_records: At most so many records in one batch, over all partitions.
        aligned: Whether a batch ends at one time in all partitions (`anew.spark.jobs.admission`).
    """

    task: InputTask
    start: Offsets
    max_records: int
    aligned: bool = False


def read_topic(spark: SparkSession, reading: Reading) -> DataFrame:
    """The input as a streaming frame, see `anew.spark.jobs.decoding.frame_schema`."""
    _register(spark)
    options = {
        _TASK: _as_text(reading.task),
        _START: json.dumps(reading.start),
        _MAX_RECORDS: str(reading.max_records),
        _ALIGNED: "yes" if reading.aligned else "",
        _BUILD: required_build() or "",
    }
    return spark.readStream.format(_FORMAT).options(**options).load()


def _register(spark: SparkSession) -> None:
    """Let a session know the source.

    Spark looks for one of the name in the *active* session, and refuses the next. A function makes its session the
    active one where it makes a frame of fixed rows (``createDataFrame``): its next input would be refused, the search
    for bad records, and in another session each. So this one becomes the active one, and may know the source already.
    """
    spark.createDataFrame([], "nothing int")
    try:
        spark.dataSource.register(TopicSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def inputs_in(frame: DataFrame) -> list[str | None]:
    """The inputs that a frame is made of, by their names, one for each stream; None: a stream that is no input."""
    return [_of_text(options[_TASK]).of.name if source == _FORMAT else None for source, options in streams_of(frame)]


def read_ranges(spark: SparkSession, reading: Reading, spans: Sequence[Span]) -> DataFrame:
    """Parts of the input as a frame of fixed rows, with the columns of `read_topic`."""
    _register(spark)
    options = {
        _TASK: _as_text(reading.task),
        _RANGES: json.dumps([span.model_dump() for span in spans]),
        _BUILD: required_build() or "",
    }
    return spark.read.format(_FORMAT).options(**options).load()


class TopicSource(DataSource):
    """The source, as Spark asks for it."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str], dict[str, Any]]:
        """Where it is read again, the package may not be importable yet.

        Spark 4.2 plans batches in a Python process on the driver's machine (`python_streaming_source_runner`), and
        gives it none of the files that `addPyFile` has added, unlike all others.
        """
        return _restorer(), (_HOME,), self.__dict__

    @classmethod
    def name(cls) -> str:
        """See `DataSource.name`."""
        return _FORMAT

    def schema(self) -> StructType:
        """The columns of the input's frame."""
        return from_arrow_schema(frame_schema(_of_text(self.options[_TASK])))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Who plans batches and reads them."""
        options = self.options
        start = {int(partition): offset for partition, offset in json.loads(options[_START]).items()}
        aligned = bool(options.get(_ALIGNED))
        reading = Reading(_of_text(options[_TASK]), start, int(options[_MAX_RECORDS]), aligned)
        return _Reader(reading, options.get(_BUILD) or None)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Who reads parts of it."""
        ranges = [Span.model_validate(each) for each in json.loads(self.options[_RANGES])]
        return _RangesReader(_of_text(self.options[_TASK]), ranges, self.options.get(_BUILD) or None)


def _restorer() -> Callable[[str], object]:
    """What makes an empty source: defined inside of another function, so that cloudpickle sends it by value."""

    def restore(home: str) -> object:
        import importlib
        import sys

        if home not in sys.path:
            sys.path.append(home)
        source = importlib.import_module("anew.spark.jobs.source").TopicSource
        return source.__new__(source)

    return restore


@dataclass(frozen=True)
class _Task(InputPartition):
    """Ranges that one task reads, one after another."""

    ranges: tuple[Span, ...]


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in a process beside the driver; a copy of it reads in tasks."""

    def __init__(self, reading: Reading, build: str | None) -> None:
        self._reading, self._build = reading, build
        self._last: Offsets | None = None
        self._admission = Admission(self._look)

    # Spark's names.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The start that the plan resolved."""
        return self._named(self._reading.start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """At most so many records a batch."""
        return ReadMaxRows(self._reading.max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Everything that is there now, and then no more."""
        self._last = self._ends(None)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends, for the progress of the query."""
        return self._named(self._ends(None))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends: shared out by what each partition has, so that all come to their ends together."""
        begun = _offsets_in(start)
        # A broker that has not heard yet of the last partitions takes none of them away.
        ends = {**begun, **(self._ends(begun) if self._last is None else self._last)}
        # Nor does an end that moved back for a moment while it was noted take back what was read.
        ends = {at: max(end, begun.get(at, 0)) for at, end in ends.items()}
        if isinstance(limit, ReadAllAvailable) or not isinstance(limit, ReadMaxRows):
            return self._named(ends)
        left = {at: max(0, end - next_offset(begun, at)) for at, end in ends.items()}
        total = sum(left.values())
        if total <= limit.max_rows:
            return self._named(ends)
        if self._reading.aligned:
            with told_to_driver():
                return self._named(self._admission.upto(begun, ends, limit.max_rows))
        shares = {at: -(-count * limit.max_rows // total) for at, count in left.items()}
        return self._named({at: next_offset(begun, at) + share for at, share in shares.items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What each task reads: no more tasks than partitions of the topic that have something."""
        name = self._reading.task.of.name
        return _shared_out(spans_between({name: _offsets_in(start)}, {name: _offsets_in(end)}))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of ranges. Runs on an executor."""
        return _read(self._reading.task, partition, self._build)

    def _look(self, parts: Mapping[int, tuple[int, int]]) -> dict[int, tuple[Any, Any]]:
        """The offsets and times of parts of partitions, see `anew.spark.jobs.admission.Look`."""
        task, none = self._reading.task, np.empty(0, np.int64)
        log, seen = _log_of(task.location), dict[int, tuple[Any, Any]]()
        log.fetch_ahead({_place(task.of, at): begin for at, (begin, _) in parts.items()}, raw=_is_raw(task.of))
        for partition, (begin, end) in parts.items():
            part = Span(input=task.of.name, partition=partition, begin=begin, end=end)
            # Copies: a view would keep the values of what was read.
            found = [
                (np.array(each.column("offset")), np.array(times_of(each))) for each in _through(log, task.of, part)
            ]
            offsets, times_ms = [each for each, _ in found], [each for _, each in found]
            seen[partition] = np.concatenate([none, *offsets]), np.concatenate([none, *times_ms])
        return seen

    def _named(self, offsets: Offsets) -> dict[str, Any]:
        named = {str(partition): offset for partition, offset in sorted(offsets.items())}
        return {INPUT: self._reading.task.of.name, **named}

    def _ends(self, start: Offsets | None) -> Offsets:
        """The end of each partition that there is now; one that moved back for a moment is asked again (case N7).

        Args:
            start: From where they will be read; None: nobody will.

        Raises:
            Failed: ``input_expired``, ``input_lost``: the log does not hold what comes next.
        """
        of, ends = self._reading.task.of, Offsets()
        with told_to_driver():
            log = _log_of(self._reading.task.location)
            places = present_partitions(log, of.topic, of.topic_uid, of.key_schema_id)
            reached = {place: 0 if start is None else next_offset(start, place.partition) for place in places}
            for place, found in settled_offsets(log, reached, wait_seconds).items():
                partition = place.partition
                at = found.end if start is None else reached[place]
                if not found.begin <= at <= found.end:
                    raise _not_held(of, partition, at, found.begin, found.end)
                ends[partition] = found.end
        return ends


class _RangesReader(DataSourceReader):
    """Plans parts of an input in a process beside the driver; a copy of it reads in tasks."""

    def __init__(self, task: InputTask, ranges: Sequence[Span], build: str | None) -> None:
        self._task, self._ranges, self._build = task, ranges, build

    def partitions(self) -> Sequence[InputPartition]:
        """What each task reads; without a range one task that reads nothing, so that the function is called."""
        return _shared_out(self._ranges) or [_Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of ranges. Runs on an executor."""
        return _read(self._task, partition, self._build)


def _offsets_in(stated: Mapping[str, Any]) -> Offsets:
    """Partition → offset, of what Spark keeps."""
    return {int(partition): int(offset) for partition, offset in stated.items() if partition != INPUT}


def _read(task: InputTask, partition: InputPartition, build: str | None) -> Iterator[pa.RecordBatch]:
    """The rows of a task's ranges, in the order of each partition. Runs on an executor."""
    assert isinstance(partition, _Task)
    begin_task(build)
    decode = decoder(task)
    with told_to_driver():
        log = _log_of(task.location)
        # Of each partition the first range: those behind it are read on from there.
        firsts = {each.partition: each.begin for each in reversed(partition.ranges)}
        others = {_place(task.of, at): begin for at, begin in list(reversed(firsts.items()))[1:]}
        log.fetch_ahead(others, raw=_is_raw(task.of))
        for part in partition.ranges:
            for records in _through(log, task.of, part):
                yield decode(records, part.partition)


def _shared_out(ranges: Sequence[Span]) -> list[_Task]:
    """Ranges to tasks, about evenly: the longest partitions first, each whole to the task that has least."""
    of_partitions: dict[int, list[Span]] = {}
    for each in ranges:
        of_partitions.setdefault(each.partition, []).append(each)
    count = min(len(of_partitions), max(1, _total(ranges) // _TASK_RECORDS))
    tasks: list[list[Span]] = [[] for _ in range(count)]
    for part in sorted(of_partitions.values(), key=_total, reverse=True):
        min(tasks, key=_total).extend(part)
    return [_Task(tuple(sorted(task, key=lambda of: (of.partition, of.begin)))) for task in tasks]


def _total(ranges: Sequence[Span]) -> int:
    return sum(each.count for each in ranges)


def _not_held(of: JobInput, partition: int, at: int, begin: int, end: int) -> Failed:
    expired = at < begin
    return Failed(
        "input_expired" if expired else "input_lost",
        f"the input {of.name} does not hold what comes next in partition {partition}",
        found=f"offsets [{begin}, {end})" + (f": {begin - at} records are gone" if expired else ""),
        expected=f"offset {at}",
        hint="into a topic: anew job rewind begins where the log does; into a store: a new job with a new store"
        if expired
        else "the log lost its end; look at the log before anything is begun again",
    )


def _through(log: Log, of: JobInput, part: Span) -> Iterator[pa.RecordBatch]:
    """The records of a range.

    Raises:
        Failed: ``input_expired``, ``input_lost``: what was planned before a driver ended may have expired since.
    """
    place = _place(of, part.partition)
    try:
        for read in read_through(log, place, part.begin, part.end, raw=_is_raw(of)):
            yield read.records
    except Failed as error:
        if error.code != "offset_out_of_range":
            raise
        held = log.offsets(place)
        raise _not_held(of, part.partition, part.begin, held.begin, held.end) from error


def _is_raw(of: JobInput) -> bool:
    return of.format is not TopicFormat.AVRO


def _place(of: JobInput, partition: int) -> TopicPartition:
    return TopicPartition(of.topic, of.topic_uid, partition, of.key_schema_id)


def _log_of(location: LogLocation) -> Log:
    log = _LOGS.get(location)
    if log is None:
        log = _LOGS[location] = open_log(location, clock=no_clock, timeout_seconds=BUILD_TIMEOUT_SECONDS)
    return log


def _as_text(task: InputTask) -> str:
    return json.dumps(
        {
            "location": task.location.model_dump(mode="json"),
            "of": task.of.model_dump(mode="json"),
            "value_fields": task.value_fields.hex(),
        }
    )


def _of_text(text: str) -> InputTask:
    parts = json.loads(text)
    location, of = LogLocation.model_validate(parts["location"]), JobInput.model_validate(parts["of"])
    return InputTask(location, of, bytes.fromhex(parts["value_fields"]))
