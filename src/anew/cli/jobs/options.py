"""Options that several commands for jobs have, and what they say together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from anew.cli.session import pairs
from anew.core.errors import InvalidRequest
from anew.core.jobs.deadletters import MOST_LETTERS
from anew.core.jobs.plan import MOST_RECORDS
from anew.runtime.jobplans import Code

Function = Annotated[str, typer.Argument(metavar="FUNCTION", help="module:function, or file.py:function.")]
OtherFunction = Annotated[
    str | None, typer.Argument(metavar="[FUNCTION]", help="Other code than the live generation's; as in submit.")
]
Params = Annotated[list[str] | None, typer.Option("--param", metavar="K=V", help="A parameter of the function.")]
Files = Annotated[list[str] | None, typer.Option("--file", metavar="[NAME=]PATH", help="A file for the function.")]
MaxRecords = Annotated[int, typer.Option(help="At most so many records in one batch.", min=1, max=MOST_RECORDS)]
OnBad = Annotated[
    str, typer.Option("--on-bad-record", metavar="stop|skip", help="Of a record on which the function fails.")
]
DeadLetterLimit = Annotated[int, typer.Option(help="So many records may be left out.", min=1, max=MOST_LETTERS)]
NoTrial = Annotated[bool, typer.Option("--no-trial", help="Do not try the function before.")]
Why = Annotated[str | None, typer.Option("--why", metavar="TEXT", help="The reason, for the history.")]


def code_of(function: str, param: Sequence[str] | None, file: Sequence[str] | None, *, no_trial: bool) -> Code:
    """A function with its parameters and files."""
    files = {}
    for given in file or ():
        name, separator, path = given.partition("=")
        files[name if separator else Path(given).name] = Path(path if separator else given)
    return Code(function, files, pairs(param, "--param"), trial=not no_trial)


def other_code_of(
    function: str | None, param: Sequence[str] | None, file: Sequence[str] | None, *, no_trial: bool
) -> Code | None:
    """Other code than the live generation's, where some is named.

    Raises:
        InvalidRequest: ``bad_option``: parameters or files without a function.
    """
    if function is None and (param or file):
        raise InvalidRequest(
            "bad_option",
            "parameters and files are frozen with code",
            found="--param or --file, and no function",
            expected="a function with them",
            hint="name the function again; without one the live generation's is taken, with its parameters",
        )
    return None if function is None else code_of(function, param, file, no_trial=no_trial)
