"""``job checkpoint …``: where generations stand in their inputs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from anew.api.jobs.views import CheckpointsView, JobView
from anew.cli.jobs.naming import Which, named
from anew.cli.output import Json, out, print_json, print_table
from anew.cli.session import cluster
from anew.core.errors import InvalidRequest
from anew.core.jobs.positions import which_generation
from anew.core.jobs.properties import properties_of
from anew.core.moment import instant_text

_PROPERTIES = "properties"

checkpoints_app = typer.Typer(help="Where generations stand in their inputs.", no_args_is_help=True)


@checkpoints_app.callback()
def checkpoint() -> None:
    """Where generations stand in their inputs."""


@checkpoints_app.command("show")
def show_checkpoints(
    which: Which,
    *,
    form: Annotated[
        str | None, typer.Option("--format", metavar="properties", help="As Samza's checkpoint tool writes them.")
    ] = None,
    json_output: Json = False,
) -> None:
    """The positions of a job's generations, or of one: JSON and properties are what --from-file takes."""
    if form not in (None, _PROPERTIES) or (form is not None and json_output):
        found_form = f"--format {form}" + (" and --json" if json_output else "")
        raise InvalidRequest("bad_option", "there is one other form", found=found_form, expected="--format properties")
    name, number = named(which)
    with cluster() as connected:
        found = connected.job(name).checkpoints(number)
        if form is not None:
            _print_properties(found, connected.job(name).show())
            return
    if json_output:
        print_json(found)
        return
    for each in found.checkpoints:
        batch = "no batch yet" if each.batch is None else f"batch {each.batch} of {time_text(each.recorded_at_ms)}"
        out().print(f"{name}@{each.generation} {each.status}: {batch}, {each.lag_records} records behind")
        rows = [
            (of, partition, position.offset, time_text(position.time_ms), position.lag, position.begin, position.end)
            for of, partitions in sorted(each.positions.items())
            for partition, position in sorted(partitions.items())
        ]
        print_table(["input", "partition", "next offset", "time", "lag", "begin", "end"], rows)


def _print_properties(found: CheckpointsView, job: JobView) -> None:
    """One generation's positions, as the last offsets that it processed.

    Raises:
        InvalidRequest: ``which_generation``; ``bad_option``: two inputs read one topic, which has one line here.
    """
    if len(found.checkpoints) != 1:
        raise which_generation(len(found.checkpoints))
    (each,) = found.checkpoints
    topics = {name: job.inputs[name] for name in each.positions}
    if len(set(topics.values())) < len(topics):
        raise InvalidRequest(
            "bad_option",
            "two inputs read one topic: this form has one line for a partition",
            found="--format properties",
            expected="--json",
        )
    positions = {topics[name]: {p: at.offset for p, at in of.items()} for name, of in each.positions.items()}
    sys.stdout.write(f"# {job.name}@{each.generation}: the last offsets that were processed, -1 for none\n")
    for line in properties_of("anew", positions):
        sys.stdout.write(f"{line}\n")


def time_text(at_ms: int | None) -> str | None:
    """A time as tables have it; none is no text."""
    return None if at_ms is None else instant_text(at_ms)
