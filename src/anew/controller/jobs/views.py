"""The ``job`` shape: a job's generations, where each stands, and how long it has to go."""

from __future__ import annotations

from collections.abc import Mapping

from anew.api.jobs.views import GenerationView, JobView
from anew.api.models import Problem
from anew.api.pages import Page, page_of
from anew.controller.engine.context import Context
from anew.controller.jobs.looks import ends_of, looks_of
from anew.core.errors import AnewError
from anew.core.jobs.batch import BatchRecord, behind
from anew.core.jobs.inputs import Offsets
from anew.core.jobs.job import LOOKS_TO_CATCH_UP, Generation, GenerationStatus, Job
from anew.core.jobs.rebuild import JobRebuild

_PACE_BATCHES = 20
"""From how many of the last batches the pace is taken."""


def job_view(context: Context, job: Job) -> JobView:
    """The ``job`` shape."""
    live = None if job.live is None else job.generation(job.live)
    running = any(each.status is GenerationStatus.RUNNING for each in job.generations)
    newest = job.generations[-1].status.value if job.generations else "planned"
    return JobView(
        name=job.name,
        status="running" if running else newest,
        live=job.live,
        code=None if live is None else live.code.hash,
        inputs=job.inputs,
        output=str(job.output),
        generations=tuple(_generation_view(context, job, each) for each in job.generations),
    )


def job_page(context: Context, after: str, limit: int) -> Page[JobView]:
    """The ``job`` shape of some jobs, the next ones by name."""
    found = page_of(context.catalog.jobs_page(after, limit + 1), limit, lambda job: job.name)
    return Page(items=tuple(job_view(context, job) for job in found.items), next=found.next)


def job_problems(context: Context, job: Job) -> list[Problem]:
    """What is wrong with a job's generations, since when, and what comes next."""
    return [
        Problem(
            what=f"{job.name}@{each.number} "
            + ("failed" if each.status is GenerationStatus.FAILED else "does not get on")
            + f": {each.error}",
            since_ms=each.since_ms,
            hint=f"anew job logs {job.name}@{each.number}; once it is mended: anew job run {job.name}@{each.number}",
        )
        for each in job.generations
        if each.error is not None and not each.over
    ]


def _generation_view(context: Context, job: Job, generation: Generation) -> GenerationView:
    batches = context.catalog.batches(job.uid, generation.number, _PACE_BATCHES)
    record = context.catalog.rebuild(generation.rebuild)
    driven = isinstance(record, JobRebuild) and bool(record.driver) and context.clock() <= record.lease_until_ms
    positions = batches[-1].end if batches else generation.start
    pace = _pace(batches)
    lag = None if generation.over else _lag(context, generation, positions)
    return GenerationView(
        number=generation.number,
        status=generation.status.value,
        driver=driven,
        code=generation.code.hash,
        entry=generation.code.entry,
        start=generation.start,
        state="empty",
        source="anew",
        positions=positions,
        lag_records=lag,
        records_per_s=pace,
        seconds_left=_seconds_left(lag, pace),
        caught_up=looks_of(context, job, generation.number) >= LOOKS_TO_CATCH_UP,
        applied=None if generation.over else _applied(context, job, generation),
        batch=batches[-1].batch if batches else None,
        rows=sum(record.rows for record in batches),
        version=generation.version,
        rebuild=generation.rebuild,
        error=generation.error,
        created_at_ms=generation.created_at_ms,
    )


def _lag(context: Context, generation: Generation, positions: Mapping[str, Offsets]) -> int | None:
    try:
        return behind(positions, ends_of(context, generation))
    except AnewError:
        return None


def _applied(context: Context, job: Job, generation: Generation) -> bool | None:
    try:
        output = context.outputs.of_kind(job.output.kind)
        return output.served(context, job.output.name, generation.writes_to)
    except AnewError:
        return None


def _pace(batches: list[BatchRecord]) -> float | None:
    """Records of the inputs in a second, over the last batches."""
    if len(batches) < 2 or batches[-1].at_ms <= batches[0].at_ms:
        return None
    seconds = (batches[-1].at_ms - batches[0].at_ms) / 1000
    return round(behind(batches[0].end, batches[-1].end) / seconds, 1)


def _seconds_left(lag: int | None, pace: float | None) -> float | None:
    if lag == 0:
        return 0.0
    return None if lag is None or not pace else round(lag / pace, 1)
