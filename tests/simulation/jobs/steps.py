"""What can happen in a history of a job, beside what can happen in any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from anew.api.jobs.requests import (
    CreateJob,
    CutOver,
    DropGeneration,
    OfGeneration,
    PlanGeneration,
    RunGeneration,
    UndoRewind,
)
from anew.api.models import BeginRebuild
from anew.api.rebuilds import JobStart
from anew.api.topics import AlterTopic, CreateTopic
from anew.codec.avro import encode_datum
from anew.core.errors import AnewError, Refused
from anew.core.jobs.code import JobCode, Shape
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.job import Job
from anew.core.jobs.plan import DEPLOY, Mode
from anew.core.jobs.starts import start_of
from anew.log.interface import APPEND_RECORDS, TopicPartition
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA
from anew.testing.memory.log import Topic
from tests.simulation.history import KEYS
from tests.simulation.jobs.checks import EVENTS, JobChecks
from tests.simulation.jobs.functions import SHAPES
from tests.simulation.jobs.history import MOST_PARTITIONS, PARTITIONS, SAME
from tests.simulation.jobs.inplace import INPUT
from tests.simulation.jobs.ministream import Sessions
from tests.simulation.jobs.parts import JobClient, launcher
from tests.simulation.network import Halt
from tests.simulation.parts import SimulatedClient
from tests.simulation.scene import KEY, STORE, VALUE, NothingThere
from tests.simulation.steps import Steps
from tests.simulation.world import Process

JOB, SECOND = "delays", "extras"
_T = TypeVar("_T")
_READY_MS = 10_000.0
_CUT_TRIES, _REST_TRIES, _MANY = 10, 20, 60
_NOT_AT_REST = frozenset({"generation_runs", "driver_alive"})
_BURST = 6
_SAME_TIME_MS = 30_000


class JobSteps(Steps):
    """Each public method is a step."""

    checks: JobChecks
    client: JobClient

    def __post_init__(self) -> None:
        """Watch jobs, and let drivers be started."""
        super().__post_init__()
        self.checks = JobChecks(self.machines)
        self.client = JobClient(self.machines, "operator")
        self.sessions = Sessions()
        launcher(self.machines, self._start_driver, self.sessions)

    # -- the input -----------------------------------------------------------------------------------------------------

    def feed(self, keys: tuple[str, ...], ago_ms: int | None, partition: int) -> None:
        """Somebody writes into the input, with given times or the log's."""
        self._feed([(key, f"{key}-{next(self._numbers)}") for key in keys], ago_ms, partition)

    def feed_deletes(self, keys: tuple[str, ...], ago_ms: int | None, partition: int) -> None:
        """Somebody deletes in the input."""
        self._feed([(key, None) for key in keys], ago_ms, partition)

    def burst(self, which: int, partition: int) -> None:
        """Many events at once, all of one time, in two partitions: nothing but their order tells them apart."""
        ago_ms = int(self.world.now_ms) % _SAME_TIME_MS
        for beside in range(2):
            events: list[tuple[str, str | None]] = [
                (KEYS[(which + n) % len(KEYS)], f"b-{next(self._numbers)}") for n in range(_BURST)
            ]
            # Those that were added have their turns, too.
            self._feed(events, ago_ms, (partition + beside) % len(self._input().partitions))

    def grow(self, by: str, keys: tuple[str, ...], ago_ms: int | None) -> None:
        """The input gets one more partition, by ``anew topic alter`` or by an operator of the log, with events (B7)."""
        count = len(self._input().partitions)
        if count >= MOST_PARTITIONS:
            raise NothingThere("the input has many partitions")
        if by == "alter":
            self._again(lambda: self.client.alter_topic(EVENTS, AlterTopic(partitions=count + 1)))
        else:
            log, uid = self.machines.log(self.machines.clock_of(self.writer)), self._input().spec.uid
            self._again(lambda: self._as(self.writer, lambda: log.add_partitions(EVENTS, uid, count + 1)))
        if len(self._input().partitions) > count:
            self._count("partitions added")
            self.feed(keys, ago_ms, count)

    def die_in_batch(self, point: str, which: int, partition: int) -> None:
        """A driver dies at a numbered point of a batch."""
        self.machines.network.doomed["driver"] = point
        self.burst(which, partition)

    def stall_in_batch(self, point: str, ms: int, which: int, partition: int) -> None:
        """A driver stands still at a numbered point of a batch, and another one may take over meanwhile (N8)."""
        self.sessions.stalls[point] = ms
        self.burst(which, partition)

    def stall_task(self, appends: int, ms: int, which: int, partition: int) -> None:
        """A task stands still between two of its appends, for so long that another attempt may be made."""
        self.machines.network.halts["executor"] = Halt(appends, ms)
        self.burst(which, partition)

    def _input(self) -> Topic:
        return self.machines.topics.present[EVENTS]

    def _feed(self, events: list[tuple[str, str | None]], ago_ms: int | None, partition: int) -> None:
        topic = next(iter(self.machines.database.tables.topics.values()))
        at_ms = None if ago_ms is None else int(self.world.now_ms) - ago_ms
        columns: list[Any] = [
            pa.array([at_ms] * len(events), pa.int64()),
            pa.array([b""] * len(events), pa.binary()),
            pa.array([encode_datum(KEY, key) for key, _ in events], pa.binary()),
            pa.array([0 if text is None else topic.value_schema_id for _, text in events], pa.int32()),
            pa.array(
                [None if text is None else encode_datum(VALUE, {"text": text}) for _, text in events], pa.binary()
            ),
        ]
        at = TopicPartition(topic.name, topic.topic_uid, partition, topic.key_schema_id or 0)
        log = self.machines.log(self.machines.clock_of(self.writer))
        self._as(self.writer, lambda: log.append(at, pa.RecordBatch.from_arrays(columns, schema=APPEND_RECORDS)))

    # -- the job -------------------------------------------------------------------------------------------------------

    def make_topic(self) -> None:
        """The input."""
        request = CreateTopic(
            name=EVENTS,
            partitions=PARTITIONS,
            key_schema=KEY_SCHEMA,
            value_schema=VALUE_SCHEMA,
            request_id=self.machines.new_id(),
        )
        self._again(lambda: self.client.create_topic(request))

    def make_job(self, function: str, begin: str) -> None:
        """A job with its first generation."""
        self._create_job(JOB)
        self.rewind(function, begin)

    def second_job(self, function: str, begin: str) -> None:
        """Another job writes into the same store."""
        self._create_job(SECOND)
        self.rewind(function, begin, SECOND)

    def _create_job(self, name: str) -> None:
        if any((j.name, j.deleted_at_ms) == (name, None) for j in self.machines.database.tables.jobs.values()):
            raise NothingThere("there is a job")
        request = CreateJob(
            name=name, output=f"store:{STORE}", inputs={INPUT: EVENTS}, request_id=self.machines.new_id()
        )
        self._again(lambda: self.client.create_job(request))

    def rewind(self, function: str, begin: str, name: str = JOB) -> None:
        """A new generation, which runs as soon as it can."""
        asked = PlanGeneration(
            code=_code(function, f"g{next(self._numbers)}"),
            start=start_of(self._start(begin)),
            max_records=self.history.settings["max_records"] if self._job(name).live is None else _MANY,
        )
        self._begin_asked(asked, name)

    def _begin_asked(self, asked: PlanGeneration, name: str = JOB) -> None:
        plan = self._again(lambda: self.client.plan_generation(name, asked))
        request = BeginRebuild(plan=plan, request_id=self.machines.new_id(), driver="")
        number = self._again(lambda: self.client.begin_rebuild(request, JobStart)).rebuild.generation
        until = self.world.now_ms + _READY_MS
        while self._job(name).generation(number).status is GenerationStatus.PLANNED and self.world.now_ms < until:
            self.world.sleep(500)
        self._again(lambda: self.client.run_job(name, RunGeneration(generation=number)))

    def _start(self, begin: str) -> Any:
        if begin == "ago":
            return f"{self.world.random.randint(1, 40)}s"
        if begin == "where it stands":
            return f"of={JOB}@{self._job().live}"
        if begin != "offsets":
            return begin
        ends = {p: len(partition.rows) for p, partition in enumerate(self._input().partitions)}
        chosen = {p: self.world.random.randint(0, end) for p, end in ends.items()}
        named = chosen.keys() if self.world.random.random() < 0.7 else {0}
        return {INPUT: {p: chosen[p] for p in named}}

    def in_place(self, mode: Mode, function: str, begin: str, keys: tuple[str, ...]) -> None:
        """``anew job deploy --stop`` and ``anew job rewind --simple --stop``: other code in the live one's place."""
        live = self._job().live
        if live is None:
            raise NothingThere("no generation is live")
        if self._job().generation(live).status is GenerationStatus.RUNNING:
            self._again(lambda: self.client.stop_job(JOB, OfGeneration(generation=live)))
        self.feed(keys, None, 1)
        start = None if mode == DEPLOY else start_of(self._start(begin))
        code = None if function == SAME else _code(function, f"g{next(self._numbers)}")
        asked = PlanGeneration(mode=mode, code=code, start=start, max_records=_MANY)
        for attempt in range(_REST_TRIES):
            try:
                self._begin_asked(asked)
            except Refused as error:
                if error.code not in _NOT_AT_REST or attempt == _REST_TRIES - 1:
                    self._again(lambda: self.client.run_job(JOB, RunGeneration(generation=live)))
                    raise
                self.world.sleep(1_500)
            else:
                self._count(f"{mode} in place")
                return

    def cut_by_itself(self, after_ms: int, keys: tuple[str, ...], ms: int) -> None:
        """``anew job cutover --when-caught-up`` or ``--at``; events go on coming meanwhile."""
        planned = CutOver(when_caught_up=True, not_before_ms=int(self.world.now_ms) + after_ms if after_ms else None)
        self._again(lambda: self.client.cut_over(JOB, planned))
        self.feed(keys, None, 1)
        self.world.sleep(ms)

    def reprocess(self, function: str, keys: tuple[str, ...], behind_ms: int, beside: str) -> None:
        """A rewind over everything, with writes and perhaps a repush meanwhile, and the cut-over as soon as may be."""
        self.rewind(function, "oldest")
        if beside != "nothing":
            self.repush(beside)
        self.feed(keys, None, 1)
        self.world.sleep(behind_ms)
        for attempt in range(_CUT_TRIES):
            try:
                self.cut_over(False)
            except Refused as error:
                if error.code not in ("not_caught_up", "not_served", "not_sealed") or attempt == _CUT_TRIES - 1:
                    raise
                self.world.sleep(1_500)
            else:
                self._count("cut over to what was reprocessed")
                return

    def there_and_back(self, function: str, keys: tuple[str, ...], again: bool) -> None:  # noqa: FBT001 - drawn
        """A rewind is cut over to, and back at once; perhaps over again, with writes in between."""
        self.reprocess(function, keys, 1_000, "nothing")
        self.feed(keys, None, 0)
        self.cut_back(True)
        self._count("cut back")
        if again:
            self.feed_deletes(keys, None, 1)
            self.world.sleep(3_000)
            self.cut_over(True)

    def pause_generation(self, which: int, keys: tuple[str, ...], ms: int) -> None:
        """A generation is stopped, and runs again after a while in which its input went on."""
        number = self._generation(which, lambda each: each.status is GenerationStatus.RUNNING).number
        of = OfGeneration(generation=number)
        self.burst(which, which % PARTITIONS)
        self._again(lambda: self.client.stop_job(JOB, of))
        self.feed(keys, None, 1)
        self.world.sleep(ms)
        self._again(lambda: self.client.run_job(JOB, RunGeneration(generation=number)))

    def run_generation(self, which: int) -> None:
        """``anew job run``."""
        number = self._generation(which, lambda each: each.status is not GenerationStatus.RUNNING).number
        self._again(lambda: self.client.run_job(JOB, RunGeneration(generation=number)))

    def stop_generation(self, which: int) -> None:
        """``anew job stop``."""
        number = self._generation(which, lambda each: each.status is GenerationStatus.RUNNING).number
        self._again(lambda: self.client.stop_job(JOB, OfGeneration(generation=number)))

    def drop_generation(self, which: int) -> None:
        """``anew job reclaim``."""
        live = self._job().live
        number = self._generation(which, lambda each: each.number != live).number
        self._again(lambda: self.client.drop_generation(JOB, DropGeneration(generation=number, force=True)))

    def cut_over(self, force: bool) -> None:  # noqa: FBT001 - drawn
        """``anew job cutover``."""
        self._again(lambda: self.client.cut_over(JOB, CutOver(force=force)))

    def cut_back(self, force: bool) -> None:  # noqa: FBT001 - drawn
        """``anew job cutover`` to the generation before."""
        job = self._job()
        before = None if job.live is None else job.generation(job.live).replaces
        if before is None:
            raise NothingThere("nothing was replaced")
        self._again(lambda: self.client.cut_over(JOB, CutOver(generation=before, force=force)))

    def undo(self, force: bool) -> None:  # noqa: FBT001 - drawn
        """``anew job undo``."""
        how = self._again(lambda: self.client.undo_rewind(JOB, UndoRewind(force=force))).how
        self._count(f"undone: {how.value}")

    def delete_job(self) -> None:
        """All generations are stopped, and the job is deleted."""
        job = self._job()
        for generation in job.generations:
            if generation.status is GenerationStatus.RUNNING:
                of = OfGeneration(generation=generation.number)
                self._again(lambda of=of: self.client.stop_job(JOB, of))  # type: ignore[misc]  # bound at once
        self._again(lambda: self.client.delete_job(JOB))

    def remake_job(self, function: str, begin: str) -> None:
        """The job is deleted, and another one gets its name."""
        self.delete_job()
        self.make_job(function, begin)

    def push_over(self, keys: tuple[str, ...]) -> None:
        """A full push takes the place of what the job wrote before it (``--supersede-job``)."""
        self.push(keys, None, False, supersede_job=True)

    def recreate_store(self) -> None:
        """The store is deleted, and another one gets its name (rule R16)."""
        self.client.delete_store(STORE)
        self._create()

    def begin_late(self, function: str) -> None:
        """A job is made, its store is made again, and only then the job is to begin."""
        self.delete_job()
        self._create_job(JOB)
        self.recreate_store()
        self.rewind(function, "oldest")

    # -- what steps share ----------------------------------------------------------------------------------------------

    def _job(self, name: str = JOB) -> Job:
        jobs = self.machines.database.tables.jobs.values()
        job = next((job for job in jobs if (job.name, job.deleted_at_ms) == (name, None)), None)
        if job is None:
            raise NothingThere("there is no job")
        return job

    def _generation(self, which: int, fits: Callable[[Generation], bool]) -> Generation:
        found = [each for each in self._job().generations if not each.over and fits(each)]
        if not found:
            raise NothingThere("there is no such generation")
        return found[-1 - which % len(found)]

    def _drive(self, what: str, act: Callable[[SimulatedClient], object]) -> None:
        """See `Scene._drive`; what is refused is looked at."""

        def watched(driver: SimulatedClient) -> None:
            try:
                act(driver)
            except Refused as error:
                self.checks.refused(error)
                raise

        super()._drive(what, watched)

    def _start_driver(self, name: str, act: Callable[[JobClient], None]) -> None:
        """A process that drives a generation."""
        driver = self.world.process(f"driver-{len(self.drivers)}", "driver")
        self.drivers.append(driver)

        def run() -> None:
            client = JobClient(self.machines, driver.name)
            client.proved = self.checks.proved
            try:
                act(client)
            except AnewError as error:
                self._count("drivers failed")
                self._say(f"{driver.name} ({name}): {error}")
            else:
                self._count("drivers stopped")
            # The process ends with its main thread.
            self.world.kill(driver)

        self.world.spawn(driver, run)

    def _processes(self) -> list[Process]:
        return [*super()._processes(), *self.sessions.executors]

    def _one(self, kind: str, which: int) -> Process:
        found = [p for p in self._processes() if p.kind == kind and not p.dead]
        if not found:
            raise NothingThere(f"no {kind} runs")
        return found[-1 - which % len(found)]


def _code(function: str, tag: str) -> JobCode:
    return JobCode(
        module="jobs",
        function=function,
        archive=tag,
        path=f"jobs/code/{tag}.zip",
        params={"tag": tag},
        shape=Shape.model_validate(SHAPES[function]),
        python="3.11",
        pyspark="4.2.0",
    )
