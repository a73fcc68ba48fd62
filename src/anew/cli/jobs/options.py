"""Options that several commands for jobs have, and what they say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from anew.cli.output import err
from anew.cli.session import pairs
from anew.core.errors import InvalidRequest
from anew.core.jobs.deadletters import MOST_LETTERS
from anew.core.jobs.declaration import Declaration, Input, lateness_ms, start_named
from anew.core.jobs.plan import MOST_RECORDS
from anew.core.jobs.starts import is_number
from anew.core.suggest import did_you_mean
from anew.runtime.jobfile import SUFFIX, code_in_file
from anew.runtime.jobplans import Code

Function = Annotated[
    str,
    typer.Argument(metavar="FUNCTION", help="module:function, file.py:function, or a .toml file that declares a job."),
]
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
Inputs = Annotated[list[str] | None, typer.Option("--input", metavar="NAME=TOPIC", help="What the function reads.")]
DefaultStarts = Annotated[
    list[str] | None,
    typer.Option(
        "--default-start",
        metavar="NAME=oldest|newest|fail",
        help="Where an input begins without --from; fail: nowhere.",
    ),
]
Output = Annotated[str | None, typer.Option(help="store:NAME, or topic:NAME.")]
MaxLateness = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="How late records may be, 2h: so that older tombstones can be dropped."),
]
JobOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="K=V", help="One of the options below by its name, max_lateness=2h; may be repeated."
    ),
]
Why = Annotated[str | None, typer.Option("--why", metavar="TEXT", help="The reason, for the history.")]


def code_of(function: str, param: Sequence[str] | None, file: Sequence[str] | None, *, no_trial: bool) -> Code:
    """A function with its parameters and files."""
    files = {}
    for given in file or ():
        name, separator, path = given.partition("=")
        files[name if separator else Path(given).name] = Path(path if separator else given)
    params = pairs(param, "--param")
    if function.endswith(SUFFIX):
        code = code_in_file(Path(function), files, params, trial=not no_trial)
    else:
        code = Code(function, files, params, trial=not no_trial)
    if code.trial:
        err().print("trying the function first: Spark starts for that", markup=False)
    return code


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What a job is submitted with that has a name and a value: options of their own, or ``--set NAME=VALUE``."""

    max_lateness: str | None
    max_records: int
    on_bad_record: str
    dead_letter_limit: int

    def with_those(self, settings: Sequence[str] | None) -> JobSettings:
        """These, with those of ``--set``, which win.

        Raises:
            InvalidRequest: ``bad_option``: no such setting, or not a number.
        """
        changes: dict[str, Any] = {}
        for name, text in pairs(settings, "--set").items():
            if name not in self.__slots__:
                known = sorted(self.__slots__)
                hint = did_you_mean(name, known)
                raise InvalidRequest(
                    "bad_option", "a job has no such setting", found=name, expected=", ".join(known), hint=hint
                )
            is_count = isinstance(getattr(self, name), int)
            if is_count and not is_number(text):
                raise InvalidRequest("bad_option", f"{name} is a number", found=text, expected="such as 1000")
            changes[name] = int(text) if is_count else text
        return replace(self, **changes)


def declaration_in(
    inputs: Sequence[str] | None, default_start: Sequence[str] | None, output: str | None, max_lateness: str | None
) -> Declaration:
    """What options say of a job.

    Raises:
        InvalidRequest: ``bad_option``, ``bad_declaration``.
    """
    named = pairs(inputs, "--input", "NAME=TOPIC")
    starts = {name: start_named(start) for name, start in pairs(default_start, "--default-start").items()}
    declared = {name: Input(topic=named.get(name), start=starts.get(name)) for name in {**named, **starts}}
    return Declaration(inputs=declared, output=output, max_lateness_ms=lateness_ms(max_lateness))


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
