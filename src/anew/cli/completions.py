"""``completion``: the script that lets a shell complete ``anew``'s commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from typer import completion as shells

from anew.cli.output import Json, print_json


class Shell(StrEnum):
    """The shells that can be helped."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(completion)


def prepare() -> None:
    """Let the parser answer a shell that asks what comes next."""
    init: Any = shells.completion_init  # type: ignore[attr-defined]  # there, but not in its list of exports
    init()


def completion(
    shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")] = Shell.BASH, *, json_output: Json = False
) -> None:
    """Print the completion script of a shell: eval "$(anew completion bash)"."""
    make: Any = shells.get_completion_script  # type: ignore[attr-defined]  # there, but not in its list of exports
    script = make(prog_name="anew", complete_var="_ANEW_COMPLETE", shell=shell.value)
    if json_output:
        print_json({"shell": shell.value, "script": script})
    else:
        typer.echo(script)
