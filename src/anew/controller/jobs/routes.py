"""The controller's routes for jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Path, Query

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
from anew.api.pages import DEFAULT_ITEMS, Page
from anew.api.rights import OPERATE, READ, READ_ALL, REBUILD, SUBMIT, SUBMIT_ALL_NAMED, takes
from anew.controller.engine.context import Context
from anew.controller.engine.parameters import Actor, After, Limit
from anew.controller.jobs import batches, changing, cutting, views
from anew.controller.jobs.checkpoints import checkpoints_of
from anew.controller.jobs.committed import counted_batches
from anew.controller.jobs.deadletters import dead_letter_page, replay
from anew.controller.jobs.differing import diff_of
from anew.controller.jobs.owning import owned_by
from anew.controller.jobs.planning import plan_generation
from anew.controller.jobs.records import job_named
from anew.controller.jobs.undoing import undo as undo_rewind
from anew.core.jobs.batch import EVERY_BATCH
from anew.core.jobs.plan import JobPlan

Number = Annotated[int, Path(ge=1, le=2**31 - 1)]
Epoch = Annotated[int, Query(ge=0, le=2**31 - 1)]


def add_jobs(app: FastAPI, context: Context) -> None:
    """Jobs themselves."""

    @app.post("/v1/jobs", status_code=201, tags=["jobs"])
    # It reads and writes by name, and runs code with the rights of the cluster: no token for some stores is enough.
    @takes(SUBMIT_ALL_NAMED)
    def create(request: CreateJob, actor: Actor = "anonymous") -> JobView:
        """Make a job."""
        return views.job_view(context, changing.create_job(context, request, actor))

    @app.get("/v1/jobs", tags=["jobs"])
    @takes(READ_ALL)
    def list_jobs(limit: Limit = DEFAULT_ITEMS, after: After = None) -> Page[JobView]:
        """All jobs, by name."""
        return views.job_page(context, after or "", limit)

    @app.get("/v1/jobs/{name}", tags=["jobs"])
    @takes(READ)
    def show(name: str) -> JobView:
        """One job: its generations, where they stand, and how far behind."""
        return views.job_view(context, job_named(context, name))

    @app.get("/v1/jobs/{name}/checkpoints", tags=["jobs"])
    @takes(READ)
    def checkpoints(name: str, generation: Annotated[int | None, Query(ge=1)] = None) -> CheckpointsView:
        """Where the generations of a job stand in their inputs."""
        return checkpoints_of(context, job_named(context, name), generation)

    @app.post("/v1/jobs/{name}/rewind:plan", tags=["jobs"])
    @takes(READ)
    def plan(name: str, request: PlanGeneration) -> JobPlan:
        """What the next generation would be, from where, and what of its history is gone."""
        return plan_generation(context, job_named(context, name), request)

    @app.post("/v1/jobs/{name}/diff", tags=["jobs"])
    @takes(READ)
    def diff(name: str, request: PlanGeneration) -> JobDiff:
        """What the next generation would change, and which ways to it are open; the mode asked for is passed over."""
        return diff_of(context, job_named(context, name), request)

    @app.delete("/v1/jobs/{name}", tags=["jobs"])
    @takes(OPERATE)
    def delete(
        name: str,
        only_empty: bool = False,  # noqa: FBT001, FBT002
        actor: Actor = "anonymous",
    ) -> JobDeleted:
        """Delete a job that is stopped; what its generations own goes after the grace."""
        changing.delete(context, name, actor, only_empty=only_empty)
        return JobDeleted(deleted=name)

    _add_generations(app, context)
    _add_drivers(app, context)


def _add_generations(app: FastAPI, context: Context) -> None:
    """What people ask of generations."""

    @app.post("/v1/jobs/{name}/run", tags=["jobs"])
    @takes(SUBMIT)
    def run(name: str, request: RunGeneration, actor: Actor = "anonymous") -> JobView:
        """Let a generation run."""
        return views.job_view(context, changing.run(context, name, request, actor))

    @app.post("/v1/jobs/{name}/stop", tags=["jobs"])
    @takes(OPERATE)
    def stop(name: str, request: OfGeneration, actor: Actor = "anonymous") -> JobView:
        """Let a generation end after the batch that it is at."""
        return views.job_view(context, changing.stop(context, name, request.generation, actor))

    @app.post("/v1/jobs/{name}/cutover", tags=["jobs"])
    @takes(OPERATE)
    def cut_over(name: str, request: CutOver, actor: Actor = "anonymous") -> CutOverAnswer:
        """Let another generation serve, or go back to the one before: at once, or once it has caught up."""
        return cutting.cut_over(context, name, request, actor)

    @app.delete("/v1/jobs/{name}/cutover", tags=["jobs"])
    @takes(OPERATE)
    def call_off(name: str, actor: Actor = "anonymous") -> JobView:
        """Take a planned cut-over back."""
        return views.job_view(context, cutting.call_off(context, name, actor))

    @app.post("/v1/jobs/{name}/undo", tags=["jobs"])
    @takes(OPERATE)
    def undo(name: str, request: UndoRewind, actor: Actor = "anonymous") -> UndoAnswer:
        """Take the last rewind back."""
        return undo_rewind(context, name, request, actor)

    @app.post("/v1/jobs/{name}/drop", tags=["jobs"])
    @takes(OPERATE)
    def drop(name: str, request: DropGeneration, actor: Actor = "anonymous") -> JobView:
        """Retire a generation that is not live."""
        return views.job_view(context, changing.drop(context, name, request, actor))

    @app.get("/v1/jobs/{name}/dead-letters", tags=["jobs"])
    @takes(READ)
    def dead_letters(
        name: str,
        generation: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
        limit: Limit = DEFAULT_ITEMS,
        after: After = None,
    ) -> Page[DeadLetterView]:
        """The records that a generation of a job, or any, has left out, by their places."""
        return dead_letter_page(context, job_named(context, name), generation, after, limit)

    @app.post("/v1/jobs/{name}/dead-letters:replay", tags=["jobs"])
    @takes(OPERATE)
    def replay_dead_letters(name: str, request: ReplayDeadLetters, actor: Actor = "anonymous") -> ReplayAnswer:
        """Give records of dead letters to their topics again, at the end."""
        return replay(context, job_named(context, name), request, actor)

    @app.get("/v1/jobs/{name}/generations/{number}/owned", tags=["jobs"])
    @takes(READ)
    def owned(name: str, number: Number) -> OwnedParts:
        """What goes with a generation when it is dropped, with sizes."""
        return owned_by(context, job_named(context, name), number)


def _add_drivers(app: FastAPI, context: Context) -> None:
    """What drivers of generations ask and say."""

    @app.get("/v1/rebuilds/{rebuild_id}/order", tags=["jobs"])
    @takes(REBUILD)
    def order(rebuild_id: str, epoch: Epoch) -> RunOrder:
        """What the driver of a generation works with."""
        return batches.order_for(context, rebuild_id, epoch)

    @app.post("/v1/rebuilds/{rebuild_id}/batches", tags=["jobs"])
    @takes(REBUILD)
    def record(rebuild_id: str, request: RecordBatch) -> BatchTaken:
        """A batch was appended whole."""
        return batches.record_batch(context, rebuild_id, request)

    @app.get("/v1/topics/{name}/batches", tags=["jobs"])
    @takes(READ)
    def counted(
        name: str,
        job: str,
        generation: Annotated[int, Query(ge=1)],
        first: Annotated[int, Query(ge=0, le=EVERY_BATCH)] = 0,
    ) -> CountedBatches:
        """Which attempts of a generation's batches count, as its records in a topic name them."""
        return counted_batches(context, name, OfBatches(job=job, generation=generation, first=first))

    @app.post("/v1/rebuilds/{rebuild_id}/ended", status_code=204, tags=["jobs"])
    @takes(REBUILD)
    def ended(rebuild_id: str, request: DriverEnded) -> None:
        """A driver of a generation ends."""
        batches.driver_ended(context, rebuild_id, request)
