"""``push``, ``repush`` and ``rebuild …``: making versions and following the making."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from anew.cli.display import TerminalObserver, ledger_line
from anew.cli.output import Json, out, print_json, print_line, print_table
from anew.cli.session import Conf, Defines, Detach, Jars, Master, Properties, RequestId, cluster, comma_list, pairs
from anew.core.errors import InvalidRequest, NotFound
from anew.core.plan import Plan
from anew.core.planning import RepushRequest
from anew.core.properties import parse_properties, read_properties
from anew.core.settings import not_supported_yet
from anew.core.store import RebuildKind
from anew.rebuild.inputs import PushRequest
from anew.rebuild.planner import make_push_plan, make_repush_plan
from anew.runtime.clock import new_id
from anew.runtime.connect import Cluster, SparkChoice
from anew.runtime.drive import start_driver
from anew.runtime.settings import resolve

rebuilds_app = typer.Typer(help="Rebuilds: the makings of versions.", no_args_is_help=True)

_FAILED, _PARTLY = 1, 6
_ENDED_BADLY = ("failed", "killed")

Targets = Annotated[str | None, typer.Option("--target-fabrics", help="F,…: where the version is made; default: all.")]
DeferSwap = Annotated[bool, typer.Option("--defer-swap", hidden=True)]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(push)
    app.command()(repush)
    app.add_typer(rebuilds_app, name="rebuild")


def push(
    name: str,
    inputs: Annotated[list[str] | None, typer.Argument(help="Files or directories.")] = None,
    *,
    key: Annotated[str | None, typer.Option(help="COL,…: the columns of the key.")] = None,
    value: Annotated[str | None, typer.Option(help="COL,…: default: all that the value schema names.")] = None,
    written_at: Annotated[str | None, typer.Option(help="The column with the write time.")] = None,
    input_format: Annotated[str | None, typer.Option("--format", help="csv, parquet, json or avro.")] = None,
    option: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A reader option: nullValue=NA.")] = None,
    on_duplicate_key: Annotated[str | None, typer.Option(help="last: keep the last row of each key.")] = None,
    bad_rows_to: Annotated[Path | None, typer.Option(help="Put rows that do not fit aside in this file.")] = None,
    properties: Properties = None,
    define: Defines = None,
    defer_swap: DeferSwap = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; change nothing.")] = False,
    request_id: RequestId = None,
    master: Master = None,
    conf: Conf = None,
    jars: Jars = None,
    detach: Detach = False,
    json_output: Json = False,
) -> int:
    """Make a new version from files (CSV, Parquet, JSON lines, Avro) and put it into service."""
    given = _properties(properties, define)
    _refuse_deferred(defer_swap)
    spark = _spark(master, conf, jars)
    with cluster() as connected:
        if parse_properties(given).source_kafka and not inputs:
            plan = make_repush_plan(connected.controller, name, RepushRequest(parse_properties(given)))
        else:
            request = PushRequest(
                inputs=_needed(inputs),
                key=_key_columns(key),
                value=comma_list(value),
                input_format=input_format,
                options=pairs(option, "--option"),
                written_at=written_at,
                keep_last=_keeps_last(on_duplicate_key),
                bad_rows_to=None if bad_rows_to is None else str(bad_rows_to.absolute()),
            )
            plan = make_push_plan(connected.controller, name, request, parse_properties(given))
        return _run(connected, plan, spark, _Asked(dry_run, json_output, request_id, detach))


def repush(
    name: str,
    *,
    properties: Properties = None,
    define: Defines = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; change nothing.")] = False,
    plan_file: Annotated[Path | None, typer.Option("--plan", help="Run exactly the plan in this file.")] = None,
    allow_not_serving: Annotated[
        bool, typer.Option("--allow-not-serving", help="Also read what serves nowhere.")
    ] = False,
    defer_swap: DeferSwap = False,
    target_fabrics: Targets = None,
    request_id: RequestId = None,
    master: Master = None,
    conf: Conf = None,
    jars: Jars = None,
    detach: Detach = False,
    json_output: Json = False,
) -> int:
    """Make a new version from the store's own data, with the configuration that is wanted now."""
    _refuse_deferred(defer_swap)
    given = _properties(properties, define)
    spark = _spark(master, conf, jars)
    with cluster() as connected:
        if plan_file is not None:
            if dry_run or given or allow_not_serving or target_fabrics is not None:
                raise InvalidRequest("contradiction", "a plan says it all", found="--plan with other options")
            plan = _read_plan(plan_file, name)
        else:
            request = RepushRequest(parse_properties(given), allow_not_serving, comma_list(target_fabrics))
            plan = make_repush_plan(connected.controller, name, request)
        return _run(connected, plan, spark, _Asked(dry_run, json_output, request_id, detach))


@rebuilds_app.command("list")
def list_rebuilds(
    *, store: Annotated[str | None, typer.Option(help="Only this store's.")] = None, json_output: Json = False
) -> None:
    """All rebuilds, newest first."""
    with cluster() as connected:
        found = connected.controller.rebuilds(store)
    if json_output:
        print_json(found)
        return
    rows = [(r["id"], r["kind"], r["store"], r["version"], r["status"], r["stage"], r["error"]) for r in found]
    print_table(["rebuild", "kind", "store", "version", "status", "stage", "error"], rows)


@rebuilds_app.command()
def show(rebuild: str, *, json_output: Json = False) -> None:
    """One rebuild: plan, stage, ledger, fingerprint, timings, error."""
    with cluster() as connected:
        view = connected.controller.rebuild(rebuild)
    if json_output:
        print_json(view)
        return
    shown = ("id", "kind", "store", "version", "status", "stage", "records_per_s", "error")
    print_table(["", ""], [(name, view[name]) for name in shown])
    out().print(f"ledger: {ledger_line(view)}")
    print_table(["stage", "seconds"], list(view["timings"].items()))


@rebuilds_app.command()
def watch(rebuild: str, *, json_output: Json = False) -> int:
    """Follow a rebuild until it ends."""
    pause, last = threading.Event(), None
    with cluster() as connected:
        while True:
            view = connected.controller.rebuild(rebuild)
            line = {"status": view["status"], "stage": view["stage"], "progress": view["progress"]}
            if line != last:
                last = line
                print_line(line) if json_output else out().print(f"{line['status']} {line['stage']} {line['progress']}")
            if view["status"] != "running":
                return _exit_code(view)
            pause.wait(0.5)


@rebuilds_app.command()
def logs(rebuild: str, *, json_output: Json = False) -> None:
    """What happened to a rebuild, oldest first."""
    with cluster() as connected:
        view = connected.controller.rebuild(rebuild)
        found = connected.controller.history(view["store"], 1_000)
    for line in reversed(found):
        if line["detail"].get("rebuild") == rebuild:
            print_line(line) if json_output else out().print(
                f"{line['at_ms']} {line['actor']} {line['what']} {line['detail']}", markup=False
            )


@rebuilds_app.command()
def kill(rebuild: str, *, json_output: Json = False) -> None:
    """End a rebuild; its version never becomes current, its files are reclaimed."""
    with cluster() as connected:
        view = connected.controller.kill_rebuild(rebuild)
    if json_output:
        print_json(view)
    else:
        out().print(f"{rebuild} is {view['status']}")


@dataclass(frozen=True, slots=True)
class _Asked:
    """How a run was asked for."""

    dry_run: bool
    as_json: bool
    request_id: str | None
    detach: bool


def _spark(master: str | None, conf: list[str] | None, jars: str | None) -> SparkChoice:
    """``--jars`` is Spark's own setting under another name; a ``--conf spark.jars=…`` beside it is a contradiction."""
    settings = pairs(conf, "--conf")
    if jars is not None:
        if "spark.jars" in settings:
            raise InvalidRequest("contradiction", "jars are named twice", found="--jars and --conf spark.jars")
        settings["spark.jars"] = jars
    return SparkChoice(master=master, conf=settings)


def _run(connected: Cluster, plan: Plan, spark: SparkChoice, asked: _Asked) -> int:
    if asked.dry_run:
        _print_plan(plan, as_json=asked.as_json)
        return 0
    if asked.detach:
        request_id = new_id() if asked.request_id is None else asked.request_id
        view = start_driver(connected, plan, spark, request_id, resolve({}).home / "logs")
        if asked.as_json:
            print_json(view)
        else:
            out().print(f"rebuild {view['id']} runs; follow it: anew rebuild watch {view['id']}")
        return 0
    with TerminalObserver() as observer:
        view = connected.run_plan(plan, spark, observer, asked.request_id)
    if asked.as_json:
        print_json(view)
    else:
        out().print(f"{view['status']}: version {view['version']} of {view['store']}")
        out().print(f"ledger: {ledger_line(view)}")
        out().print(f"{view['records_per_s']:.0f} records/s, {sum(view['timings'].values()):.1f} s in all")
    return _exit_code(view)


def _exit_code(view: dict[str, Any]) -> int:
    if view["status"] in _ENDED_BADLY:
        return _FAILED
    return _PARTLY if view["status"] == "partly" else 0


def _print_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_json(plan.model_dump(mode="json"))
        return
    source = plan.source.topic if plan.source.input is None else ", ".join(plan.source.input.paths)
    rows = [
        ("plan", plan.id),
        ("kind", plan.kind.value),
        ("reads", source),
        ("makes", f"{plan.store}_v{plan.target.version} in {', '.join(plan.target.fabrics)}"),
        ("path", plan.path),
        ("splits", f"{plan.splits.base_files} base files, {plan.splits.log} log ranges"),
        ("records", plan.estimate.records),
        ("bytes", plan.estimate.bytes),
        ("seconds", plan.estimate.seconds),
    ]
    print_table(["", ""], [(name, str(value)) for name, value in rows])
    for why in plan.why:
        out().print(f"  {why}", markup=False)
    for change in plan.changes:
        out().print(f"  {change.setting}: {change.now} → {change.wanted}", markup=False)


def _read_plan(path: Path, store: str) -> Plan:
    if not path.is_file():
        raise NotFound("no_plan_file", "the plan file does not exist", found=str(path), expected="a dry run's output")
    try:
        plan = Plan.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise InvalidRequest(
            "bad_plan", "the file holds no plan", found=str(error).splitlines()[0], expected="--dry-run --json's output"
        ) from error
    if plan.store != store or plan.kind is not RebuildKind.REPUSH:
        raise InvalidRequest(
            "bad_plan", "the plan is for something else", found=f"{plan.kind.value} of {plan.store}", expected=store
        )
    return plan


def _needed(inputs: list[str] | None) -> tuple[str, ...]:
    if not inputs:
        raise InvalidRequest("no_input", "a push reads files", found="no INPUT", expected="one or more paths")
    return tuple(inputs)


def _key_columns(key: str | None) -> tuple[str, ...]:
    if key is None:
        raise InvalidRequest("no_key", "a push needs the columns of the key", expected="--key COL,…")
    return comma_list(key)


def _keeps_last(on_duplicate_key: str | None) -> bool:
    if on_duplicate_key not in (None, "last"):
        raise InvalidRequest("bad_option", "--on-duplicate-key takes one word", found=on_duplicate_key, expected="last")
    return on_duplicate_key == "last"


def _properties(file: Path | None, defines: list[str] | None) -> dict[str, str]:
    """The guide's keys; ``-D`` wins over the file.

    Raises:
        NotFound: ``no_properties_file``.
    """
    found: dict[str, str] = {}
    if file is not None:
        if not file.is_file():
            raise NotFound("no_properties_file", "the properties file does not exist", found=str(file))
        found = read_properties(file.read_text(encoding="utf-8").splitlines())
    return found | pairs(defines, "-D")


def _refuse_deferred(defer_swap: bool) -> None:  # noqa: FBT001 - private
    if defer_swap:
        raise not_supported_yet("--defer-swap", "a swap as soon as the version is ready")
