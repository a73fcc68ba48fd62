"""``anew``: the entry point, and what becomes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import version as release_of
from typing import Annotated, Any

import typer
from typer.main import get_command

from anew.cli import completions
from anew.cli.output import print_error, print_json
from anew.core.errors import AnewError, InvalidRequest
from anew.runtime.logs import log_to_stderr
from anew.runtime.security import keep_files_private

INTERRUPTED = 130

_CLICK_ERRORS: tuple[type[Exception], ...] = tuple(
    cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException"
)
"""The root of what the parser raises; Typer brings its own copy of Click and does not name the class."""

_COMMANDS: dict[str, tuple[str, ...]] = {
    "completions": ("completion",),
    "embedded": ("up", "down"),
    "local": ("status", "doctor", "node", "settings", "demo"),
    "history": ("history",),
    "stores.commands": ("store",),
    "stores.repair": ("store",),
    "stores.making": ("push", "repush"),
    "rebuilds": ("rebuild",),
    "stores.swaps": ("swap", "rollback"),
    "stores.reads": ("get", "scan", "write"),
    "upkeep": ("gc", "pause", "unpause", "node"),
    "catalog": ("catalog",),
    "kafka": ("kafka",),
    "tables.commands": ("table",),
    "jobs.commands": ("job",),
    "topics": ("topic",),
    "tokens": ("token",),
}
"""Module → the commands that it adds. Only the modules of the command that is asked for are imported: all of them take
half a second, most commands nothing like that."""


def main(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the release and end.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="With --version: as JSON.")] = False,
) -> None:
    """Rebuild derived data from what you already hold, while readers go on reading."""
    if version:
        release = release_of("anew")
        if json_output:
            print_json({"version": release})
        else:
            typer.echo(f"anew {release}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def prepare(arguments: Sequence[str]) -> None:
    """Import what a command needs; it would be imported when the command runs."""
    _parser(_asked_for(arguments))


def run(arguments: list[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    keep_files_private()
    code = run_command(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # A reader that closes the pipe (`anew scan … | head`) ends the command quietly. Never by the signal: it would
        # also end a command that writes to a node which has just closed its connection.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run_command(arguments: list[str]) -> int:
    """Run one command; returns the exit code of the face."""
    as_json = "--json" in arguments
    completions.prepare()
    log_to_stderr("warning")
    try:
        result = _parser(_asked_for(arguments))(arguments, standalone_mode=False, prog_name="anew")
    except AnewError as error:
        print_error(error, as_json=as_json)
        return error.exit_code
    except _CLICK_ERRORS as error:
        usage = InvalidRequest("usage", _message(error), found=" ".join(arguments), hint="anew --help")
        print_error(usage, as_json=as_json)
        return usage.exit_code
    except (KeyboardInterrupt, typer.Abort):
        if as_json:
            print_json(
                {
                    "error": {
                        "code": "interrupted",
                        "message": "interrupted",
                        "found": None,
                        "expected": None,
                        "hint": "anew rebuild list",
                    }
                }
            )
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def _asked_for(arguments: Sequence[str]) -> str | None:
    """The command that is named; None where none is, or there is no such command: help and advice know all of them."""
    named = next((argument for argument in arguments if not argument.startswith("-")), None)
    return named if any(named in commands for commands in _COMMANDS.values()) else None


@cache
def _parser(command: str | None) -> Any:
    """One command and its options, or all; calling an app would gather them again for each command of a process."""
    app = typer.Typer(
        name="anew",
        help="Rebuild derived data from what you already hold, while readers go on reading.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(main)
    for module, commands in _COMMANDS.items():
        if command is None or command in commands:
            import_module(f"anew.cli.{module}").add_to(app)
    return get_command(app)


def _message(error: Any) -> str:
    return str(error.format_message())
