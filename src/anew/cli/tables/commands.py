"""``table …``: tables, their segments, loads and refreshes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from anew.api.rebuilds import RebuildView, TableRebuildView, view_as
from anew.api.stores.views import Deleted
from anew.api.tables.query_wire import json_rows
from anew.api.tables.requests import CreateTable, DropSegments, PlanRefresh, ReloadTable, UpdateTable
from anew.api.tables.views import CopyView, SegmentView, TableView, UnknownCopy
from anew.cli.options import Conf, Detach, Jars, Master, RequestId
from anew.cli.output import Json, out, print_json, print_rows, print_table, shape
from anew.cli.running import Asked, exit_code, print_table_outcome, read_plan, run, run_again, spark_choice
from anew.cli.session import cluster, pairs
from anew.core.errors import InvalidRequest, NotFound
from anew.core.tables.plan import TablePlan, TableRebuildKind
from anew.rebuild.asking import asked_for, input_said
from anew.rebuild.inputs import PushRequest
from anew.runtime.connect import Cluster
from anew.runtime.sparkchoice import SparkChoice

tables_app = typer.Typer(help="Tables: segments that stay in sync with their configuration.", no_args_is_help=True)

SchemaFile = Annotated[Path | None, typer.Option("--schema", help="JSON or TOML: the columns.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="JSON or TOML: settings.")]
TableSettings = Annotated[list[str] | None, typer.Option("--set", metavar="K=V", help="A table setting.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(tables_app, name="table")


@tables_app.command()
def create(
    name: str,
    *,
    schema: SchemaFile = None,
    config: ConfigFile = None,
    settings: TableSettings = None,
    request_id: RequestId = None,
    json_output: Json = False,
) -> None:
    """Make a table."""
    if schema is None:
        raise InvalidRequest("no_schema", "a table needs columns", found="no --schema", expected="--schema FILE")
    request = CreateTable(
        name=name, columns=_document(schema), settings=_settings(config, settings), request_id=request_id
    )
    with cluster() as connected:
        _print_table_view(connected.controller.create_table(request), as_json=json_output)


@tables_app.command()
def update(
    name: str,
    *,
    schema: SchemaFile = None,
    config: ConfigFile = None,
    settings: TableSettings = None,
    json_output: Json = False,
) -> None:
    """Change columns or settings; what decides segments' bytes makes them stale."""
    columns = None if schema is None else _document(schema)
    request = UpdateTable(columns=columns, settings=_settings(config, settings))
    with cluster() as connected:
        _print_table_view(connected.controller.update_table(name, request), as_json=json_output)


@tables_app.command()
def show(name: str, *, json_output: Json = False) -> None:
    """One table: columns, settings, how much it holds, how much of it is stale."""
    with cluster() as connected:
        _print_table_view(connected.controller.table(name), as_json=json_output)


@tables_app.command("list")
def list_tables(*, json_output: Json = False) -> None:
    """All tables."""
    with cluster() as connected:
        found = connected.controller.tables()
    if json_output:
        print_json(found)
        return
    rows = [(t.name, t.segments, t.rows, t.bytes, t.stale) for t in found]
    print_table(["table", "segments", "rows", "bytes", "stale"], rows)


@tables_app.command()
def segments(
    name: str,
    *,
    stale: Annotated[bool, typer.Option("--stale", help="Only those that are stale.")] = False,
    json_output: Json = False,
) -> None:
    """The segments of a table: why they are stale, and what nodes serve."""
    with cluster() as connected:
        found = connected.controller.segments(name, stale=stale)
    if json_output:
        print_json(found)
        return
    rows = [
        (
            s.name,
            s.rows,
            s.bytes,
            "stale" if s.stale else "in sync",
            "; ".join([*s.reasons, *_failed(s)]),
            ", ".join(f"{r.node}: {_copy(r, s.wanted_hash)}" for r in s.replicas),
        )
        for s in found
    ]
    print_table(["segment", "rows", "bytes", "deep store", "why", "nodes"], rows)


@tables_app.command()
def delete(
    name: str,
    *,
    segment: Annotated[list[str] | None, typer.Option("--segment", help="Only this segment; may be repeated.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json_output: Json = False,
) -> None:
    """Delete a table, or some of its segments; files go after the grace."""
    what = f"the table {name}" if not segment else f"{len(segment)} segments of {name}"
    with cluster() as connected:
        if not yes:
            connected.controller.table(name)
            typer.confirm(f"delete {what}?", abort=True, err=True)
        if segment:
            answer: TableView | Deleted = connected.controller.drop_segments(
                name, DropSegments(segments=tuple(segment))
            )
        else:
            answer = connected.controller.delete_table(name)
    if json_output:
        print_json(answer)
    else:
        out().print(f"deleted {what}")


@tables_app.command()
def reload(
    name: str,
    *,
    segment: Annotated[str | None, typer.Option("--segment", help="Only this one.")] = None,
    json_output: Json = False,
) -> None:
    """Let nodes make their own copies again with the newest configuration; the deep store stays as it is."""
    with cluster() as connected:
        view = connected.controller.reload_table(name, ReloadTable(segment=segment))
    if json_output:
        print_json(view)
        return
    out().print(f"nodes reload {name if segment is None else segment}: anew table segments {name}")
    if view.stale:
        out().print(f"{view.stale} segments stay stale in the deep store: anew table refresh {name}")


@tables_app.command()
def load(
    name: str,
    inputs: Annotated[list[str], typer.Argument(help="Files or directories.")],
    *,
    prefix: Annotated[
        str | None,
        typer.Option(
            help="How names of segments begin; a load replaces all segments of its prefix. "
            "Default: a fresh one for each load, so that the same files again add their rows again."
        ),
    ] = None,
    input_format: Annotated[str | None, typer.Option("--format", help="csv, parquet, json or avro.")] = None,
    option: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A reader option: nullValue=NA.")] = None,
    on_bad_row: Annotated[str | None, typer.Option(help="skip: put rows that do not fit aside.")] = None,
    bad_rows_to: Annotated[Path | None, typer.Option(help="The file to put them in.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; change nothing.")] = False,
    request_id: RequestId = None,
    master: Master = None,
    conf: Conf = None,
    jars: Jars = None,
    detach: Detach = False,
    json_output: Json = False,
) -> int:
    """Make segments of files (CSV, Parquet, JSON lines, Avro)."""
    request = PushRequest(
        inputs=tuple(inputs),
        key=(),
        input_format=input_format,
        options=pairs(option, "--option"),
        bad_rows_to=_bad_rows(on_bad_row, bad_rows_to),
    )
    wanted = asked_for("table load", name, input=input_said(request), prefix=prefix)
    asked = Asked(dry_run, json_output, request_id, detach, wanted)
    with cluster() as connected:
        again = run_again(connected, asked, _print_outcome)
        if again is not None:
            return again
        return _run(connected, connected.plan_load(name, request, prefix), spark_choice(master, conf, jars), asked)


@tables_app.command("import")
def import_files(
    name: str,
    files: Annotated[list[Path], typer.Argument(help="Parquet files; each becomes a segment of its name.")],
    *,
    request_id: RequestId = None,
    json_output: Json = False,
) -> int:
    """Make segments of existing Parquet files, as they are: without a config hash."""
    with cluster() as connected:
        view = connected.import_segments(name, files, request_id)
    _print_outcome(view, as_json=json_output)
    return exit_code(view)


@tables_app.command()
def refresh(
    name: str,
    *,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Also those that failed before.")] = False,
    reload_only: Annotated[
        bool | None, typer.Option("--reload-only/--no-reload-only", help="Only those that some node is behind with.")
    ] = None,
    force_reload: Annotated[
        bool | None, typer.Option("--force-reload/--no-force-reload", help="By the hash alone, without asking nodes.")
    ] = None,
    max_segments: Annotated[int | None, typer.Option(help="How many at most; 0: all.", min=0)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; change nothing.")] = False,
    plan_file: Annotated[Path | None, typer.Option("--plan", help="Run exactly the plan in this file.")] = None,
    request_id: RequestId = None,
    master: Master = None,
    conf: Conf = None,
    jars: Jars = None,
    detach: Detach = False,
    json_output: Json = False,
) -> int:
    """Rebuild the segments that are stale, in the deep store; nodes pick them up."""
    choice = PlanRefresh(
        reload_only=reload_only, force_reload=force_reload, max_segments=max_segments, retry_failed=retry_failed
    )
    with cluster() as connected:
        if plan_file is not None:
            if dry_run or choice != PlanRefresh():
                raise InvalidRequest("contradiction", "a plan says it all", found="--plan with other options")
            asked, plan = (
                Asked(dry_run, json_output, request_id, detach),
                read_plan(plan_file, TablePlan, name, (TableRebuildKind.REFRESH,)),
            )
        else:
            wanted = asked_for("table refresh", name, choice=choice.model_dump(mode="json"))
            asked = Asked(dry_run, json_output, request_id, detach, wanted)
            again = run_again(connected, asked, _print_outcome)
            if again is not None:
                return again
            plan = connected.plan_refresh(name, choice)
        return _run(connected, plan, spark_choice(master, conf, jars), asked)


@tables_app.command()
def repair(
    name: str,
    *,
    segment: Annotated[list[str] | None, typer.Option("--segment", help="Only this segment; may be repeated.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say which files are damaged; change nothing.")] = False,
    request_id: RequestId = None,
    json_output: Json = False,
) -> int:
    """Read all files in the deep store; bring those back that were changed or removed, from copies of nodes."""
    wanted = asked_for("table repair", name, segments=sorted(segment or ()))
    with cluster() as connected:
        again = run_again(
            connected, Asked(dry_run, json_output, request_id, detach=False, request=wanted), _print_outcome
        )
        if again is not None:
            return again
        plan = connected.plan_repair(name, segment or ()).model_copy(update={"asked": wanted})
        if dry_run:
            _print_plan(plan, as_json=json_output)
            return 0
        if not plan.segments:
            _print_nothing(plan, as_json=json_output)
            return 0
        view = connected.repair_table(plan, request_id)
    _print_outcome(view, as_json=json_output)
    return exit_code(view)


@tables_app.command()
def query(
    sql: Annotated[str, typer.Argument(help="One SELECT, or EXPLAIN of one.")],
    *,
    node: Annotated[str | None, typer.Option(help="Ask this node.")] = None,
    json_output: Json = False,
) -> None:
    """Ask the tables: DuckDB's SQL, on a node."""
    with cluster() as connected:
        answered = connected.query(sql, node)
    rows = json_rows(answered.table)
    if json_output:
        print_json({"columns": answered.table.column_names, "rows": rows, "reads": list(answered.reads)})
        return
    if answered.table.column_names == ["plan"]:
        for (line,) in rows:
            out().print(line, markup=False)
        return
    print_rows(answered.table.column_names, rows)


def _run(connected: Cluster, plan: TablePlan, spark: SparkChoice, asked: Asked) -> int:
    if asked.dry_run:
        _print_plan(plan, as_json=asked.as_json)
        return 0
    if plan.kind is TableRebuildKind.REFRESH and not plan.segments:
        _print_nothing(plan, as_json=asked.as_json)
        return 0
    return run(connected, plan, spark, asked, _print_outcome)


def _print_outcome(view: RebuildView, *, as_json: bool) -> None:
    made = view_as(view, TableRebuildView)
    if as_json:
        shown, refresh = shape(made), shape(made.refresh)
        print_json(shown if made.kind is TableRebuildKind.TABLE_LOAD else {**refresh, **shown})
        return
    print_table_outcome(made)


def _print_nothing(plan: TablePlan, *, as_json: bool) -> None:
    if as_json:
        skipped = [{"segment": name, "reason": why} for name, why in plan.skipped.items()]
        empty: dict[str, Any] = {"rebuild": None, "chosen": [], "refreshed": [], "stamped": [], "skipped": skipped}
        print_json({**empty, "drift": list(plan.drift), "failed": []})
        return
    out().print("nothing to refresh" if plan.kind is TableRebuildKind.REFRESH else "; ".join(plan.why))
    _print_left(plan)


def _print_plan(plan: TablePlan, *, as_json: bool) -> None:
    if as_json:
        print_json(plan.shown())
        return
    rows = [
        ("plan", plan.id),
        ("kind", plan.kind.value),
        ("table", plan.table),
        ("mode", plan.mode.value),
        ("configuration", plan.target.config_hash),
        ("segments", len(plan.segments)),
        ("rows", plan.estimate.records),
        ("bytes", plan.estimate.bytes),
        ("seconds", plan.estimate.seconds),
    ]
    print_table(["", ""], [(name, str(value)) for name, value in rows])
    for why in plan.why:
        out().print(f"  {why}", markup=False)
    if plan.replaces:
        print_table(["replaced"], [(name,) for name in plan.replaces])
        return
    chosen = [(s.segment, s.rows, s.bytes, "; ".join(s.reasons)) for s in plan.segments]
    print_table(["segment", "rows", "bytes", "why"], chosen)
    _print_left(plan)


def _print_left(plan: TablePlan) -> None:
    if plan.drift:
        out().print(f"drift: {len(plan.drift)} segments are stale in the deep store while nodes serve the newest")
    for name, why in list(plan.skipped.items())[:20]:
        out().print(f"  {name}: {why}", markup=False)
    if plan.left:
        out().print(f"{plan.left} stale segments are left")


def _print_table_view(view: TableView, *, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    out().print(f"{view.name}: {view.segments} segments, {view.rows} rows, {view.bytes} bytes")
    out().print(f"configuration {view.config_hash}, {view.stale} segments stale")
    columns = [(c.name, c.type, c.role, c.nullable, c.default) for c in view.columns]
    print_table(["column", "type", "role", "nullable", "default"], columns)
    print_table(["setting", "value"], [(name, json.dumps(value)) for name, value in shape(view.config).items()])


def _failed(segment: SegmentView) -> list[str]:
    """Why a refresh failed on a segment, as long as the configuration is the same."""
    failure = segment.failure
    if failure is None or failure.config_hash != segment.wanted_hash:
        return []
    return [f"failed: {failure.error}"]


def _copy(replica: CopyView | UnknownCopy, wanted: str) -> str:
    if replica.state != "serving":
        return str(replica.state)
    return "in sync" if replica.config_hash == wanted else "behind"


def _bad_rows(on_bad_row: str | None, bad_rows_to: Path | None) -> str | None:
    if on_bad_row not in (None, "skip"):
        raise InvalidRequest("bad_option", "--on-bad-row takes one word", found=on_bad_row, expected="skip")
    if (on_bad_row is None) != (bad_rows_to is None):
        raise InvalidRequest(
            "bad_option",
            "rows that do not fit are put aside, never dropped",
            found="one of --on-bad-row skip and --bad-rows-to FILE",
            expected="both, or neither",
        )
    return None if bad_rows_to is None else str(bad_rows_to.absolute())


def _settings(file: Path | None, given: list[str] | None) -> dict[str, Any]:
    """What a configuration file says, with what the command line says over it."""
    return {**({} if file is None else _document(file)), **pairs(given, "--set")}


def _document(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise NotFound("no_file", "the file does not exist", found=str(path), expected="a JSON or TOML file")
    text = path.read_text(encoding="utf-8")
    try:
        found = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(
            "bad_file", f"{path} cannot be read", found=str(error), expected="JSON, or TOML"
        ) from error
    if not isinstance(found, dict):
        raise InvalidRequest("bad_file", f"{path} holds no object", found=type(found).__name__, expected="an object")
    return found
