"""``job …``: submitting, running, rewinding and cutting over to stream jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from anew.api.jobs.views import GenerationView, JobView, OwnedParts
from anew.cli.jobs import rewinding
from anew.cli.jobs.checkpoints import checkpoints_app
from anew.cli.jobs.deadletters import dead_letters
from anew.cli.jobs.naming import From, Which, named, on_bad, start_from, time_of
from anew.cli.jobs.options import (
    DeadLetterLimit,
    DefaultStarts,
    Files,
    Function,
    Inputs,
    JobOptions,
    JobSettings,
    MaxLateness,
    MaxRecords,
    NoTrial,
    OnBad,
    Output,
    Params,
    code_of,
    declaration_in,
)
from anew.cli.jobs.showing import left_of, pace_of, planned_text, print_job, status_of
from anew.cli.jobs.undoing import undo
from anew.cli.options import Conf, Master, RequestId
from anew.cli.output import Json, JsonLines, err, out, print_json, print_line, print_table
from anew.cli.session import asked_until_answered, cluster, pairs
from anew.core.errors import Failed, InvalidRequest, Refused
from anew.core.jobs.deadletters import DEFAULT_LIMIT, STOP
from anew.runtime.foreground import driven_beside
from anew.runtime.jobplans import Start
from anew.runtime.settings import resolve

jobs_app = typer.Typer(help="Stream jobs: functions that follow topics.", no_args_is_help=True)

jobs_app.add_typer(checkpoints_app, name="checkpoint")
jobs_app.command("dead-letters")(dead_letters)
rewinding.add_to(jobs_app)
jobs_app.command()(undo)

_WATCH_SECONDS = 1.0


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(jobs_app, name="job")


@jobs_app.command("submit")
def submit_job(
    name: str,
    function: Function,
    *,
    inputs: Inputs = None,
    default_start: DefaultStarts = None,
    output: Output = None,
    settings: JobOptions = None,
    max_lateness: MaxLateness = None,
    param: Params = None,
    file: Files = None,
    start: From = None,
    master: Master = None,
    conf: Conf = None,
    max_records: MaxRecords = 100_000,
    on_bad_record: OnBad = STOP,
    dead_letter_limit: DeadLetterLimit = DEFAULT_LIMIT,
    no_trial: NoTrial = False,
    request_id: RequestId = None,
    json_output: Json = False,
) -> None:
    """Make a job and its first generation; it runs when told so."""
    said = JobSettings(max_lateness, max_records, on_bad_record, dead_letter_limit).with_those(settings)
    declared = declaration_in(inputs, default_start, output, said.max_lateness)
    begins, bad = start_from(start), on_bad(said.on_bad_record)
    chosen = Start(begins, master, pairs(conf, "--conf"), said.max_records, bad, said.dead_letter_limit)
    with cluster() as connected:
        code = code_of(function, param, file, no_trial=no_trial)
        view = connected.job(name).submit(code, declared, chosen, request_id)
    print_job(view, as_json=json_output)
    if not json_output:
        out().print(f"it does not run yet: anew job run {name}@{view.generations[-1].number}")


@jobs_app.command("list")
def list_jobs(*, json_output: Json = False) -> None:
    """All jobs, by name."""
    with cluster() as connected:
        found = connected.controller.jobs()
    if json_output:
        print_json(found)
        return
    rows = [(job.name, job.status, job.live, job.output, ", ".join(job.inputs.values())) for job in found]
    print_table(["job", "status", "live", "output", "inputs"], rows)


@jobs_app.command()
def show(name: str, *, json_output: Json = False) -> None:
    """One job: its generations, where they stand, and how far behind."""
    with cluster() as connected:
        view = connected.controller.job(name)
    print_job(view, as_json=json_output)


@jobs_app.command()
def run(
    which: Which,
    *,
    accept_environment: Annotated[
        bool, typer.Option("--accept-environment", help="Go on with the Python and PySpark of here.")
    ] = False,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Drive it here until it is stopped: Ctrl-C stops it.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Let a generation run, the live one unless another is named."""
    name, number = named(which)
    with cluster() as connected:
        job = connected.job(name)
        view = job.run(number, accept_environment=accept_environment, foreground=foreground)
        if foreground:
            running = [view.live, *(each.number for each in view.generations if each.status == "running")]
            chosen = next(each for each in (number, *running) if each is not None)
            driven_beside(lambda: connected.drive_generation(name, chosen), lambda: job.stop(chosen))
            view = job.show()
    print_job(view, as_json=json_output)


@jobs_app.command()
def stop(which: Which, *, json_output: Json = False) -> None:
    """Let a generation end after the batch that it is at."""
    name, number = named(which)
    with cluster() as connected:
        view = connected.job(name).stop(number)
    stopped = view.live if number is None else number
    others = [f"{name}@{each.number}" for each in view.generations if each.status == "running"]
    others = [each for each in others if each != f"{name}@{stopped}"]
    if others:
        err().print(f"{', '.join(others)} runs on")
    print_job(view, as_json=json_output)


@jobs_app.command()
def watch(
    which: Which,
    *,
    until_caught_up: Annotated[bool, typer.Option("--until-caught-up", help="End once it may be cut over to.")] = False,
    until_served: Annotated[
        bool, typer.Option("--until-served", help="End once it serves, and has read all that there is.")
    ] = False,
    json_output: JsonLines = False,
) -> None:
    """Follow a job's generations: lag, pace, time left."""
    from anew.api.waiting import wait_seconds

    name, number = named(which)
    told = dict[int, str]()
    with cluster() as connected:
        # Asked once without patience: where no controller is, or no such job, that is said.
        _chosen(connected.controller.job(name), number)
        while True:
            view = asked_until_answered(lambda: connected.controller.job(name))
            shown = _chosen(view, number)
            for each in shown:
                if json_output:
                    print_line({"job": name, **each.model_dump(mode="json")})
                elif told.get(each.number) != (line := _line(name, each)):
                    out().print(line, markup=False)
                    told[each.number] = line
            sys.stdout.flush()
            if until_caught_up and any(each.caught_up for each in shown):
                return
            if until_caught_up or until_served:
                _check_gets_on(view, shown)
            serving = (each for each in shown if each.number == view.live)
            if until_served and any(each.lag_records == 0 and each.applied for each in serving):
                return
            wait_seconds(_WATCH_SECONDS)


@jobs_app.command()
def cutover(
    which: Which,
    *,
    when_caught_up: Annotated[
        bool, typer.Option("--when-caught-up", help="Not now, but by itself once it has caught up.")
    ] = False,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Likewise, and not before 2013-12-03T12:00Z.")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take back what is to happen by itself.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while it has not caught up.")] = False,
    json_output: Json = False,
) -> None:
    """Let the generation serve that is to take the live one's place: now, once it has caught up, or at a time."""
    later = when_caught_up or at is not None
    if sum((later, cancel, force)) > 1:
        raise InvalidRequest(
            "contradiction",
            "a cut-over is at once, planned, or called off",
            found="several of --force, --when-caught-up or --at, and --cancel",
            expected="one of them",
        )
    name, number = named(which)
    if cancel:
        with cluster() as connected:
            planned = connected.controller.job(name).planned_cut
            view = connected.job(name).call_off_cut_over()
        if planned is None:
            err().print(f"{name}: no cut-over was planned, and nothing changes")
        print_job(view, as_json=json_output)
        return
    if not later:
        _cut_over(which, force=force, as_json=json_output)
        return
    not_before_ms = None if at is None else time_of("--at", at)
    with cluster() as connected:
        answer = connected.job(name).cut_over(number, when_caught_up=when_caught_up, not_before_ms=not_before_ms)
    if json_output:
        print_json(answer)
    elif answer.planned is not None:
        out().print(f"{name}: {planned_text(answer.planned)}; take it back: anew job cutover {name} --cancel")


@jobs_app.command()
def cutback(
    which: Which,
    *,
    force: Annotated[bool, typer.Option("--force", help="Also while it is behind.")] = False,
    json_output: Json = False,
) -> None:
    """Let the generation serve again that served before the live one."""
    name, number = named(which)
    if number is None:
        with cluster() as connected:
            view = connected.controller.job(name)
        older = (each for each in view.generations if each.number < (view.live or 0))
        before = [each.number for each in older if not each.over]
        if not before:
            raise Refused(
                "nothing_to_cut_over",
                f"{name} has no generation that served before and is still there",
                found=f"live {view.live}",
                expected="an older generation that was not reclaimed",
                hint=f"anew job show {name}",
            )
        number = before[-1]
    _cut_over(f"{name}@{number}", force=force, as_json=json_output)


@jobs_app.command()
def reclaim(
    which: Which,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would go, with sizes.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also one that could be cut back to.")] = False,
    json_output: Json = False,
) -> None:
    """Retire a generation that is not live: what it owns goes after the grace."""
    name, number = named(which)
    if number is None:
        raise InvalidRequest("which_generation", "this needs a generation", found=which, expected="JOB@GENERATION")
    with cluster() as connected:
        handle = connected.job(name)
        if dry_run:
            _print_owned(handle.owned(number), as_json=json_output)
            return
        ended = {each.number: each.status for each in handle.show().generations if each.over}
        view = handle.drop(number, force=force)
    if number in ended:
        err().print(f"{which} is {ended[number]} already, and nothing changes")
    print_job(view, as_json=json_output)


@jobs_app.command()
def delete(
    name: str,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json_output: Json = False,
) -> None:
    """Delete a job that is stopped; what its generations own goes after the grace."""
    if json_output and not yes:
        raise InvalidRequest("not_confirmed", "deleting asks first", expected="--yes")
    with cluster() as connected:
        if not yes:
            connected.controller.job(name)
            typer.confirm(f"Delete the job {name} with all its generations?", abort=True, err=True)
        connected.job(name).delete()
    if json_output:
        print_json({"deleted": name})
    else:
        out().print(f"deleted {name}")


@jobs_app.command()
def logs(which: Which, *, lines: Annotated[int, typer.Option(help="How many of the last lines.", min=1)] = 50) -> None:
    """What the last drivers of a generation logged on this machine."""
    name, number = named(which)
    with cluster() as connected:
        view = connected.controller.job(name)
    chosen = _chosen(view, number)
    folder = resolve({}).home / "logs"
    for each in chosen:
        found = sorted(folder.glob(f"{each.rebuild}-e*"), key=lambda path: path.stat().st_mtime)
        for path in found[-2:]:
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]:
                out().print(line, markup=False, highlight=False)


def _cut_over(which: str, *, force: bool, as_json: bool) -> None:
    name, number = named(which)
    with cluster() as connected:
        answer = connected.job(name).cut_over(number, force=force)
    if as_json:
        print_json(answer)
        return
    command = "cutback" if answer.live > (answer.before or 0) else "cutover"
    back = f"{answer.before} did before; back: anew job {command} {name}"
    out().print(f"{name}: generation {answer.live} serves, {back}")


def _print_owned(parts: OwnedParts, *, as_json: bool) -> None:
    if as_json:
        print_json(parts)
        return
    print_table(["what", "name", "bytes", "records"], [(p.what, p.name, p.bytes, p.records) for p in parts.owned])
    if parts.stays is not None:
        out().print(f"it stays: {parts.stays}", markup=False)


def _line(name: str, each: GenerationView) -> str:
    lag = "a log does not answer" if each.lag_records is None else f"{each.lag_records:,} records behind"
    begun, left = each.batch is not None, left_of(each) or "it does not run"
    pace = (f"batch {each.batch}", lag, f"{pace_of(each)} records/s", f"time left: {left}")
    said = (*(pace if begun else ("no batch yet", lag)), *(["caught up"] if each.caught_up else []))
    return f"{name}@{each.number} {status_of(each)}: {', '.join(said)}"


def _check_gets_on(view: JobView, shown: Sequence[GenerationView]) -> None:
    """Raise where nothing that is waited for will happen: no generation runs, or is to.

    Raises:
        Failed: ``generation_ended``, with the last error.
    """
    if any(each.status in ("planned", "ready", "running") for each in shown):
        return
    raise Failed(
        "generation_ended",
        f"no generation of {view.name} that is waited for runs",
        found="; ".join(f"{each.number} {each.status}: {each.error or 'no error'}" for each in shown) or "none",
        expected="one that runs",
        hint=f"anew job logs {view.name}; once it is mended: anew job run {view.name}@N",
    )


def _chosen(view: JobView, number: int | None) -> list[GenerationView]:
    """The generations that are asked for; all for None.

    Raises:
        NotFound: ``unknown_generation``.
    """
    return list(view.generations) if number is None else [view.generation(number)]
