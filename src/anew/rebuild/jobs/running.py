"""The batches of a generation: lease, append with identity, record; then Spark commits.

1. Spark writes ``offsets/B``. A crash after it: the batch runs with the same ranges.
2. The lease is proved, and whether the generation is to stop. One that is to stop, or is another driver's, raises here:
   nothing of the batch was written.
3. The frame is evaluated once and appended. A crash in it, or after it: the batch runs again under a greater epoch;
   what was appended before loses (rule R20) and is not read (`BatchRecord.epoch`). Where it fails by a record, and the
   generation leaves such records out: they are searched for without appending anything (`anew.rebuild.jobs.faults`),
   the lease is proved again, and a frame of all others is evaluated once and appended. What the first frame appended
   has attempts that the record of the batch does not name.
4. The record of the batch is committed to the catalog. It is final: readers may have taken what it counts.
5. Spark writes ``commits/B``, which also names the batch's state. A crash before it: Spark runs the batch again, and
   the driver appends nothing; where the function keeps state, the frame is evaluated, so that the state comes.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from anew.core.errors import AnewError, InvalidRequest
from anew.core.jobs.batch import NO_DIGEST, BatchRecord, TaskOutput, behind, chained
from anew.core.jobs.deadletters import DeadLetter, spans_between, without
from anew.core.jobs.inputs import Offsets, Span
from anew.rebuild.jobs.calling import Loaded
from anew.rebuild.jobs.checkpoint import check_checkpoint, is_committed, planned
from anew.rebuild.jobs.faults import Search, Skipping
from anew.rebuild.jobs.streaming import Loop, StartLoop, start_on_spark
from anew.rebuild.patience import Waiting
from anew.spark.failures import reason_of
from anew.spark.jobs.operators import APPEND, UPDATE, never_run, stateful_operators, watermarks_of, why_not_run
from anew.spark.jobs.query import JobFrame
from anew.spark.jobs.sink import SinkTask, append_frame, check_output, evaluate_frame
from anew.spark.jobs.source import Reading, inputs_in, read_ranges, read_topic
from anew.spark.session import DataFrame, SparkSession

_COMMIT_SECONDS = 10.0
_LOOK_SECONDS = 0.05


class Recorder(Protocol):
    """Where a run says what it is about to do and what it did: the controller."""

    def may_append(self, batch: int) -> bool:
        """Whether the driver still holds its lease, and the generation is not to stop.

        Raises:
            AnewError: Nobody answers, or another driver took over: nothing may be appended.
        """

    def record(self, record: BatchRecord) -> None:
        """Commit what a batch did; the same again is nothing.

        Raises:
            AnewError: It is not taken.
        """


class Stopped(Exception):
    """Raised inside of a batch before anything of it is written: the generation is to stop."""


@dataclass(frozen=True, slots=True)
class GenerationRun:
    """What running a generation needs.

    Attributes:
        function: Its function.
        readings: Input → how it is read.
        sink: Where its output goes.
        epoch: Of the lease.
        checkpoint: Spark's folder of it.
        records: The last records of its batches.
        clock: The time in ms.
        interval_ms: How often it looks for new records.
        start_loop: Starts what plans batches and hands over their frames.
        waiting: How the run waits.
        skipping: How records are found on which the function fails, and left out where it may leave out some; None:
            they end the run unfound.
        keeps_state: Whether the function remembers something between batches.
    """

    function: Loaded
    readings: Mapping[str, Reading]
    sink: SinkTask
    epoch: int
    checkpoint: Path
    records: Sequence[BatchRecord]
    clock: Callable[[], int]
    interval_ms: int = 100
    start_loop: StartLoop = start_on_spark
    waiting: Waiting = field(default_factory=Waiting)
    skipping: Skipping | None = None
    keeps_state: bool = False


def checked_frame(spark: SparkSession, function: Loaded, readings: Mapping[str, Reading]) -> JobFrame:
    """What the function makes of its inputs as streams, if it can be run and a store takes it.

    Raises:
        InvalidRequest: ``stateful_operator``, ``not_streaming``, ``unused_input``, ``foreign_stream``,
            ``input_twice``, ``watermark_of_several_inputs``, ``not_runnable``; what `Loaded` and `check_output` raise.
    """
    frame = _called(spark, function, readings)
    if _is_dated(frame):
        frame = _called(spark, function, {name: replace(of, aligned=True) for name, of in readings.items()})
    state = stateful_operators(frame)
    refused = never_run(state)
    if refused:
        raise InvalidRequest(
            "stateful_operator",
            "the function needs what came before in a way that no job may keep",
            found=", ".join(refused),
            expected="aggregations, dropDuplicates, joins, transformWithState; columns, filters, unions",
        )
    _check_inputs(inputs_in(frame), readings)
    mode = _mode_of(frame, state)
    check_output(frame.dtypes)
    return JobFrame(frame, tuple(state), mode)


def _called(spark: SparkSession, function: Loaded, readings: Mapping[str, Reading]) -> DataFrame:
    """What the function makes of its inputs as streams.

    Raises:
        InvalidRequest: ``not_streaming``; what `Loaded` raises.
    """
    frame = function({name: read_topic(spark, reading) for name, reading in readings.items()})
    if not frame.isStreaming:
        raise InvalidRequest(
            "not_streaming",
            "the function gives a frame that does not follow its inputs",
            found="a frame of fixed rows",
            expected="a frame that is made of the inputs' frames",
        )
    return frame


def _is_dated(frame: DataFrame) -> bool:
    """Whether a watermark decides what is late: each input is then read aligned in time (case N2).

    Of several watermarks Spark takes the lowest, so that none of several inputs makes records of another one late.

    Raises:
        InvalidRequest: ``watermark_of_several_inputs``.
    """
    streams = watermarks_of(frame)
    if any(count > 1 for count in streams):
        raise InvalidRequest(
            "watermark_of_several_inputs",
            "one watermark follows the times of several inputs: the one that is ahead would make the others late",
            found="withWatermark of a union or a join",
            expected="a watermark of each input",
            hint='unite them after it: one.withWatermark("timestamp", …).union(other.withWatermark("timestamp", …))',
        )
    return bool(streams)


def _mode_of(frame: DataFrame, state: Sequence[str]) -> str:
    """Which rows each batch gives: of what keeps state those that changed, where Spark has that.

    Raises:
        InvalidRequest: ``not_runnable``.
    """
    refused: str | None = None
    for mode in (UPDATE, APPEND) if state else (APPEND,):
        refused = why_not_run(frame, mode)
        if refused is None:
            return mode
    raise InvalidRequest(
        "not_runnable",
        "Spark does not run what the function gives as a stream",
        found=refused,
        expected="columns, filters, unions, joins, aggregations, dropDuplicates, transformWithState",
    )


def _check_inputs(found: Sequence[str | None], readings: Mapping[str, Reading]) -> None:
    """Raise unless a frame is made of all inputs, and of no other stream: a batch says how far each of them is read.

    Raises:
        InvalidRequest: ``unused_input``, ``foreign_stream``, ``input_twice``.
    """
    unused = sorted(readings.keys() - set(found))
    if unused:
        raise InvalidRequest(
            "unused_input",
            "the function takes inputs of which its frame is not made",
            found=", ".join(unused),
            expected="a frame that is made of each input's frame",
            hint="leave the input out of the function and of the job",
        )
    twice = sorted(name for name, count in Counter(found).items() if name is not None and count > 1)
    if twice:
        raise InvalidRequest(
            "input_twice",
            "the function joins an input with itself: Spark reads it twice, not always equally far",
            found=", ".join(twice),
            expected="each input once",
            hint="give the job its topic twice, under two names: --input one=TOPIC --input other=TOPIC",
        )
    if None in found:
        raise InvalidRequest(
            "foreign_stream",
            "the function reads a stream that is no input of its job",
            found="a frame that the function made itself",
            expected="streams of the job's inputs alone",
            hint="make it an input: --input NAME=TOPIC",
        )


def part_frame(
    spark: SparkSession, function: Loaded, readings: Mapping[str, Reading], spans: Sequence[Span]
) -> DataFrame:
    """What the function makes of parts of its inputs, as a frame of fixed rows: of a function without state the same.

    Raises:
        InvalidRequest: What `Loaded` raises.
    """
    return function(
        {
            name: read_ranges(spark, reading, [span for span in spans if span.input == name])
            for name, reading in readings.items()
        }
    )


@dataclass(slots=True)
class Batches:
    """Runs the batches of one generation; safe to be stopped from another thread."""

    run: GenerationRun
    recorder: Recorder
    _last: BatchRecord | None = field(init=False)
    _failed: AnewError | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _inside: threading.Lock = field(default_factory=threading.Lock)
    _loop: Loop | None = None

    def __post_init__(self) -> None:
        """Go on behind the last record."""
        self._last = self.run.records[-1] if self.run.records else None

    def start(self, frame: Any, *, until_now: bool = False) -> None:
        """Begin, after the checkpoint was compared with the records.

        Args:
            frame: As `checked_frame` made it; whatever ``run.start_loop`` takes.
            until_now: Come to what the inputs hold now, and end.

        Raises:
            Refused: ``checkpoint_edited``, ``checkpoint_lost``.
        """
        check_checkpoint(self.run.checkpoint, self.run.records)
        interval_ms = None if until_now else self.run.interval_ms
        self._loop = self.run.start_loop(frame, self._batch, self.run.checkpoint, interval_ms)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, by itself or because it was stopped; False after so many seconds.

        Raises:
            AnewError: Why it failed.
        """
        try:
            return self._started().wait(seconds)
        except Exception as error:
            if self._stop.is_set():
                return True
            # Spark says in words alone what a batch raised here.
            if self._failed is not None:
                raise self._failed from error
            raise (error if isinstance(error, AnewError) else reason_of(error)) from error

    def stop(self) -> None:
        """End after the batch that runs, whole, or before the next one has written anything."""
        self._stop.set()
        loop, waiting = self._started(), self.run.waiting
        # Whoever is inside has appended, or will: it gets as far as its record.
        while self._inside.locked():
            waiting.pause(_LOOK_SECONDS)
        last, deadline = self._last, waiting.clock_seconds() + _COMMIT_SECONDS
        while last is not None and loop.is_active and not is_committed(self.run.checkpoint, last.batch):
            if waiting.clock_seconds() > deadline:
                break
            waiting.pause(_LOOK_SECONDS)
        # A batch that begins meanwhile writes nothing.
        loop.stop()

    @property
    def last(self) -> BatchRecord | None:
        """The last batch that was recorded."""
        return self._last

    def _started(self) -> Loop:
        assert self._loop is not None, "it was not started"
        return self._loop

    def _batch(self, frame: Any, number: int) -> None:
        with self._inside:
            try:
                self._run_batch(frame, number)
            except AnewError as error:
                self._failed = error
                raise

    def _run_batch(self, frame: Any, number: int) -> None:
        self._prove(number)
        if self._last is not None and number <= self._last.batch:
            # It is recorded, and Spark could not note it any more: what was appended then is what counts.
            if self.run.keeps_state:
                # Its state was not kept either, and is made again.
                evaluate_frame(frame, self.run.sink)
            return
        run, plan, before = self.run, planned(self.run.checkpoint, number), self._last
        start = self._start() if before is None else before.end
        outputs, letters = self._append(frame, number, spans_between(start, plan.end))
        rows = sum(output.rows for output in outputs)
        record = BatchRecord(
            batch=number,
            epoch=run.epoch,
            start=start,
            end=plan.end,
            outputs=tuple(outputs),
            rows=rows,
            total=rows if before is None else before.total + rows,
            read=behind(start, plan.end),
            dead_letters=tuple(letters),
            dead_total=self._dead + len(letters),
            watermark_ms=plan.watermark_ms,
            planned=plan.digest,
            digest=chained(NO_DIGEST if before is None else before.digest, plan.digest),
            at_ms=run.clock(),
        )
        self.recorder.record(record)
        self._last = record

    def _append(self, frame: Any, number: int, spans: Sequence[Span]) -> tuple[list[TaskOutput], list[DeadLetter]]:
        """Append what the function makes of a batch, without the records that it fails on; these are the second part.

        Raises:
            AnewError: It fails, and not by a record, or none is to be left out.
            Failed: ``too_many_dead_letters``.
        """
        run = self.run
        try:
            return append_frame(frame, run.sink, number, run.epoch), []
        except AnewError as error:
            if run.skipping is None:
                raise
            letters = Search(run.skipping, run.sink, spans, self._dead, self._check_goes_on).at_fault(error)
        self._prove(number)
        rest = run.skipping.part(without(spans, letters))
        return append_frame(rest, run.sink, number, run.epoch), letters

    def _prove(self, number: int) -> None:
        """Prove the lease.

        Raises:
            Stopped: The generation is to stop.
            AnewError: It is another driver's.
        """
        if self._stop.is_set() or not self.recorder.may_append(number):
            self._stop.set()
        self._check_goes_on()

    def _check_goes_on(self) -> None:
        if self._stop.is_set():
            raise Stopped("the batch is not begun, or not appended: the generation is to stop")

    @property
    def _dead(self) -> int:
        """How many records were left out up to the last batch."""
        return 0 if self._last is None else self._last.dead_total

    def _start(self) -> dict[str, Offsets]:
        return {name: dict(reading.start) for name, reading in self.run.readings.items()}
