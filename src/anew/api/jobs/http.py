"""What a controller can be asked about jobs: one method per route."""

from __future__ import annotations

from itertools import islice

from anew.api.calling import Call, Calls, path_of
from anew.api.jobs.requests import (
    CreateJob,
    CutOver,
    DriverEnded,
    DropGeneration,
    OfBatches,
    OfGeneration,
    PlanGeneration,
    RecordBatch,
    ReplayDeadLetters,
    RunGeneration,
    RunOrder,
    UndoRewind,
)
from anew.api.jobs.views import (
    BatchTaken,
    CheckpointsView,
    CountedBatches,
    CutOverAnswer,
    DeadLetterView,
    JobDeleted,
    JobDiff,
    JobView,
    OwnedParts,
    ReplayAnswer,
    UndoAnswer,
)
from anew.api.pages import Page
from anew.api.wire import Request
from anew.core.jobs.plan import JobPlan


class JobCalls(Calls):
    """The part of `anew.api.http.ControllerClient` that is about jobs."""

    def create_job(self, request: CreateJob) -> JobView:
        """Make a job; its view."""
        return self._as(JobView, Call("POST", "/v1/jobs", request, look_up=f"anew job show {request.name}"))

    def jobs(self) -> list[JobView]:
        """The views of all jobs, by name."""
        return sorted(self._all(Page[JobView], Call("GET", "/v1/jobs")), key=lambda job: job.name)

    def job(self, name: str) -> JobView:
        """The view of one job."""
        return self._as(JobView, Call("GET", path_of("jobs", name)))

    def checkpoints(self, name: str, generation: int | None = None) -> CheckpointsView:
        """Where the generations of a job stand in their inputs, or one of them."""
        query = {} if generation is None else {"generation": generation}
        return self._as(CheckpointsView, Call("GET", path_of("jobs", name, "checkpoints"), query=query))

    def plan_generation(self, name: str, request: PlanGeneration) -> JobPlan:
        """What a rewind would begin now; nothing is made."""
        return self._as(JobPlan, Call("POST", path_of("jobs", name, "rewind:plan"), request))

    def job_diff(self, name: str, request: PlanGeneration) -> JobDiff:
        """What the next generation would change, and which ways to it are open; nothing is made."""
        return self._as(JobDiff, Call("POST", path_of("jobs", name, "diff"), request))

    def job_dead_letters(self, name: str, generation: int | None, limit: int) -> list[DeadLetterView]:
        """The first records that a generation of a job, or (None) any, has left out, at most so many."""
        query: dict[str, str | int] = {} if generation is None else {"generation": generation}
        call = Call("GET", path_of("jobs", name, "dead-letters"), query=query)
        return list(islice(self._all(Page[DeadLetterView], call), limit))

    def replay_dead_letters(self, name: str, request: ReplayDeadLetters) -> ReplayAnswer:
        """Give records of dead letters to their topics again; repeated, it goes on with those that were not yet."""
        call = Call(
            "POST", path_of("jobs", name, "dead-letters:replay"), request, look_up=f"anew job dead-letters {name}"
        )
        return self._as(ReplayAnswer, call)

    def run_job(self, name: str, request: RunGeneration) -> JobView:
        """Let a generation run; the job's view."""
        return self._as(JobView, self._of_job(name, "run", request))

    def stop_job(self, name: str, request: OfGeneration) -> JobView:
        """Let a generation end after the batch that it is at; the job's view."""
        return self._as(JobView, self._of_job(name, "stop", request))

    def cut_over(self, name: str, request: CutOver) -> CutOverAnswer:
        """Let another generation serve."""
        return self._as(CutOverAnswer, self._of_job(name, "cutover", request))

    def undo_rewind(self, name: str, request: UndoRewind) -> UndoAnswer:
        """Take the last rewind back."""
        return self._as(UndoAnswer, self._of_job(name, "undo", request))

    def drop_generation(self, name: str, request: DropGeneration) -> JobView:
        """Retire a generation that is not live; the job's view."""
        return self._as(JobView, self._of_job(name, "drop", request))

    def owned_by_generation(self, name: str, number: int) -> OwnedParts:
        """What goes with a generation when it is dropped, with sizes."""
        return self._as(OwnedParts, Call("GET", path_of("jobs", name, "generations", str(number), "owned")))

    def delete_job(self, name: str, *, only_empty: bool = False) -> JobDeleted:
        """Delete a job that is stopped, or (``only_empty``) one without a generation."""
        query = {"only_empty": True} if only_empty else {}
        return self._as(JobDeleted, Call("DELETE", path_of("jobs", name), query=query, look_up="anew job list"))

    def run_order(self, rebuild_id: str, epoch: int) -> RunOrder:
        """What the driver of a generation works with."""
        return self._as(RunOrder, Call("GET", path_of("rebuilds", rebuild_id, "order"), query={"epoch": epoch}))

    def record_batch(self, rebuild_id: str, request: RecordBatch) -> BatchTaken:
        """Keep what a batch did; repeating the same is the same."""
        look_up = f"anew rebuild show {rebuild_id}"
        return self._as(BatchTaken, Call("POST", path_of("rebuilds", rebuild_id, "batches"), request, look_up=look_up))

    def counted_batches(self, topic: str, asked: OfBatches) -> CountedBatches:
        """Which attempts of the batches of a generation count that writes into a topic."""
        call = Call("GET", path_of("topics", topic, "batches"), query=asked.model_dump())
        return self._as(CountedBatches, call)

    def driver_ended(self, rebuild_id: str, request: DriverEnded) -> None:
        """Say that a driver ends; repeating it is harmless."""
        self._send(Call("POST", path_of("rebuilds", rebuild_id, "ended"), request, look_up="anew job list"))

    def call_off_cut_over(self, name: str) -> JobView:
        """Take a planned cut-over back."""
        return self._as(JobView, Call("DELETE", path_of("jobs", name, "cutover")))

    def _of_job(self, name: str, what: str, request: Request) -> Call:
        return Call("POST", path_of("jobs", name, what), request, look_up=f"anew job show {name}")
