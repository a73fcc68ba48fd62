"""``kafka up|down|status``: real Kafka brokers on this machine, to try things out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from anew.brokers.cluster import find, start, stop
from anew.brokers.configuration import BrokerSettings
from anew.cli.output import Json, err, out, print_json, print_table
from anew.runtime.home import Home
from anew.runtime.settings import home_named

_DEGRADED = 6

kafka_app = typer.Typer(help="Kafka brokers on this machine, for trying out.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(kafka_app, name="kafka")


@kafka_app.command()
def up(
    *,
    brokers: Annotated[int | None, typer.Option("--brokers", help="1 or 3. [default: as before, or 1]")] = None,
    json_output: Json = False,
) -> None:
    """Start Kafka, or what of it does not run, and return once it answers. The first time its jars are fetched."""
    directory = _directory()
    err().print(f"starting in {directory}")
    cluster = start(directory, None if brokers is None else BrokerSettings(brokers))
    if json_output:
        print_json(
            {
                "bootstrap": cluster.bootstrap,
                "cluster_id": cluster.record.cluster_id,
                "directory": str(directory),
                "brokers": [{"id": id, "port": ports.client} for id, ports in cluster.record.brokers.items()],
                "started": list(cluster.started),
            }
        )
        return
    count = len(cluster.record.brokers)
    told = f"{'up' if cluster.started else 'already up'}: {count} {'broker' if count == 1 else 'brokers'}"
    out().print(f"{told}, {cluster.bootstrap}", markup=False)
    err().print(f"to use it: ANEW_LOG=kafka://{cluster.bootstrap} anew up", markup=False)


@kafka_app.command()
def down(*, json_output: Json = False) -> None:
    """End all brokers of the home; what they hold stays."""
    stopped = stop(_directory())
    if json_output:
        print_json({"stopped": stopped})
    else:
        out().print("down" if stopped else "nothing was running")


@kafka_app.command()
def status(*, json_output: Json = False) -> int:
    """Which brokers live and answer. Exit 6 when one does not."""
    found = find(_directory()).status()
    if json_output:
        print_json(asdict(found))
    else:
        out().print("healthy" if found.healthy else "[bold yellow]degraded[/]  → anew kafka up")
        rows = [
            (b.id, f"127.0.0.1:{b.port}", b.pid, "yes" if b.alive else "no", "yes" if b.answers else "no")
            for b in found.brokers
        ]
        print_table(["broker", "address", "pid", "alive", "answers"], rows)
    return 0 if found.healthy else _DEGRADED


def _directory() -> Path:
    home = Home(home_named())
    home.look()
    return home.path / "kafka"
