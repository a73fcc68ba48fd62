"""``job plan|rewind|deploy``: other code for a job, over its history again or for new records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anew.cli.jobs.naming import Clamp, From, FromFile, HoldRetention, OldestAvailable, on_bad, start_from
from anew.cli.jobs.options import (
    DeadLetterLimit,
    Files,
    MaxRecords,
    NoTrial,
    OnBad,
    OtherFunction,
    Params,
    Why,
    other_code_of,
)
from anew.cli.jobs.showing import print_diff, print_job, print_plan
from anew.cli.options import Conf, Master, RequestId
from anew.cli.output import Json
from anew.cli.running import read_plan
from anew.cli.session import cluster, pairs
from anew.core.errors import InvalidRequest
from anew.core.jobs.deadletters import DEFAULT_LIMIT, STOP
from anew.core.jobs.plan import PARALLEL, REWIND, SIMPLE, JobPlan, Mode
from anew.runtime.jobplans import Start
from anew.runtime.jobs import JobHandle

Parallel = Annotated[
    bool, typer.Option("--parallel", help="Beside the live generation, with an output of its own: the default.")
]
Simple = Annotated[
    bool, typer.Option("--simple", help="In the live generation's place, into its output; new records wait meanwhile.")
]
State = Annotated[str, typer.Option("--state", metavar="empty", help="What the function remembers to begin with.")]
Stop = Annotated[bool, typer.Option("--stop", help="Stop the live generation before, whose place is taken.")]
_EMPTY = "empty"


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (diff, plan, rewind, deploy):
        app.command()(command)


def diff(
    name: str,
    function: OtherFunction = None,
    *,
    param: Params = None,
    file: Files = None,
    start: From = None,
    master: Master = None,
    conf: Conf = None,
    max_records: MaxRecords = 100_000,
    on_bad_record: OnBad = STOP,
    dead_letter_limit: DeadLetterLimit = DEFAULT_LIMIT,
    no_trial: NoTrial = False,
    json_output: Json = False,
) -> None:
    """What other code or settings would change, and which ways to them are open; nothing is made."""
    bad = on_bad(on_bad_record)
    chosen = Start(start_from(start), master, pairs(conf, "--conf"), max_records, bad, dead_letter_limit)
    with cluster() as connected:
        found = connected.job(name).diff(chosen, other_code_of(function, param, file, no_trial=no_trial))
    print_diff(found, as_json=json_output)


def plan(
    name: str,
    function: OtherFunction = None,
    *,
    parallel: Parallel = False,
    simple: Simple = False,
    param: Params = None,
    file: Files = None,
    start: From = None,
    from_file: FromFile = None,
    clamp: Clamp = False,
    from_oldest_available: OldestAvailable = False,
    hold_retention: HoldRetention = False,
    state: State = _EMPTY,
    master: Master = None,
    conf: Conf = None,
    max_records: MaxRecords = 100_000,
    on_bad_record: OnBad = STOP,
    dead_letter_limit: DeadLetterLimit = DEFAULT_LIMIT,
    no_trial: NoTrial = False,
    json_output: Json = False,
) -> None:
    """What a rewind would begin now, what of its history is gone, and why; nothing is made."""
    _check_state(state)
    bad, mode = on_bad(on_bad_record), _mode(parallel=parallel, simple=simple)
    at, set_ = start_from(start, from_file), pairs(conf, "--conf")
    chosen = Start(at, master, set_, max_records, bad, dead_letter_limit, clamp, from_oldest_available, hold_retention)
    with cluster() as connected:
        found = connected.job(name).plan_rewind(chosen, other_code_of(function, param, file, no_trial=no_trial), mode)
    print_plan(found, as_json=json_output)


def rewind(
    name: str,
    function: OtherFunction = None,
    *,
    parallel: Parallel = False,
    simple: Simple = False,
    param: Params = None,
    file: Files = None,
    start: From = None,
    from_file: FromFile = None,
    clamp: Clamp = False,
    from_oldest_available: OldestAvailable = False,
    hold_retention: HoldRetention = False,
    state: State = _EMPTY,
    stop: Stop = False,
    master: Master = None,
    conf: Conf = None,
    max_records: MaxRecords = 100_000,
    on_bad_record: OnBad = STOP,
    dead_letter_limit: DeadLetterLimit = DEFAULT_LIMIT,
    no_trial: NoTrial = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan only.")] = False,
    plan_file: Annotated[Path | None, typer.Option("--plan", help="Run exactly the plan in this file.")] = None,
    why: Why = None,
    request_id: RequestId = None,
    json_output: Json = False,
) -> None:
    """Begin a generation that reads the history again, and let it run: beside the live one, or in its place."""
    _check_state(state)
    bad, mode = on_bad(on_bad_record), _mode(parallel=parallel, simple=simple)
    at, set_ = start_from(start, from_file), pairs(conf, "--conf")
    chosen = Start(at, master, set_, max_records, bad, dead_letter_limit, clamp, from_oldest_available, hold_retention)
    if plan_file is not None and (function or dry_run or simple or parallel or chosen != Start()):
        raise InvalidRequest("contradiction", "a plan says it all", found="--plan with other options")
    if stop and not simple and plan_file is None:
        raise InvalidRequest(
            "contradiction",
            "a parallel rewind runs beside the live generation",
            found="--stop without --simple",
            expected="--stop with --simple",
            hint="what is stopped takes part in no comparison and cannot be cut back to at once",
        )
    with cluster() as connected:
        handle = connected.job(name)
        code = other_code_of(function, param, file, no_trial=no_trial)
        number = None if dry_run or plan_file else handle.begun_before(chosen, code, request_id, mode)
        if number is None:
            made = (
                read_plan(plan_file, JobPlan, name, (REWIND,))
                if plan_file is not None
                else handle.plan_rewind(chosen, code, mode)
            )
            if dry_run:
                print_plan(made, as_json=json_output)
                return
            number = _begin(handle, made, stop=stop, why=why, request_id=request_id)
        view = handle.run(number)
    print_job(view, as_json=json_output)


def deploy(
    name: str,
    function: OtherFunction = None,
    *,
    param: Params = None,
    file: Files = None,
    stop: Stop = False,
    master: Master = None,
    conf: Conf = None,
    max_records: MaxRecords = 100_000,
    on_bad_record: OnBad = STOP,
    dead_letter_limit: DeadLetterLimit = DEFAULT_LIMIT,
    no_trial: NoTrial = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan only; it needs a stopped job.")] = False,
    why: Why = None,
    request_id: RequestId = None,
    json_output: Json = False,
) -> None:
    """Go on with other code where the live generation ended, in its place; nothing is processed again."""
    bad = on_bad(on_bad_record)
    chosen = Start(None, master, pairs(conf, "--conf"), max_records, bad, dead_letter_limit)
    with cluster() as connected:
        handle, code = connected.job(name), other_code_of(function, param, file, no_trial=no_trial)
        if dry_run:
            print_plan(handle.plan_deploy(chosen, code), as_json=json_output)
            return
        view = handle.deploy(chosen, code, stop=stop, request_id=request_id, why=why)
    print_job(view, as_json=json_output)


def _begin(handle: JobHandle, plan: JobPlan, *, stop: bool, why: str | None, request_id: str | None) -> int:
    with handle.at_rest(stop=stop and plan.in_place):
        return handle.rewind(plan, request_id, why)


def _mode(*, parallel: bool, simple: bool) -> Mode:
    if parallel and simple:
        raise InvalidRequest(
            "contradiction", "a rewind is of one kind", found="--parallel and --simple", expected="one of them"
        )
    return SIMPLE if simple else PARALLEL


def _check_state(text: str) -> None:
    """Raise unless a generation is to begin with what is possible: an empty state (case C1).

    Raises:
        InvalidRequest: ``bad_state``.
    """
    if text != _EMPTY:
        raise InvalidRequest(
            "bad_state",
            "a generation begins with an empty state",
            found=text,
            expected=_EMPTY,
            hint="what a generation before it remembered is not carried on yet",
        )
