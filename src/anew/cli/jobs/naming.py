"""How commands are told which generation, and from where it is to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anew.cli.session import json_value
from anew.core.errors import InvalidRequest
from anew.core.jobs.deadletters import SKIP, STOP, OnBadRecord
from anew.core.jobs.positions import positions_of
from anew.core.jobs.properties import is_properties, positions_in
from anew.core.jobs.starts import AtOffsets, AtTopicOffsets, StartAt, is_number, start_of
from anew.core.moment import instant_ms
from anew.runtime.textfiles import text_in

Which = Annotated[str, typer.Argument(metavar="JOB[@GENERATION]")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="oldest, newest, a time (2013-12-03T12:00Z), a duration back from now (36h), of=JOB@GENERATION, or "
        "INPUT:PARTITION=OFFSET,…",
    ),
]
FromFile = Annotated[
    str | None,
    typer.Option("--from-file", help="Positions, as `anew job checkpoint show JOB@N` prints them (JSON, properties)."),
]
Clamp = Annotated[bool, typer.Option("--clamp", help="Move offsets that a log does not hold to the nearest.")]
HoldRetention = Annotated[
    bool, typer.Option("--hold-retention", help="Its inputs' topics forget nothing until it has caught up.")
]
OldestAvailable = Annotated[
    bool, typer.Option("--from-oldest-available", help="Of a time that retention has passed: the oldest record.")
]


def named(text: str) -> tuple[str, int | None]:
    """The job's name, and the generation's number where one is named.

    Raises:
        InvalidRequest: ``which_generation``.
    """
    name, separator, number = text.partition("@")
    if not separator:
        return name, None
    if not is_number(number):
        raise InvalidRequest("which_generation", "this names no generation", found=text, expected="JOB, or JOB@NUMBER")
    return name, int(number)


def time_of(option: str, text: str) -> int:
    """A time in ms since the epoch.

    Raises:
        InvalidRequest: ``bad_option``: it is none, or its zone is not named.
    """
    found = instant_ms(text)
    if found is None or found < 0:
        raise InvalidRequest(
            "bad_option", f"{option} takes a time with its zone", found=text, expected="2013-12-03T12:00Z, or later"
        )
    return found


def on_bad(text: str) -> OnBadRecord:
    """What a record does on which a job's function fails.

    Raises:
        InvalidRequest: ``bad_option``.
    """
    if text == SKIP:
        return SKIP
    if text == STOP:
        return STOP
    raise InvalidRequest("bad_option", "--on-bad-record takes one of two words", found=text, expected="stop or skip")


def start_from(text: str | None, file: str | None = None) -> StartAt | None:
    """What ``--from`` names, or the positions in a file.

    Raises:
        InvalidRequest: ``bad_start``, ``bad_option``, ``bad_json``, ``bad_positions``, ``which_generation``.
        NotFound: ``no_input``.
    """
    if file is None:
        return None if text is None else start_of(text)
    if text is not None:
        raise InvalidRequest("bad_option", "there are two starts", found="--from and --from-file", expected="one")
    return _positions_in(Path(file))


def _positions_in(path: Path) -> StartAt:
    content = text_in(path, "a file of positions")
    if is_properties(content):
        return AtTopicOffsets(topics=positions_in(content))
    return AtOffsets(offsets=positions_of(json_value(content)))
