"""``push`` and ``repush``: making versions."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from anew.cli.options import Conf, Defines, Detach, Jars, Master, Properties, RequestId
from anew.cli.output import Json, out, print_json, print_table
from anew.cli.running import Asked, print_outcome, read_plan, run, run_again, spark_choice
from anew.cli.session import cluster, comma_list, pairs
from anew.core.errors import InvalidRequest, NotFound
from anew.core.moment import utc_text
from anew.core.stores.plan import Plan
from anew.core.stores.planning import PushOptions
from anew.core.stores.properties import parse_properties, read_properties
from anew.core.stores.store import RebuildKind
from anew.rebuild.asking import asked_for, input_said
from anew.rebuild.inputs import PushRequest
from anew.runtime.connect import Cluster
from anew.runtime.sparkchoice import SparkChoice

Targets = Annotated[str | None, typer.Option("--target-fabrics", help="F,…: where the version is made; default: all.")]
DeferSwap = Annotated[bool, typer.Option("--defer-swap", help="Make it ready, and wait for: anew swap NAME VERSION.")]

_REPUSHES = (RebuildKind.REPUSH, RebuildKind.TTL_REPUSH)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(push)
    app.command()(repush)


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
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="What the input is as of; default: its oldest file's time.")
    ] = None,
    empty: Annotated[bool, typer.Option("--empty", help="No input: a version that holds nothing.")] = False,
    allow_undying: Annotated[
        bool, typer.Option("--allow-undying", help="Push rows that never expire although others do.")
    ] = False,
    supersede_job: Annotated[
        bool, typer.Option("--supersede-job", help="Push although a job feeds the store: the input has what it wrote.")
    ] = False,
    properties: Properties = None,
    define: Defines = None,
    defer_swap: DeferSwap = False,
    target_fabrics: Targets = None,
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
    of_store = parse_properties(given).source_kafka and not inputs and not empty
    spark, fabrics = spark_choice(master, conf, jars), comma_list(target_fabrics)
    options = PushOptions(allow_undying, fabrics, defer_swap, supersede_job)
    request = (
        None
        if of_store
        else PushRequest(
            inputs=_needed(inputs, empty=empty),
            key=() if empty else _key_columns(key),
            value=comma_list(value),
            input_format=input_format,
            options=pairs(option, "--option"),
            written_at=written_at,
            keep_last=_keeps_last(on_duplicate_key),
            bad_rows_to=None if bad_rows_to is None else str(bad_rows_to.absolute()),
            as_of_ms=_time_ms(as_of),
        )
    )
    said = {"properties": given, "options": _said(options), "input": None if request is None else input_said(request)}
    asked = Asked(dry_run, json_output, request_id, detach, asked_for("push", name, **said))
    with cluster() as connected:
        again = run_again(connected, asked, print_outcome)
        if again is not None:
            return again
        if request is None:
            plan = connected.plan_repush(name, properties=given, target_fabrics=fabrics, defer_swap=defer_swap)
        else:
            plan = connected.plan_push(name, request, properties=given, options=options)
        return _run(connected, plan, spark, asked)


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
    given = _properties(properties, define)
    spark = spark_choice(master, conf, jars)
    with cluster() as connected:
        if plan_file is not None:
            if dry_run or given or allow_not_serving or defer_swap or target_fabrics is not None:
                raise InvalidRequest("contradiction", "a plan says it all", found="--plan with other options")
            asked, plan = Asked(dry_run, json_output, request_id, detach), read_plan(plan_file, Plan, name, _REPUSHES)
        else:
            how = {"not_serving": allow_not_serving, "defer_swap": defer_swap, "targets": comma_list(target_fabrics)}
            wanted = asked_for("repush", name, properties=given, **how)
            asked = Asked(dry_run, json_output, request_id, detach, wanted)
            again = run_again(connected, asked, print_outcome)
            if again is not None:
                return again
            plan = connected.plan_repush(
                name,
                properties=given,
                allow_not_serving=allow_not_serving,
                target_fabrics=comma_list(target_fabrics),
                defer_swap=defer_swap,
            )
        return _run(connected, plan, spark, asked)


def _said(options: PushOptions) -> dict[str, Any]:
    """What a request id stands for: an option that came later only where it is given, so that older ids stay known."""
    said = asdict(options)
    return said if options.supersede_job else {name: said[name] for name in said if name != "supersede_job"}


def _run(connected: Cluster, plan: Plan, spark: SparkChoice, asked: Asked) -> int:
    if asked.dry_run:
        print_plan(plan, as_json=asked.as_json)
        return 0
    return run(connected, plan, spark, asked, print_outcome)


def print_plan(plan: Plan, *, as_json: bool) -> None:
    """Say what a plan would do."""
    if as_json:
        print_json(plan.shown())
        return
    source = plan.source.topic if plan.source.input is None else ", ".join(plan.source.input.paths) or "nothing"
    rows = [
        ("plan", plan.id),
        ("kind", plan.kind.value),
        ("reads", source),
        ("makes", f"{plan.store}_v{plan.target.version} in {', '.join(plan.target.fabrics)}"),
        ("path", plan.path),
        ("splits", f"{plan.splits.base_files} base files, {plan.splits.log} log ranges"),
        ("combiner", "on" if plan.splits.combiner else "off"),
        ("expires", _before(plan.target.ttl_floor_ms, "what was written before")),
        ("drops", _before(plan.target.tombstone_floor_ms, "tombstones from before")),
        ("records", plan.estimate.records),
        ("bytes", plan.estimate.bytes),
        ("seconds", plan.estimate.seconds),
    ]
    print_table(["", ""], [(name, str(value)) for name, value in rows])
    for why in plan.why:
        out().print(f"  {why}", markup=False)
    for change in plan.changes:
        out().print(f"  {change.setting}: {change.now} → {change.wanted}", markup=False)


def _before(floor_ms: int, what: str) -> str:
    return f"{what} {utc_text(floor_ms)}" if floor_ms else "nothing"


def _needed(inputs: list[str] | None, *, empty: bool) -> tuple[str, ...]:
    if empty and inputs:
        raise InvalidRequest("contradiction", "an empty push reads nothing", found=f"--empty and {inputs[0]}")
    if empty:
        return ()
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


def _time_ms(text: str | None) -> int | None:
    """A time of the command line: ms since the epoch, or ISO 8601 (UTC unless it says otherwise).

    Raises:
        InvalidRequest: ``bad_option``.
    """
    if text is None or text.isdigit():
        return None if text is None else int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            "bad_option", "--as-of takes a time", found=text, expected="2026-01-31T06:00:00Z, or ms since the epoch"
        ) from None
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
