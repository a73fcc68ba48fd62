"""``rebuild …``: following, ending and taking up the makings of versions."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from anew.api.rebuilds import DriverView, RebuildView, StoreRebuildView, TableRebuildView
from anew.cli.display import TerminalObserver, failed_lines, ledger_line, measure_line
from anew.cli.options import Conf, Jars, Master
from anew.cli.output import Json, JsonLines, out, print_json, print_line, print_table
from anew.cli.running import exit_code, print_outcome, spark_choice
from anew.cli.session import asked_until_answered, cluster
from anew.core.moment import utc_text

_WATCH_SECONDS = 0.5
"""So often it is looked how far a stage is."""

rebuilds_app = typer.Typer(help="Rebuilds: the makings of versions.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(rebuilds_app, name="rebuild")


@rebuilds_app.command("list")
def list_rebuilds(
    *,
    store: Annotated[str | None, typer.Option(help="Only this store's.")] = None,
    table: Annotated[str | None, typer.Option(help="Only this table's.")] = None,
    json_output: Json = False,
) -> None:
    """All rebuilds, newest first."""
    with cluster() as connected:
        found = connected.controller.rebuilds(store=store, table=table)
    if json_output:
        print_json(found)
        return
    rows = [(r.id, r.kind, _of(r), r.status, r.stage, r.error) for r in found]
    print_table(["rebuild", "kind", "of", "status", "stage", "error"], rows)


@rebuilds_app.command()
def show(rebuild: str, *, json_output: Json = False) -> None:
    """One rebuild: plan, stage, ledger, fingerprint, timings, error."""
    with cluster() as connected:
        view = connected.controller.rebuild(rebuild)
    if json_output:
        print_json(view)
        return
    shown = ("id", "kind", "store", "version", "table", "status", "stage", "records_per_s", "error")
    rows = [(name, getattr(view, name)) for name in shown if hasattr(view, name)]
    rows += [("started", _moment(view.created_at_ms)), ("ended", _moment(view.ended_at_ms))]
    driver = view.driver
    rows += [("last sign of life", _moment(driver.heard_at_ms)), ("lease until", _moment(driver.lease_until_ms))]
    rows += [(f"driver's {name}", getattr(driver, name)) for name in ("actor", "host", "pid", "log")]
    print_table(["", ""], [(name, value) for name, value in rows if value not in (None, "")])
    out().print(f"ledger: {ledger_line(view)}")
    for line in failed_lines(view.refresh) if isinstance(view, TableRebuildView) else ():
        out().print(f"failed: {line}", markup=False, soft_wrap=True)
    print_table(["stage", "seconds"], list(view.timings.items()))


@rebuilds_app.command()
def watch(rebuild: str, *, json_output: JsonLines = False) -> int:
    """Follow a rebuild until it ends."""
    last, stage = None, None
    with cluster() as connected:
        while True:
            ask = partial(connected.controller.rebuild, rebuild, after=stage, wait_seconds=_WATCH_SECONDS)
            # Where no controller is at all is said at once.
            view = ask() if last is None else asked_until_answered(ask)
            stage = view.stage
            line = {"status": view.status, "stage": view.stage, "progress": view.progress}
            silent_ms = view.driver.silent_ms
            if silent_ms is not None:
                # Told again now and then, and not in every moment.
                line["silent_seconds"] = silent_ms // 10_000 * 10
            if line != last:
                last = line
                measured = measure_line(view.progress)
                text = f"{view.status} {view.stage} {measured}".rstrip() + _silence(view.driver)
                print_line(line) if json_output else out().print(text, markup=False)
            if view.status != "running":
                return exit_code(view)


@rebuilds_app.command()
def logs(rebuild: str, *, json_output: Json = False) -> None:
    """What happened to a rebuild, oldest first."""
    with cluster() as connected:
        view = connected.controller.rebuild(rebuild)
        found = connected.controller.history(view.name, 1_000)
    for line in reversed(found):
        if line.detail.get("rebuild") == rebuild:
            print_line(line) if json_output else out().print(
                f"{line.at_ms} {line.actor} {line.what} {line.detail}", markup=False
            )


@rebuilds_app.command()
def kill(rebuild: str, *, json_output: Json = False) -> None:
    """End a rebuild, or give up its deferred version: it never becomes current, its files are reclaimed."""
    with cluster() as connected:
        view = connected.controller.kill_rebuild(rebuild)
    if json_output:
        print_json(view)
    else:
        out().print(_killed(view), markup=False)


@rebuilds_app.command()
def seen(rebuild: str, *, json_output: Json = False) -> None:
    """Say that a rebuild's failure is known: anew status does not tell it any more."""
    with cluster() as connected:
        answer = connected.controller.see_failure(rebuild)
    if json_output:
        print_json(answer)
    else:
        out().print(f"the failure of {rebuild} counts as seen")


@rebuilds_app.command()
def resume(
    rebuild: str, *, master: Master = None, conf: Conf = None, jars: Jars = None, json_output: Json = False
) -> int:
    """Take up a rebuild whose driver is gone, and bring it to its end."""
    spark = spark_choice(master, conf, jars)
    with cluster() as connected, TerminalObserver() as observer:
        view = connected.resume(rebuild, spark, observer)
    print_outcome(view, as_json=json_output)
    return exit_code(view)


def _killed(view: RebuildView) -> str:
    """What became of a rebuild that was killed, and of its version."""
    if not isinstance(view, StoreRebuildView):
        return f"{view.id} is {view.status}"
    fate = f"version {view.version} of {view.store} never becomes current, its files are reclaimed"
    if view.status == "succeeded":
        return f"{view.id} had succeeded; its deferred version is given up: {fate}"
    return f"{view.id} is {view.status}: {fate}"


def _silence(driver: DriverView) -> str:
    """What is to be said of a driver that was not heard for a while, or that says that it does not get on."""
    if driver.silent_ms is None:
        return "".join(f"; its driver does not get on: {trouble}" for trouble in driver.troubles)
    where = f"pid {driver.pid} on {driver.host}"
    return f"; its driver ({where}) has not been heard for {driver.silent_ms // 1000} s"


def _moment(ms: int | None) -> str | None:
    return None if ms is None else utc_text(ms)


def _of(view: RebuildView) -> str:
    """What a rebuild is of."""
    return f"{view.store}_v{view.version}" if isinstance(view, StoreRebuildView) else view.name
