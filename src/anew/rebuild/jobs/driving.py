"""The driver of a generation: under its lease, from the last recorded batch, until it is to stop.

1. ``resume`` takes the generation over under a greater epoch. A crash after it: the lease ends, and the controller
   starts another driver.
2. The code is fetched and proved, the checkpoint compared with the records of batches, the query started.
3. Batches run (`anew.rebuild.jobs.running`).
4. The driver says why it ends. A crash before it: the lease ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from anew.api.http import ControllerClient
from anew.api.jobs.place import OutputPlace
from anew.api.jobs.requests import DriverEnded, RecordBatch, RunOrder
from anew.api.models import Heartbeat, ResumeRebuild
from anew.api.rebuilds import JobStart
from anew.core.errors import AnewError, Failed, InvalidRequest, Refused, Unreachable
from anew.core.jobs.batch import BatchRecord
from anew.core.jobs.code import Environment, JobCode
from anew.core.jobs.generation import Generation
from anew.core.jobs.inputs import JobInput, Span
from anew.core.jobs.job import check_environment
from anew.core.jobs.places import folder_of
from anew.core.jobs.state import DEFAULT_STATE_PARTITIONS, STATE_PARTITIONS, no_skipping, not_carried
from anew.core.rebuild import Progress, Stage
from anew.deepstore.interface import DeepStore
from anew.rebuild.jobs.archive import Unpacked, environment_here, python_files, unpack
from anew.rebuild.jobs.calling import Loaded, load
from anew.rebuild.jobs.faults import Skipping
from anew.rebuild.jobs.running import Batches, GenerationRun, checked_frame, part_frame
from anew.rebuild.jobs.streaming import StartLoop, start_on_spark
from anew.rebuild.lease import Lease
from anew.rebuild.patience import Waiting, patiently
from anew.spark.folders import held_folder
from anew.spark.jobs.decoding import InputTask, json_fields
from anew.spark.jobs.sink import SinkTask
from anew.spark.jobs.source import Reading
from anew.spark.session import SparkSession, send_modules

_T = TypeVar("_T")
_LOG = structlog.get_logger("anew.jobs")
_TURNED_AWAY = frozenset({"epoch_outdated", "rebuild_ended", "generation_stopped"})
_STAYS = frozenset(
    {
        "output_misfit",
        "input_unreadable",
        "input_expired",
        "checkpoint_unreadable",
        "code_damaged",
        "record_failed",
        "too_many_dead_letters",
    }
)
"""Of failures: those after which another driver would come to the same end. All others may pass."""
_MAY_PASS = frozenset(
    {
        *("driver_alive", "revision_conflict", "batch_gap", "output_not_made"),
        *("token_missing", "token_unknown", "token_expired", "not_allowed"),
    }
)
"""Likewise of refusals: those that may pass. A token is changed while generations run."""
_SETTINGS = {STATE_PARTITIONS: str(DEFAULT_STATE_PARTITIONS)}
_LOOK_SECONDS = 0.2
_STOP_SECONDS, _HUNG = 300.0, 70
"""A batch that takes longer than this once it is to be the last one is not waited for."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a generation's batches are made of.

    Attributes:
        frame: What its function makes of its inputs.
        function: Its function.
        readings: Input → how it is read.
        start_loop: Starts the batches of the frame.
        part: See `Skipping.part`.
        state: The operators of the function that keep state.
    """

    frame: Any
    function: Loaded
    readings: Mapping[str, Reading]
    start_loop: StartLoop
    part: Callable[[Sequence[Span]], Any]
    state: tuple[str, ...] = ()


@contextmanager
def on_spark(driving: Driving, generation: Generation, deep_store: DeepStore) -> Iterator[Prepared]:
    """A generation on Spark: its code is fetched and proved, and its frame checked.

    Raises:
        InvalidRequest: See `unpack`, `load` and `checked_frame`.
    """
    with (
        fetched(deep_store, generation.code) as (unpacked, archive),
        driving.session(generation.master, {**_SETTINGS, **generation.conf}) as spark,
        send_modules(spark, python_files(archive)),
    ):
        function = load(generation.code, unpacked, [of.name for of in generation.inputs])
        found = readings(driving.controller, generation, spark)
        part = partial(part_frame, spark, function, found)
        frame = checked_frame(spark, function, found)
        yield Prepared(frame, function, found, start_on_spark, part, frame.state)


@contextmanager
def _ended_when_overdue() -> Iterator[None]:
    """End this process unless the block has ended in time: a function that hangs is left behind with it."""
    overdue = threading.Timer(_STOP_SECONDS, os._exit, (_HUNG,))
    overdue.daemon = True
    overdue.start()
    yield
    overdue.cancel()


@dataclass(frozen=True, slots=True)
class Driving:
    """What the driver of a generation needs.

    Attributes:
        controller: The controller.
        session: A Spark session on a master (None: all local cores) with settings, for as long as it is needed.
        deep_store: Opens the deep store at a root.
        driver: Who drives, for people.
        clock: The time in ms.
        patience_seconds: How long the controller may be away.
        environment: What the driver runs in.
        waiting: How the driver waits.
        lease: Makes the lease of a rebuild and an epoch.
        prepare: Makes a generation's frame, for as long as it is needed.
        in_time: Watches over a stop, which may never end.
    """

    controller: ControllerClient
    session: Callable[[str | None, Mapping[str, str]], AbstractContextManager[SparkSession]]
    deep_store: Callable[[str], DeepStore]
    driver: str
    clock: Callable[[], int]
    patience_seconds: float
    environment: Environment = field(default_factory=environment_here)
    waiting: Waiting = field(default_factory=Waiting)
    lease: Callable[[ControllerClient, str, int], Lease] = Lease
    prepare: Callable[[Driving, Generation, DeepStore], AbstractContextManager[Prepared]] = on_spark
    in_time: Callable[[], AbstractContextManager[None]] = _ended_when_overdue

    def patiently(self, ask: Callable[[], _T]) -> _T:
        """See `anew.rebuild.patience.patiently`."""
        return patiently(ask, self.patience_seconds, self.waiting.clock_seconds, self.waiting.pause)


def drive(rebuild_id: str, driving: Driving) -> None:
    """Drive a generation until it is to stop; the controller is told why it ends.

    Raises:
        Refused: ``driver_alive``, ``generation_stopped``, ``rebuild_ended``: nothing was begun.
        AnewError: Why it ended.
    """
    start = driving.controller.resume_rebuild(rebuild_id, ResumeRebuild(driver=driving.driver), JobStart)
    epoch = start.rebuild.epoch
    _LOG.info("generation_driven", job=start.rebuild.job, generation=start.rebuild.generation, epoch=epoch)
    recorder = _Recorder(driving, rebuild_id, epoch)
    try:
        with driving.lease(driving.controller, rebuild_id, epoch) as lease:
            _run(driving, recorder, lease)
    except AnewError as error:
        if error.code not in _TURNED_AWAY:
            recorder.ended(error)
        raise
    except BaseException as error:
        recorder.ended(Failed("driver_broke", f"{type(error).__name__}: {error}"))
        raise
    recorder.ended(None)


@dataclass(slots=True)
class _Recorder:
    """The controller, as the batches of one epoch see it."""

    driving: Driving
    rebuild_id: str
    epoch: int

    def may_append(self, batch: int) -> bool:
        """See `Recorder.may_append`: asked of the controller for each batch, whatever was heard a moment ago."""
        beat = Heartbeat(epoch=self.epoch, stage=Stage.BUILD, progress=Progress(done=batch, unit="batches"))
        answer = self.driving.patiently(lambda: self.driving.controller.heartbeat(self.rebuild_id, beat))
        return not (answer.kill_asked or answer.stop_asked)

    def record(self, record: BatchRecord) -> None:
        """See `Recorder.record`."""
        request = RecordBatch(epoch=self.epoch, record=record)
        self.driving.patiently(lambda: self.driving.controller.record_batch(self.rebuild_id, request))
        letters = len(record.dead_letters)
        _LOG.info("batch_recorded", batch=record.batch, rows=record.rows, dead_letters=letters, epoch=self.epoch)

    def order(self) -> RunOrder:
        """What is to be run."""
        return self.driving.patiently(lambda: self.driving.controller.run_order(self.rebuild_id, self.epoch))

    def ended(self, error: AnewError | None) -> None:
        """Say why the driver ends; where nobody answers the lease's end says as much."""
        for_good = error is not None and is_for_good(error)
        told = DriverEnded(epoch=self.epoch, error=None if error is None else str(error), for_good=for_good)
        try:
            self.driving.patiently(lambda: self.driving.controller.driver_ended(self.rebuild_id, told))
        except AnewError as unheard:
            _LOG.warning("driver_end_untold", **unheard.to_json())


def _run(driving: Driving, recorder: _Recorder, lease: Lease) -> None:
    order = recorder.order()
    generation = order.job.generation(order.generation)
    check_environment(generation, driving.environment, f"{order.job.name}@{generation.number}")
    if driving.environment != generation.code.environment:
        _LOG.warning("environment_differs", found=str(driving.environment), code=str(generation.code.environment))
    home = driving.patiently(lambda: driving.controller.cluster(order.job.fabric))
    with driving.prepare(driving, generation, driving.deep_store(home.deep_store)) as prepared:
        if prepared.state and generation.stateless:
            raise not_carried(order.job.name, prepared.state)
        if prepared.state and generation.most_dead_letters > 0:
            raise no_skipping(prepared.state)
        run = GenerationRun(
            function=prepared.function,
            readings=prepared.readings,
            sink=_sink(driving, order, generation),
            epoch=recorder.epoch,
            checkpoint=checkpoint_of(home.deep_store, order.job.uid, generation.number),
            records=order.batches,
            clock=driving.clock,
            start_loop=prepared.start_loop,
            waiting=driving.waiting,
            skipping=Skipping(generation.most_dead_letters, prepared.part),
            keeps_state=bool(prepared.state),
        )
        batches = Batches(run, recorder)
        batches.start(prepared.frame)
        stopper = threading.Event()
        lease.enter(Stage.BUILD, lambda: _progress(batches), stopper.set)
        while not batches.wait(_LOOK_SECONDS):
            if stopper.is_set():
                with driving.in_time():
                    batches.stop()
            elif lease.silent_seconds > driving.patience_seconds:
                # Nobody is there to follow for: whoever comes back starts another driver.
                with driving.in_time():
                    batches.stop()
                raise _nobody_there(lease.silent_seconds)


def _nobody_there(seconds: float) -> Unreachable:
    return Unreachable(
        "controller_unreachable",
        "the controller does not answer",
        found=f"no answer for {seconds:.0f} s",
        expected="an answer to a sign of life",
        hint="once it is back it starts another driver",
    )


@contextmanager
def fetched(deep_store: DeepStore, code: JobCode) -> Iterator[tuple[Unpacked, bytes]]:
    """The code of a generation on this machine, and its archive, while the block runs."""
    archive = deep_store.get(code.path)
    with held_folder("code") as folder:
        yield unpack(code, archive, folder), archive


def readings(controller: ControllerClient, generation: Generation, spark: SparkSession) -> dict[str, Reading]:
    """How the inputs of a generation are read."""
    # Of several inputs each gets its share of a batch.
    most = max(1, generation.max_records // len(generation.inputs))
    return {
        of.name: Reading(input_task(controller, of, spark), generation.start[of.name], most) for of in generation.inputs
    }


def input_task(controller: ControllerClient, of: JobInput, spark: SparkSession) -> InputTask:
    """What the tasks that read an input are given."""
    return InputTask(controller.cluster(of.fabric).log, of, json_fields(spark, of.columns))


def checkpoint_of(root: str, job_uid: str, generation: int) -> Path:
    """Where Spark keeps the checkpoint of a generation.

    Raises:
        Refused: ``checkpoint_not_local``: the deep store is no directory.
    """
    if "://" in root:
        raise Refused(
            "checkpoint_not_local",
            "the checkpoints of jobs lie in the deep store, and this one is no directory",
            found=root,
            expected="a directory that driver and executors share",
            hint="jobs on other deep stores are not supported yet",
        )
    return Path(root) / folder_of(job_uid, generation) / "checkpoint"


def _sink(driving: Driving, order: RunOrder, generation: Generation) -> SinkTask:
    place: OutputPlace = order.place
    return SinkTask(
        location=driving.controller.cluster(place.fabric).log,
        topic=place.topic,
        uid=place.topic_uid,
        partitions=place.partitions,
        key_schema=place.key_schema,
        value_schema=place.value_schema,
        schema_id=place.value_schema_id,
        key_schema_id=place.key_schema_id,
        origin=order.job.origin_of(generation.number),
        skew_limit_ms=place.skew_limit_ms,
        clock=driving.clock,
    )


def _progress(batches: Batches) -> Progress:
    last = batches.last
    done = 0 if last is None else last.batch + 1
    return Progress(done=done, total=0, unit="batches", records=0 if last is None else last.rows)


def is_for_good(error: AnewError) -> bool:
    """Whether another driver would come to the same end."""
    if isinstance(error, InvalidRequest | Refused):
        return error.code not in _MAY_PASS
    return error.code in _STAYS
