"""The ``job`` shape: a job's generations, where each stands, and how long it has to go."""

from __future__ import annotations

from collections.abc import Iterator

from anew.api.jobs.views import GenerationView, JobView
from anew.api.models import Problem
from anew.api.pages import Page, page_of
from anew.controller.engine.context import Context
from anew.controller.jobs.looks import looks_of
from anew.controller.jobs.progress import progress_of, reads_what_expires
from anew.core.errors import AnewError
from anew.core.jobs.batch import behind
from anew.core.jobs.catchup import LOOKS_TO_CATCH_UP
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.job import Job
from anew.core.jobs.pace import total_rate
from anew.core.jobs.rebuild import JobRebuild
from anew.core.moment import utc_text


def job_view(context: Context, job: Job) -> JobView:
    """The ``job`` shape."""
    live = None if job.live is None else job.generation(job.live)
    running = any(each.status is GenerationStatus.RUNNING for each in job.generations)
    newest = job.generations[-1].status.value if job.generations else "planned"
    dead = context.catalog.job_dead_letter_counts(job.uid)
    return JobView(
        name=job.name,
        status="running" if running else newest,
        live=job.live,
        code=None if live is None else live.code.hash,
        inputs=job.inputs,
        starts={name: job.start_of(name) for name in job.inputs},
        max_lateness_ms=job.max_lateness_ms,
        output=str(job.output),
        planned_cut=job.planned_cut,
        generations=tuple(_generation_view(context, job, each, dead.get(each.number, 0)) for each in job.generations),
    )


def job_page(context: Context, after: str, limit: int) -> Page[JobView]:
    """The ``job`` shape of some jobs, the next ones by name."""
    found = page_of(context.catalog.jobs_page(after, limit + 1), limit, lambda job: job.name)
    return Page(items=tuple(job_view(context, job) for job in found.items), next=found.next)


def job_problems(context: Context, job: Job) -> list[Problem]:
    """What is wrong with a job's generations, since when, and what comes next."""
    return [*_failures(job), *_standing_still(job), *_not_cut(job), *_expiring(context, job)]


def _failures(job: Job) -> Iterator[Problem]:
    for each in job.generations:
        if each.error is not None and not each.over:
            which, failed = f"{job.name}@{each.number}", each.status is GenerationStatus.FAILED
            yield Problem(
                what=f"{which} {'failed' if failed else 'does not get on'}: {each.error}",
                since_ms=each.since_ms,
                hint=f"anew job logs {which}; once it is mended: anew job run {which}",
            )


def _standing_still(job: Job) -> Iterator[Problem]:
    """A generation that has taken another one's place, and that nobody has let run since."""
    for each in job.generations:
        if each.number == job.live and each.in_place and each.status is GenerationStatus.READY:
            yield Problem(
                what=f"{job.name}@{each.number} has taken the live generation's place, and does not run",
                since_ms=each.since_ms,
                hint=f"anew job run {job.name}@{each.number}",
            )


def _expiring(context: Context, job: Job) -> Iterator[Problem]:
    """Running generations that lose the race with a retention (case E4): said before it happens."""
    for each in job.generations:
        if each.status is not GenerationStatus.RUNNING or not reads_what_expires(context, each):
            continue
        found = progress_of(context, job, each).expires
        if found is not None:
            which = f"{job.name}@{each.number}"
            yield Problem(
                what=f"{which} will not have read partition {found.partition} of {found.input} before its records "
                f"expire, from {utc_text(found.at_ms)} on",
                since_ms=each.since_ms,
                hint=f"let the topic keep them longer, or give the generation more: anew job show {which}",
            )


def _not_cut(job: Job) -> Iterator[Problem]:
    cut = job.planned_cut
    if cut is not None and cut.error is not None:
        yield Problem(
            what=f"{job.name}@{cut.generation} is not cut over to as planned: {cut.error}",
            since_ms=job.generation(cut.generation).since_ms,
            hint=f"mend that; or call it off: anew job cutover {job.name} --cancel",
        )


def _generation_view(context: Context, job: Job, generation: Generation, dead: int) -> GenerationView:
    progress = progress_of(context, job, generation)
    batches, positions, lags = progress.batches, progress.positions, progress.lags
    record = context.catalog.rebuild(generation.rebuild)
    driven = isinstance(record, JobRebuild) and bool(record.driver) and context.clock() <= record.lease_until_ms
    return GenerationView(
        number=generation.number,
        status=generation.status.value,
        driver=driven,
        stage=record.stage.value if record is not None and driven else None,
        code=generation.code.hash,
        entry=generation.code.entry,
        start=generation.start,
        state="none" if generation.stateless else "empty",
        source="anew",
        positions=positions,
        lag_records=None if lags is None else sum(lags.values()),
        records_per_s=_rounded(total_rate(batches)),
        appended_per_s=None if progress.appends is None else _rounded(sum(progress.appends.values())),
        seconds_left=_rounded(progress.left.seconds),
        never=progress.left.never,
        expires=progress.expires,
        caught_up=looks_of(context, job, generation.number) >= LOOKS_TO_CATCH_UP,
        applied=None if generation.over else _applied(context, job, generation),
        batch=batches[-1].batch if batches else None,
        rows=batches[-1].total if batches else 0,
        read=behind(generation.start, positions),
        dead_letters=dead,
        on_bad_record=generation.on_bad_record,
        dead_letter_limit=generation.dead_letter_limit,
        version=generation.version,
        rebuild=generation.rebuild,
        error=generation.error,
        created_at_ms=generation.created_at_ms,
    )


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)


def _applied(context: Context, job: Job, generation: Generation) -> bool | None:
    try:
        output = context.outputs.of_kind(job.output.kind)
        return output.served(context, job.output.name, generation.writes_to)
    except AnewError:
        return None
