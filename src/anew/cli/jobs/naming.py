"""How commands are told which generation, and from where it is to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from anew.cli.session import json_value
from anew.core.errors import InvalidRequest, NotFound
from anew.core.jobs.deadletters import SKIP, STOP, OnBadRecord
from anew.core.jobs.positions import positions_of

_MOST_DIGITS = 18
"""No offset has more."""
Which = Annotated[str, typer.Argument(metavar="JOB[@GENERATION]")]
From = Annotated[str | None, typer.Option("--from", help="oldest, newest, or INPUT:PARTITION=OFFSET,…")]
FromFile = Annotated[
    str | None, typer.Option("--from-file", help="Positions, as `anew job checkpoint show JOB@N --json` prints them.")
]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def named(text: str) -> tuple[str, int | None]:
    """The job's name, and the generation's number where one is named.

    Raises:
        InvalidRequest: ``which_generation``.
    """
    name, separator, number = text.partition("@")
    if not separator:
        return name, None
    if not _is_number(number):
        raise InvalidRequest("which_generation", "this names no generation", found=text, expected="JOB, or JOB@NUMBER")
    return name, int(number)


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


def start_of(text: str | None, file: str | None = None) -> Any:
    """``oldest``, ``newest``, or offsets: ``INPUT:PARTITION=OFFSET,…``, or those in a file.

    Raises:
        InvalidRequest: ``bad_start``, ``bad_option``, ``bad_json``, ``bad_positions``, ``which_generation``.
        NotFound: ``no_input``.
    """
    if file is not None:
        if text is not None:
            raise InvalidRequest("bad_option", "there are two starts", found="--from and --from-file", expected="one")
        return _positions_in(Path(file))
    if text in (None, "oldest", "newest"):
        return text
    found: dict[str, dict[int, int]] = {}
    for part in str(text).split(","):
        place, _, offset = part.partition("=")
        name, _, partition = place.rpartition(":")
        if not (name and _is_number(partition) and _is_number(offset)) or int(partition) in found.get(name, {}):
            raise InvalidRequest(
                "bad_start",
                "this is no start",
                found=part,
                expected="oldest, newest, or INPUT:PARTITION=OFFSET,…, each partition once",
                hint="for example --from flights:0=120,flights:1=98",
            )
        found.setdefault(name, {})[int(partition)] = int(offset)
    return found


def _positions_in(path: Path) -> dict[str, dict[int, int]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotFound(
            "no_input", "the file cannot be read", found=f"{path}: {error.strerror}", expected="a file of positions"
        ) from error
    return positions_of(json_value(content))
