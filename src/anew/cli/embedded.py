"""``up`` and ``down``: the embedded cluster of a home."""

from __future__ import annotations

from typing import Annotated

import typer

from anew.cli.options import Fabrics
from anew.cli.output import Json, err, out, print_json
from anew.core.errors import AnewError, PartlyDone
from anew.runtime.detached import planned_cluster, start_detached, stop, wait_until_up
from anew.runtime.home import Home, using_home
from anew.runtime.logs import log_to_file
from anew.runtime.outside import check_log, check_registry, cluster_deep_store
from anew.runtime.settings import home_named, resolve
from anew.runtime.supervisor import Supervisor, check_ports


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (up, down):
        app.command()(command)


def up(
    *,
    nodes: Annotated[int | None, typer.Option(help="How many storage nodes. [default: 2]")] = None,
    fabric: Fabrics = None,
    port: Annotated[int | None, typer.Option(help="The controller's port; the nodes take the ones after it.")] = None,
    bind: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return once the cluster is up.")] = False,
    json_output: Json = False,
) -> None:
    """Start an embedded cluster: controller and nodes as processes. Runs until Ctrl-C unless detached."""
    flags = {name: value for name, value in (("nodes", nodes), ("port", port), ("bind", bind)) if value is not None}
    settings = resolve(dict(flags))
    home = Home(settings.home)
    with home.lock():
        planned = planned_cluster(settings, home, tuple(fabric if fabric is not None else ()))
        check_ports(planned)
        cluster_deep_store(settings, home, planned.fabric).check()
        check_log(settings, home, planned.fabric)
        check_registry(settings)
    starter = start_detached(home, planned) if detach else None
    if starter is None:
        with using_home(home.path):
            log_to_file(home.log_file("supervisor"), "supervisor", settings.text("log_level"))
        err().print(f"starting in {home.path}: controller {planned.url}, {len(planned.nodes)} nodes; Ctrl-C ends it")
        Supervisor(settings, planned, home).run()
        return
    try:
        wait_until_up(home, planned, settings, starter)
    except PartlyDone:
        raise
    except AnewError:
        stop(home)
        raise
    answer = {"url": planned.url, "home": str(home.path), "fabric": planned.fabric, "nodes": list(planned.nodes)}
    if json_output:
        print_json(answer)
    else:
        out().print(f"up: controller {planned.url}, {len(planned.nodes)} nodes, fabric {planned.fabric}")


def down(*, json_output: Json = False) -> None:
    """End the embedded cluster of the home; its data stays."""
    try:
        resolve({})
    except AnewError as error:
        err().print(f"warning: the settings cannot be read, which the next anew up will need: {error}", markup=False)
    stopped = stop(Home(home_named()))
    if json_output:
        print_json({"stopped": stopped})
    else:
        out().print("down" if stopped else "nothing was running")
