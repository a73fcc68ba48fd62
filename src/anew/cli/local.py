"""``status``, ``doctor``, ``node list``, ``settings show``, ``demo``: looking at what runs here."""

from __future__ import annotations

import resource
import shutil
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from anew.cli.output import Json, err, out, print_json, print_table
from anew.cli.session import cluster
from anew.core.errors import AnewError
from anew.core.moment import utc_text
from anew.demo.stores import run_demo
from anew.demo.tables import run_demo as run_tables_demo
from anew.runtime.home import Home
from anew.runtime.java import check_java
from anew.runtime.settings import PROCESS_SETTINGS, ProcessSettings, resolve

_DEGRADED = 6
_LEAST_FILES = 1_024
_LEAST_FREE_BYTES = 1 << 30

nodes_app = typer.Typer(help="The storage nodes.", no_args_is_help=True)
settings_app = typer.Typer(help="The settings of processes.", no_args_is_help=True)
demo_app = typer.Typer(help="Plays a guide's main story on real data.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (status, doctor):
        app.command()(command)
    app.add_typer(nodes_app, name="node")
    app.add_typer(settings_app, name="settings")
    app.add_typer(demo_app, name="demo")


def status(*, json_output: Json = False) -> int:
    """What is unhealthy, since when, and which command comes next. Exit 6 when something is."""
    with cluster() as connected:
        view = connected.controller.status()
    if json_output:
        print_json(view.model_dump(mode="json"))
        return 0 if view.healthy else _DEGRADED
    out().print("healthy" if view.healthy else "[bold yellow]degraded[/]")
    for problem in view.problems:
        out().print(f"  {problem.what}  → {problem.hint}")
    for note in view.notes:
        out().print(f"  note: {note.what}  → {note.hint}", markup=False)
    print_table(
        ["node", "fabric", "alive", "replicas", "states"],
        [(n.id, n.fabric, "yes" if n.alive else "no", n.replicas, _counts(n.states)) for n in view.nodes],
    )
    rows = [
        (s.name, fabric, f.current, f.lag_records, "pending" if s.stale else "")
        for s in view.stores
        for fabric, f in s.fabrics.items()
    ]
    print_table(["store", "fabric", "version", "lag", "changes"], rows)
    for rebuild in view.rebuilds:
        of, driver = rebuild.name, rebuild.driver
        heard_ms = driver.heard_at_ms
        who = f"driver pid {driver.pid} on {driver.host}, heard {utc_text(heard_ms)}" if heard_ms else "no driver now"
        text = f"rebuild {rebuild.id} of {of}: {rebuild.stage} since {utc_text(rebuild.created_at_ms)}; {who}"
        out().print(text, markup=False)
    return 0 if view.healthy else _DEGRADED


def doctor(*, json_output: Json = False) -> int:
    """Look at what anew needs on this machine. Exit 1 when something is missing."""
    checks: list[dict[str, Any]] = []
    settings = resolve({})

    def look(name: str, check: Callable[[], str]) -> None:
        try:
            checks.append({"check": name, "ok": True, "found": check(), "hint": None})
        except AnewError as error:
            checks.append({"check": name, "ok": False, "found": str(error.found), "hint": error.hint})

    look("python", lambda: sys.version.split()[0])
    look("java", lambda: f"Java {check_java()}")
    look("cluster", lambda: _controller_url(settings))
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    checks.append(_limit("open files", soft, _LEAST_FILES, "raise it: ulimit -n 65536"))
    where = settings.home if settings.home.is_dir() else settings.home.parent
    free = shutil.disk_usage(where if where.is_dir() else "/").free
    checks.append(_limit("free bytes of the home", free, _LEAST_FREE_BYTES, "make room"))
    if json_output:
        print_json({"healthy": all(check["ok"] for check in checks), "checks": checks})
    else:
        rows = [("ok" if c["ok"] else "MISSING", c["check"], c["found"], c["hint"]) for c in checks]
        print_table(["", "check", "found", "what to do"], rows)
    return 0 if all(check["ok"] for check in checks) else 1


def _controller_url(settings: ProcessSettings) -> str:
    url = settings.optional("url")
    return Home(settings.home).running().url if url is None else url


def _limit(name: str, found: int, least: int, hint: str) -> dict[str, Any]:
    enough = found >= least
    return {"check": name, "ok": enough, "found": str(found), "hint": None if enough else hint}


@nodes_app.command("list")
def node_list(*, json_output: Json = False) -> None:
    """All nodes: where they are, whether they report, what they hold."""
    with cluster() as connected:
        found = connected.controller.nodes()
    if json_output:
        print_json([node.model_dump(mode="json") for node in found])
        return
    rows = [
        (n.id, n.fabric, n.url, "yes" if n.alive else "no", "yes" if n.drained else "", n.replicas, _counts(n.states))
        for n in found
    ]
    print_table(["node", "fabric", "url", "alive", "drained", "replicas", "states"], rows)


@settings_app.command("show")
def settings_show(*, json_output: Json = False) -> None:
    """Each setting, its value and where it came from."""
    resolved = resolve({}).resolved
    if json_output:
        shown = {name: PROCESS_SETTINGS[name].show(r.value) for name, r in resolved.items()}
        print_json({name: {"value": shown[name], "source": r.source} for name, r in resolved.items()})
        return
    rows = [
        (name, PROCESS_SETTINGS[name].show(r.value), r.source, PROCESS_SETTINGS[name].meaning)
        for name, r in resolved.items()
    ]
    print_table(["setting", "value", "from", "meaning"], rows)


@demo_app.command("stores")
def demo_stores(
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster running afterwards.")] = False,
    every: Annotated[int, typer.Option("--every", min=1, max=100, help="Take one flight of so many alone.")] = 1,
    kafka: Annotated[bool, typer.Option("--kafka", help="Write through a Kafka broker of the demo's own.")] = False,
    json_output: Json = False,
) -> int:
    """Push real flights, write on top, repush under load, check every key, roll back, swap forward."""
    summary = run_demo(print_step=lambda text: err().print(text), keep=keep, every=every, kafka=kafka)
    if json_output:
        print_json(summary.to_json())
    else:
        out().print(summary.text())
    return 0 if summary.passed else 1


@demo_app.command("tables")
def demo_tables(
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster running afterwards.")] = False,
    every: Annotated[int, typer.Option("--every", min=1, max=100, help="Take one flight of so many alone.")] = 1,
    scenarios: Annotated[bool, typer.Option(help="Play the guide's scenario table as well.")] = True,
    json_output: Json = False,
) -> int:
    """Load real flights as segments, change the configuration, refresh under queries, let a fresh node join."""
    summary = run_tables_demo(
        print_step=lambda text: err().print(text, markup=False), keep=keep, every=every, scenarios=scenarios
    )
    if json_output:
        print_json(summary.to_json())
    else:
        out().print(summary.text(), markup=False)
    return 0 if summary.passed else 1


@demo_app.command("streams")
def demo_streams(
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster running afterwards.")] = False,
    every: Annotated[int, typer.Option("--every", min=1, max=100, help="Take one flight of so many alone.")] = 1,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Read and write topics of a Kafka broker of the demo's own.")
    ] = False,
    json_output: Json = False,
) -> int:
    """Sort real flights with a stream job, correct it beside the live one, cut over, back and over, check every key."""
    from anew.demo.streams import run_demo as run_streams_demo

    summary = run_streams_demo(
        print_step=lambda text: err().print(text, markup=False), keep=keep, every=every, kafka=kafka
    )
    if json_output:
        print_json(summary.to_json())
    else:
        out().print(summary.text(), markup=False)
    return 0 if summary.passed else 1


def _counts(states: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.items())
