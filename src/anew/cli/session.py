"""What commands share: the connection, and the reading of their arguments."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import ValidationError

from anew.cli.output import err
from anew.codec.avro import AvroSchema
from anew.codec.nodes import PRIMITIVES
from anew.codec.plain import from_plain
from anew.core.errors import InvalidRequest, NotFound, Unreachable
from anew.runtime.connect import Cluster, connect_with
from anew.runtime.settings import resolve

_MOST_MISFITS = 5
_AWAY_SECONDS = 2.0

Answer = TypeVar("Answer")


@contextmanager
def cluster(fabric: str | None = None) -> Iterator[Cluster]:
    """The running cluster that the settings name.

    Raises:
        Unreachable: ``no_cluster``.
    """
    with connect_with(resolve({} if fabric is None else {"fabric": fabric})) as connected:
        yield connected


def asked_until_answered(ask: Callable[[], Answer]) -> Answer:
    """What a controller answers to who only looks: one that is started again is waited for, and that is said once."""
    from anew.api.waiting import wait_seconds

    told = None
    while True:
        try:
            return ask()
        except Unreachable as error:
            if str(error) != told:
                told = str(error)
                err().print(f"{told}; asking on", highlight=False, markup=False)
            wait_seconds(_AWAY_SECONDS)


def pairs(given: Sequence[str] | None, option: str, shape: str = "NAME=VALUE") -> dict[str, str]:
    """``k=v`` arguments as a mapping.

    Args:
        given: The arguments.
        option: Of which they are.
        shape: What one looks like, for who gets it wrong.

    Raises:
        InvalidRequest: ``bad_option``: no ``=``, or a key that was given twice.
    """
    found: dict[str, str] = {}
    for text in given if given is not None else ():
        key, separator, value = text.partition("=")
        if not separator or not key.strip() or key.strip() in found:
            raise InvalidRequest("bad_option", f"{option} takes {shape}, each name once", found=text, expected=shape)
        found[key.strip()] = value.strip()
    return found


def comma_list(text: str | None) -> tuple[str, ...]:
    """``a,b`` as a tuple; nothing for None."""
    return () if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def schema_text(argument: str) -> str:
    """A SCHEMA argument: JSON, ``@file.avsc``, or a primitive's name.

    Raises:
        NotFound: ``no_schema_file``.
        InvalidRequest: ``bad_schema``: the name of a file without its ``@``.
    """
    if not argument.startswith("@"):
        if _names_file(argument):
            raise InvalidRequest(
                "bad_schema",
                "this is no schema, but there is a file of that name",
                found=argument,
                expected="JSON, @file.avsc, or a primitive's name",
                hint=f"to read the file: @{argument}",
            )
        return argument
    path = Path(argument[1:])
    if not path.is_file():
        raise NotFound("no_schema_file", "the schema file does not exist", found=str(path), expected="an .avsc file")
    return path.read_text(encoding="utf-8")


def _names_file(argument: str) -> bool:
    if argument in PRIMITIVES or argument.lstrip().startswith(("{", "[", '"')):
        return False
    try:
        return Path(argument).is_file()
    except OSError:  # it is too long for a name
        return False


@contextmanager
def lines_of(path: str | None) -> Iterator[Iterator[tuple[int, str | bytes]]]:
    """The numbered lines of a file, or of stdin for None and ``-``; blank lines are passed over, and counted.

    Raises:
        NotFound: ``no_input``.
        InvalidRequest: ``bad_input``: no file, or one that this user may not read.
    """
    if path in (None, "-"):
        yield _numbered(sys.stdin)
        return
    expected = "a file of JSON lines, or -"
    try:
        source = _opened(Path(str(path)))
    except FileNotFoundError as error:
        raise NotFound("no_input", "the file does not exist", found=path, expected=expected) from error
    except IsADirectoryError as error:
        raise InvalidRequest("bad_input", "this is a directory", found=path, expected=expected) from error
    except OSError as error:
        found = f"{path}: {error.strerror}"
        raise InvalidRequest("bad_input", "the file cannot be read", found=found, expected=expected) from error
    with source:
        yield _numbered(source)


def _opened(path: Path) -> BinaryIO:
    return path.open("rb")


def _numbered(source: Iterable[str | bytes]) -> Iterator[tuple[int, str | bytes]]:
    return ((number, line) for number, line in enumerate(source, start=1) if line.strip())


def json_value(line: str | bytes) -> Any:
    """The JSON value in a line.

    Raises:
        InvalidRequest: ``bad_json``: says where it breaks.
    """
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        found = f"{error.msg} at column {error.colno}"
        raise InvalidRequest(
            "bad_json", "this is not JSON", found=found, expected="one JSON value in a line"
        ) from error
    except RecursionError:
        found = "brackets in brackets, deeper than this reader goes"
        raise InvalidRequest("bad_json", "this is not JSON", found=found, expected="one JSON value in a line") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest("bad_json", "this is not UTF-8", found=str(error), expected="JSON in UTF-8") from error


def misfits(error: ValidationError) -> list[str]:
    """Where a file is not what it is to be, the first few places, in the words of its fields."""
    places = error.errors(include_url=False)
    told = [f"{'.'.join(str(part) for part in p['loc']) or 'the file'}: {p['msg']}" for p in places[:_MOST_MISFITS]]
    return told if len(places) <= _MOST_MISFITS else [*told, f"and {len(places) - _MOST_MISFITS} more"]


def datum(schema: AvroSchema, plain: Any, what: str) -> Any:
    """A JSON value as a datum of the schema; a misfit says whether it was the key or the value."""
    try:
        return from_plain(schema, plain)
    except InvalidRequest as error:
        error.message = f"{what}: {error.message}"
        raise
