"""``job undo``: taking the last rewind back."""

from __future__ import annotations

from typing import Annotated

import typer

from anew.cli.output import Json, out, print_json
from anew.cli.session import cluster
from anew.core.jobs.undoing import Undoing


def undo(
    name: str,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Go back also to a generation that is behind, or does not run.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Take the last rewind back: drop its generation, or go back to the one before where it was cut over to."""
    with cluster() as connected:
        answer = connected.job(name).undo(force=force)
    if json_output:
        print_json(answer)
        return
    if answer.how is Undoing.DROP:
        out().print(f"{name}: generation {answer.undone} is dropped, generation {answer.live} serves as before")
    else:
        again = f"anew job cutover {name}, or drop it: anew job undo {name}"
        out().print(f"{name}: generation {answer.live} serves again, {answer.undone} goes on beside: {again}")
