"""Stream jobs as a subject of rebuilds: each rebuild is one generation, which runs until it is retired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from anew.api.rebuilds import JobStart
from anew.api.rights import SUBMIT_ALL
from anew.catalog.change import Put, PutJob, PutTopic
from anew.controller.engine.context import Context
from anew.controller.engine.subjects import Begun, Step, Subject
from anew.controller.jobs.archives import CODE, remove_archive
from anew.controller.jobs.batches import NO_LEASE
from anew.controller.jobs.lateness import to_come_ms
from anew.controller.jobs.planning import check_plan, open_output
from anew.controller.jobs.progress import reads_history
from anew.controller.jobs.records import ended_record, job_named, job_of
from anew.core.errors import Refused
from anew.core.feed import Feed
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.job import Job, check_begins, driver_began, in_place, retired, with_generation
from anew.core.jobs.plan import JobPlan
from anew.core.jobs.rebuild import JOB, JobRebuild
from anew.core.rebuild import RebuildStatus
from anew.core.topics.topic import Holder, held


class JobSubject(Subject[JobRebuild, JobPlan]):
    """Jobs."""

    name: ClassVar[str] = JOB
    record = JobRebuild
    plan = JobPlan
    start = JobStart
    # What it names is code, which runs with the rights of the cluster.
    begins = SUBMIT_ALL
    reclaims: ClassVar = {CODE: remove_archive}

    def begin(self, context: Context, plan: JobPlan, opening: Mapping[str, Any]) -> Begun[JobRebuild]:
        """A generation, and its output; one in the live one's place serves at once, and that one is retired.

        Raises:
            Refused: ``plan_outdated``, ``rewind_running``, ``generation_runs``, and what the output refuses.
        """
        job = job_named(context, plan.job)
        _check_fence(job, plan)
        check_begins(job, plan.generation, plan.replaces)
        check_plan(context, job, plan)
        opened = open_output(context, job, plan, str(opening["id"]))
        now_ms = context.clock()
        generation = Generation(
            number=plan.generation,
            status=GenerationStatus.PLANNED,
            since_ms=now_ms,
            created_at_ms=now_ms,
            code=plan.code,
            inputs=plan.inputs,
            start=plan.start,
            rebuild=str(opening["id"]),
            writes_to=opened.where,
            version=opened.version,
            is_whole=plan.is_whole,
            replaces=plan.replaces,
            in_place=plan.in_place,
            stateless=plan.state == "none",
            master=plan.master,
            conf=plan.conf,
            max_records=plan.max_records,
            on_bad_record=plan.on_bad_record,
            dead_letter_limit=plan.dead_letter_limit,
        )
        record = JobRebuild(**{**opening, **NO_LEASE}, job=job.name, job_uid=job.uid, generation=generation.number)
        retired_with: tuple[Put, ...] = ()
        if plan.in_place:
            after = in_place(job, generation, now_ms)
            retired_with = (ended_record(context, job.generation(plan.replaces or 0)),)
        else:
            after = with_generation(job, generation)
        holder = Holder(rebuild=generation.rebuild, name=f"{job.name}@{generation.number}")
        holds = _holds(context, plan, holder) if plan.hold_retention else ()
        detail = {"generation": generation.number, "mode": plan.mode, "from": plan.begins}
        return Begun(record, (PutJob(after, job.revision), *retired_with, *holds, *opened.puts), detail)

    def document(self, context: Context, rebuild: JobRebuild) -> Job:
        """The job."""
        return job_of(context, rebuild)

    def detail(self, rebuild: JobRebuild) -> Mapping[str, object]:
        """The generation."""
        return {"generation": rebuild.generation}

    def finished(self, context: Context, rebuild: JobRebuild) -> Step[JobRebuild]:
        """A generation runs until it is retired.

        Raises:
            Refused: ``generation_runs``.
        """
        raise Refused(
            "generation_runs",
            f"{rebuild.job}@{rebuild.generation} does not end by itself",
            found="finish",
            expected="a stop",
            hint=f"anew job stop {rebuild.job}@{rebuild.generation}",
        )

    def taken_over(self, context: Context, before: JobRebuild, after: JobRebuild) -> Step[JobRebuild]:
        """The new driver goes on behind the last batch that was recorded.

        Raises:
            Refused: ``generation_stopped``.
        """
        if not before.wanted:
            raise Refused(
                "generation_stopped",
                f"{before.job}@{before.generation} is not to run",
                found="stopped",
                expected="a generation that is to run",
                hint=f"anew job run {before.job}@{before.generation}",
            )
        job = job_of(context, before)
        return after, (PutJob(driver_began(job, before.generation), job.revision),)

    def ended(self, context: Context, before: JobRebuild, ended: JobRebuild) -> tuple[Put, ...]:
        """The generation is retired with its record, and its output closed.

        Raises:
            Refused: ``generation_live``.
        """
        job = job_of(context, before)
        generation = job.generation(before.generation)
        if generation.over:
            return ()
        output = context.outputs.of_kind(job.output.kind)
        after = retired(job, generation.number, context.clock())
        return PutJob(after, job.revision), *output.close(context, job.output.name, (generation.writes_to,))

    def after_silence(self, rebuild: JobRebuild, left_seconds: int) -> tuple[str, str]:
        """The next round starts another one."""
        return "another one is started", f"anew job logs {rebuild.job}@{rebuild.generation}"

    def reads_history(self, context: Context, rebuild: JobRebuild) -> bool:
        """Until the generation has caught up with its inputs, or is over."""
        return reads_history(context, rebuild)

    def lost(self, context: Context, rebuild: JobRebuild) -> bool:
        """The next round starts another driver."""
        return True

    def to_come_ms(self, context: Context, feeds: Sequence[Feed]) -> dict[str, int]:
        """What jobs declare of the generations that write into feeds, and where they stand."""
        return to_come_ms(context, feeds)

    def stops(self, rebuild: JobRebuild) -> bool:
        """Where somebody stopped the generation."""
        return not rebuild.wanted

    def turns_away(self, rebuild: JobRebuild) -> bool:
        """Once it has ended or was given up: a late sign of life would keep the next driver from its work."""
        return not rebuild.driver

    def uid_of(self, context: Context, name: str) -> str:
        """See `Subject.uid_of`."""
        return job_named(context, name).uid

    def well_since(self, context: Context) -> Mapping[str, int]:
        """When each was made."""
        return {job.name: job.created_at_ms for job in context.catalog.jobs()}

    def view(self, context: Context, rebuild: JobRebuild) -> dict[str, Any]:
        """Which generation of which job."""
        return {"generation": rebuild.generation, "ledger": None}

    def again(self, rebuild: JobRebuild) -> str:
        """See `Subject.again`."""
        return f"begin another one: anew job rewind {rebuild.job}"


def retired_status(generation: Generation) -> RebuildStatus:
    """How the record of a generation ends that is retired."""
    return RebuildStatus.FAILED if generation.status is GenerationStatus.FAILED else RebuildStatus.SUCCEEDED


def _holds(context: Context, plan: JobPlan, holder: Holder) -> tuple[Put, ...]:
    """The topics of a plan's inputs, which forget nothing that its generation needs."""
    topics = (context.catalog.topic(name) for name in sorted({of.topic for of in plan.inputs}))
    return tuple(PutTopic(held(topic, holder), topic.revision) for topic in topics if topic is not None)


def _check_fence(job: Job, plan: JobPlan) -> None:
    if (job.uid, job.live) != (plan.fence.job_uid, plan.fence.live):
        raise Refused(
            "plan_outdated",
            "what the plan was made from has changed",
            found=f"{job.name} {job.uid}, live {job.live}",
            expected=f"{plan.fence.job_uid}, live {plan.fence.live}",
            hint="make a new plan",
        )
