"""A job's function: imported from its archive, checked against its inputs, and called with frames.

A function takes a frame for each input, by the input's name; keyword-only parameters take what was given with
``--param``, as the type that they are annotated with, else as that of their default; ``files``, where it has that
parameter, takes name → path.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import Any, get_args, get_type_hints

from pydantic import ValidationError

from anew.core.errors import InvalidRequest
from anew.core.jobs.code import FILES, JobCode
from anew.core.jobs.declaration import Input, misfit_of
from anew.rebuild.jobs.archive import Unpacked
from anew.spark.session import DataFrame

_CONVERT: dict[Any, Callable[[str], Any]] = {
    str: str,
    Any: str,
    object: str,
    int: int,
    float: float,
    bool: lambda text: {"true": True, "false": False}[text.lower()],
}

JobFunction = Callable[..., DataFrame]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A function that can be called.

    Attributes:
        inputs: Its parameters that take frames.
        given: What its other parameters are called with.
    """

    function: JobFunction
    inputs: tuple[str, ...]
    given: Mapping[str, Any]

    def __call__(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """What the function makes of frames.

        Raises:
            InvalidRequest: ``function_failed``, ``not_a_frame``.
        """
        try:
            made = self.function(**frames, **self.given)
        except Exception as error:
            raise _bad(
                "function_failed", "the job's function raised", f"{type(error).__name__}: {error}", "a frame"
            ) from error
        if not isinstance(made, DataFrame):
            raise _bad("not_a_frame", "the job's function gives no frame", type(made).__name__, "a DataFrame")
        return made


def load(code: JobCode, unpacked: Unpacked, inputs: Sequence[str]) -> Loaded:
    """Import the function of a code, and check that its parameters are the inputs and what it was given.

    Raises:
        InvalidRequest: ``import_failed``, ``no_function``, ``bad_parameters``, ``bad_param``.
    """
    function = imported(code, unpacked.modules)
    parameters = inspect.signature(function).parameters
    frames = [name for name, p in parameters.items() if p.kind is not p.KEYWORD_ONLY and name != FILES]
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY) for p in parameters.values()):
        raise _bad(
            "bad_parameters", f"{code.entry} takes parameters without names", str(parameters), "named parameters"
        )
    if sorted(frames) != sorted(inputs):
        raise _bad(
            "bad_parameters",
            f"{code.entry} takes other frames than the job has inputs",
            ", ".join(frames) or "no parameter",
            ", ".join(inputs),
            "a parameter for each input, of its name; parameters of --param stand behind a *",
        )
    given = _given(code, function, parameters)
    if FILES in parameters:
        given[FILES] = dict(unpacked.files)
    return Loaded(function, tuple(frames), given)


def imported(code: JobCode, modules: Path) -> JobFunction:
    """The function of a code, from the folder of its modules.

    Raises:
        InvalidRequest: ``import_failed``, ``no_function``, ``bad_declaration``.
    """
    if str(modules) not in sys.path:
        sys.path.insert(0, str(modules))
    try:
        module = importlib.import_module(code.module)
    except InvalidRequest:
        # What the module declares is no job.
        raise
    except Exception as error:
        if isinstance(error, ValidationError) and error.title == Input.__name__:
            raise _bad(
                "bad_declaration",
                f"what the module {code.module} declares is no job",
                misfit_of(error),
                "@anew.job(inputs={NAME: anew.Input(topic=…, start=…)}, output=…, max_lateness=…)",
            ) from error
        raise _bad(
            "import_failed",
            f"the module {code.module} cannot be imported",
            f"{type(error).__name__}: {error}",
            "a module that imports; packages are the environment's",
        ) from error
    found = getattr(module, code.function, None)
    if not callable(found):
        names = sorted(n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__)
        raise _bad(
            "no_function",
            f"the module {code.module} has no such function",
            f"{code.function}: {type(found).__name__}",
            ", ".join(names) or "a function",
        )
    function: JobFunction = found
    return function


def _given(code: JobCode, function: JobFunction, parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    named = {n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY and n != FILES}
    unknown = sorted(code.params.keys() - named.keys())
    missing = sorted(n for n, p in named.items() if p.default is p.empty and n not in code.params)
    if unknown or missing:
        raise _bad(
            "bad_param",
            f"{code.entry} is given other parameters than it takes",
            f"unknown: {', '.join(unknown) or 'none'}; missing: {', '.join(missing) or 'none'}",
            ", ".join(named) or "no parameters behind a *",
        )
    hints = _hints(function)
    return {name: _converted(text, named[name], hints.get(name)) for name, text in code.params.items()}


def _hints(function: JobFunction) -> dict[str, Any]:
    """Name → type of those parameters whose annotations mean something here: others may be for type checkers alone."""
    found = dict[str, Any]()
    for name, annotation in inspect.get_annotations(inspect.unwrap(function)).items():
        try:
            found[name] = get_type_hints(SimpleNamespace(__annotations__={name: annotation}), function.__globals__)[
                name
            ]
        except (NameError, AttributeError, TypeError, SyntaxError):
            continue
    return found


def _converted(text: str, parameter: inspect.Parameter, hint: Any) -> Any:
    default = parameter.default
    of_default = str if default is parameter.empty or default is None else type(default)
    wanted = of_default if hint is None else _without_none(hint)
    convert = _CONVERT.get(wanted)
    if convert is None:
        raise _bad(
            "bad_param",
            f"the parameter {parameter.name} is of a type that no text on a command line becomes",
            getattr(wanted, "__name__", str(wanted)),
            "str, int, float or bool",
            "annotate it with one of these, or give a file: --file",
        )
    try:
        return convert(text)
    except (KeyError, ValueError):
        raise _bad("bad_param", f"the parameter {parameter.name} is of another type", text, wanted.__name__) from None


def _without_none(hint: Any) -> Any:
    """``int`` of ``int | None``."""
    others = [each for each in get_args(hint) if each is not NoneType] if NoneType in get_args(hint) else []
    return others[0] if len(others) == 1 else hint


def _bad(code: str, message: str, found: str, expected: str, hint: str | None = None) -> InvalidRequest:
    return InvalidRequest(code, message, found=found, expected=expected, hint=hint)
