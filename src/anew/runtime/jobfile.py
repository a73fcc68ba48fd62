"""A job declared by a file, in TOML: its function with what that is given, and what it reads and writes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from anew.core.errors import InvalidRequest
from anew.core.jobs.code import parse_entry
from anew.core.jobs.declaration import Declaration, Input, lateness_ms, misfit_of, start_named
from anew.runtime.jobplans import Code
from anew.runtime.textfiles import text_in

SUFFIX = ".toml"


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    topic: str | None = None
    start: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_a_name(cls, said: Any) -> Any:
        """``flights = "flight_events"`` names the topic alone."""
        return {"topic": said} if isinstance(said, str) else said


class _JobFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    function: str
    output: str | None = None
    max_lateness: str | None = None
    inputs: dict[str, _Input] = {}
    params: dict[str, str | bool | int | float] = {}
    files: dict[str, str] = {}


def code_in_file(
    path: Path, files: Mapping[str, Path], params: Mapping[str, str | float], *, trial: bool = True
) -> Code:
    """The code that a file declares, with the declaration.

    Args:
        path: The file. Paths in it are relative to its folder.
        files: What the function is given besides; each wins over the file's of that name.
        params: Likewise.
        trial: See `Code`.

    Raises:
        NotFound: ``no_input``: there is no such file.
        InvalidRequest: ``bad_declaration``, ``bad_entry``.
    """
    said = _read(path)
    folder = path.expanduser().resolve().parent
    entry = parse_entry(said.function)
    inputs = {name: _input(of) for name, of in said.inputs.items()}
    return Code(
        entry=f"{folder / entry.where}:{entry.function}" if entry.is_file else said.function,
        files={**{name: folder / where for name, where in said.files.items()}, **files},
        params={**said.params, **params},
        trial=trial,
        declared=Declaration(inputs=inputs, output=said.output, max_lateness_ms=lateness_ms(said.max_lateness)),
        declared_by=str(path),
    )


def _read(path: Path) -> _JobFile:
    text = text_in(path, "a file that declares a job")
    try:
        return _JobFile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise _bad(path, str(error), "TOML") from error
    except ValidationError as error:
        raise _bad(path, misfit_of(error), f"{', '.join(_JobFile.model_fields)}") from error


def _input(of: _Input) -> Input:
    return Input(topic=of.topic, start=None if of.start is None else start_named(of.start))


def _bad(path: Path, found: str, expected: str) -> InvalidRequest:
    return InvalidRequest(
        "bad_declaration",
        f"{path} declares no job",
        found=found,
        expected=expected,
        hint='for example: function = "delays.py:classify", [inputs] flights = "flights_in", '
        '[files] "model.bin" = "models/model.bin"',
    )
