"""``job checkpoint …``: where generations stand in their inputs."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from anew.cli.jobs.naming import Which, named
from anew.cli.output import Json, out, print_json, print_table
from anew.cli.session import cluster

checkpoints_app = typer.Typer(help="Where generations stand in their inputs.", no_args_is_help=True)


@checkpoints_app.callback()
def checkpoint() -> None:
    """Where generations stand in their inputs."""


@checkpoints_app.command("show")
def show_checkpoints(which: Which, *, json_output: Json = False) -> None:
    """The positions of a job's generations, or of one; with --json as --from-file takes them. Nothing is written."""
    name, number = named(which)
    with cluster() as connected:
        found = connected.job(name).checkpoints(number)
    if json_output:
        print_json(found)
        return
    for each in found.checkpoints:
        batch = "no batch yet" if each.batch is None else f"batch {each.batch} of {_time(each.recorded_at_ms)}"
        out().print(f"{name}@{each.generation} {each.status}: {batch}, {each.lag_records} records behind")
        rows = [
            (of, partition, position.offset, _time(position.time_ms), position.lag, position.begin, position.end)
            for of, partitions in sorted(each.positions.items())
            for partition, position in sorted(partitions.items())
        ]
        print_table(["input", "partition", "next offset", "time", "lag", "begin", "end"], rows)


def _time(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
