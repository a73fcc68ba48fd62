"""What jobs add to the parts: a client that asks about them, and drivers that the controller starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from anew.api.http import ControllerClient
from anew.api.jobs.requests import (
    CreateJob,
    CutOver,
    DriverEnded,
    DropGeneration,
    OfGeneration,
    PlanGeneration,
    RecordBatch,
    RunGeneration,
    RunOrder,
    UndoRewind,
)
from anew.api.jobs.views import BatchTaken, CutOverAnswer, JobDeleted, JobView, UndoAnswer
from anew.api.models import Heartbeat, HeartbeatAnswer
from anew.api.topics import AlterTopic, CreateTopic, TopicView
from anew.controller.engine.context import Context
from anew.controller.jobs import batches, changing, cutting, views
from anew.controller.jobs.planning import plan_generation
from anew.controller.jobs.records import job_named
from anew.controller.jobs.undoing import undo
from anew.controller.topics import changing as topics
from anew.controller.topics.views import topic_view
from anew.core.errors import NotFound
from anew.core.jobs.generation import Generation
from anew.core.jobs.plan import JobPlan
from anew.deepstore.open import open_deep_store
from anew.rebuild.jobs.calling import Loaded
from anew.rebuild.jobs.driving import Driving, Prepared, drive
from anew.rebuild.patience import Waiting
from anew.spark.jobs import sink, source
from anew.spark.jobs.decoding import InputTask
from anew.spark.jobs.source import Reading
from tests.simulation.jobs.ministream import Sessions, frame_of, start_mini
from tests.simulation.network import NONE
from tests.simulation.parts import _ASKED, _TOLD, Machines, SimulatedClient
from tests.simulation.tasks import TaskLease
from tests.simulation.world import Task

_T = TypeVar("_T")
_PATIENCE_SECONDS = 15.0
_START_MS = 2_000.0
_NEVER_STARTED = 0.1


class JobClient(SimulatedClient):
    """The controller as people and drivers of jobs ask it.

    Attributes:
        proved: Is told of each batch for which a driver was answered that it may append: (rebuild, epoch, batch).
        signs: The tasks that give signs of life, which prove nothing for a batch.
    """

    def __init__(self, machines: Machines, actor: str) -> None:
        """Ask as somebody."""
        super().__init__(machines, actor)
        self.proved: Callable[[str, int, int], None] = lambda _rebuild, _epoch, _batch: None
        self.signs: set[Task | None] = set()

    def create_topic(self, request: CreateTopic) -> TopicView:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: topic_view(c, topics.create_topic(c, request, self._actor)))

    def alter_topic(self, name: str, request: AlterTopic) -> TopicView:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: topic_view(c, topics.alter_topic(c, name, request, self._actor)))

    def create_job(self, request: CreateJob) -> JobView:
        """See `ControllerClient`."""
        return self._viewed(lambda c: changing.create_job(c, request, self._actor))

    def job(self, name: str) -> JobView:
        """See `ControllerClient`."""
        return self._ask(_ASKED, lambda c: views.job_view(c, job_named(c, name)))

    def plan_generation(self, name: str, request: PlanGeneration) -> JobPlan:
        """See `ControllerClient`."""
        return self._ask(_ASKED, lambda c: plan_generation(c, job_named(c, name), request))

    def run_job(self, name: str, request: RunGeneration) -> JobView:
        """See `ControllerClient`."""
        return self._viewed(lambda c: changing.run(c, name, request, self._actor))

    def stop_job(self, name: str, request: OfGeneration) -> JobView:
        """See `ControllerClient`."""
        return self._viewed(lambda c: changing.stop(c, name, request.generation, self._actor))

    def cut_over(self, name: str, request: CutOver) -> CutOverAnswer:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: cutting.cut_over(c, name, request, self._actor))

    def undo_rewind(self, name: str, request: UndoRewind) -> UndoAnswer:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: undo(c, name, request, self._actor))

    def drop_generation(self, name: str, request: DropGeneration) -> JobView:
        """See `ControllerClient`."""
        return self._viewed(lambda c: changing.drop(c, name, request, self._actor))

    def delete_job(self, name: str, *, only_empty: bool = False) -> JobDeleted:
        """See `ControllerClient`."""

        def act(context: Context) -> JobDeleted:
            changing.delete(context, name, self._actor, only_empty=only_empty)
            return JobDeleted(deleted=name)

        return self._ask(_TOLD, act)

    def run_order(self, rebuild_id: str, epoch: int) -> RunOrder:
        """See `ControllerClient`."""
        return self._ask(_ASKED, lambda c: batches.order_for(c, rebuild_id, epoch))

    def record_batch(self, rebuild_id: str, request: RecordBatch) -> BatchTaken:
        """See `ControllerClient`."""
        return self._ask(_TOLD, lambda c: batches.record_batch(c, rebuild_id, request))

    def driver_ended(self, rebuild_id: str, request: DriverEnded) -> None:
        """See `ControllerClient`."""
        self._ask(_TOLD, lambda c: batches.driver_ended(c, rebuild_id, request))

    def heartbeat(self, rebuild_id: str, request: Heartbeat) -> HeartbeatAnswer:
        """See `ControllerClient`."""
        answer = super().heartbeat(rebuild_id, request)
        if self._machines.world.current not in self.signs and not (answer.kill_asked or answer.stop_asked):
            self.proved(rebuild_id, request.epoch, request.progress.done)
        return answer

    def _viewed(self, act: Callable[[Context], Any]) -> JobView:
        return self._ask(_TOLD, lambda c: views.job_view(c, act(c)))


class JobLease(TaskLease):
    """A lease whose signs of life are told from those before a batch."""

    def __init__(self, machines: Machines, controller: ControllerClient, rebuild_id: str, epoch: int) -> None:
        """Prepare."""
        super().__init__(machines.world, controller, rebuild_id, epoch)
        self._machines = machines

    def _go_on(self) -> None:
        if isinstance(self._controller, JobClient):
            self._controller.signs.add(self._machines.world.current)
        super()._go_on()


def drive_generation(machines: Machines, client: JobClient, name: str, sessions: Sessions) -> None:
    """What the process does that a controller starts for ``JOB@NUMBER``.

    Raises:
        AnewError: Why it ended.
    """
    job, _, number = name.partition("@")
    found = next((each for each in client.job(job).generations if each.number == int(number)), None)
    if found is None:
        raise NotFound("unknown_generation", f"{job} has no such generation", found=number)
    world = machines.world
    process = world.acting
    driving = Driving(
        controller=client,
        session=_no_session,
        deep_store=lambda root: open_deep_store(root),
        driver=process.name,
        clock=machines.clock_of(process),
        patience_seconds=_PATIENCE_SECONDS,
        waiting=Waiting(machines.seconds, lambda seconds: world.sleep(seconds * 1000)),
        lease=lambda controller, rebuild_id, epoch: JobLease(machines, controller, rebuild_id, epoch),
        prepare=lambda of, generation, _store: _prepared(machines, of, generation, sessions),
        in_time=nullcontext,
    )
    drive(found.rebuild, driving)


@contextmanager
def _prepared(machines: Machines, driving: Driving, generation: Generation, sessions: Sessions) -> Iterator[Prepared]:
    """A generation on the small batch loop."""
    location = driving.patiently(lambda: driving.controller.cluster(generation.inputs[0].fabric)).log
    found = {
        of.name: Reading(InputTask(location, of), generation.start[of.name], generation.max_records)
        for of in generation.inputs
    }
    frame = frame_of(machines, generation, found, sessions)
    yield Prepared(frame, _function(), found, start_mini, frame.part)


def _function() -> Loaded:
    def never(**_frames: object) -> Any:
        raise AssertionError("frames of this world are made by `frame_of`")

    return Loaded(never, (), {})


def _no_session(*_arguments: object) -> Any:
    raise AssertionError("there is no Spark here")


def job_replacements(machines: Machines) -> dict[Any, Any]:
    """Logs of tasks: of the process that runs the task, and not kept beyond a history."""

    def log_of(_what: object) -> Any:
        return machines.log(machines.clock_of(machines.world.acting))

    # Real threads know nothing of this world's time: what a task appends is appended before it goes on.
    at_once = _AtOnce()
    return {sink._log_of: log_of, source._log_of: log_of, sink._appending: lambda: at_once}


class _AtOnce(Executor):
    """Does what it is given at once, in whoever gives it."""

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """See `Executor`."""
        done: Future[_T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as executors do: whoever asks for the result is told
            done.set_exception(error)
        return done


def launcher(
    machines: Machines, started: Callable[[str, Callable[[JobClient], None]], None], sessions: Sessions
) -> None:
    """Let controllers start drivers of jobs, each after a while, as processes of their own."""

    def launch(_kind: str, name: str, _request_id: str) -> None:
        def act(client: JobClient) -> None:
            world = machines.world
            world.sleep(world.random.random() * _START_MS)
            if machines.network.faults.get("driver", NONE).crash and world.random.random() < _NEVER_STARTED:
                world.kill(world.acting)
            world.check_alive()
            drive_generation(machines, client, name, sessions)

        started(name, act)

    machines.launch = launch
