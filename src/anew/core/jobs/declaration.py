"""What a job says of itself where its function is written: inputs, output, and how late its records may be.

What is declared is so: a submission adds what is left open, and contradicts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from anew.core.errors import InvalidRequest
from anew.core.jobs.inputs import Start
from anew.core.moment import LAST_MS, duration_ms, duration_text
from anew.core.plan import Value

_F = TypeVar("_F", bound=Callable[..., Any])
_ATTRIBUTE = "__anew_job__"
_LATENESS = "the greatest lateness"


class Input(Value):
    """An input as it is declared.

    Attributes:
        topic: The name of the topic; None: it is not declared.
        start: Where a generation begins that is not told otherwise; None: it is not declared, ``oldest``.
    """

    topic: str | None = None
    start: Start | None = None


class Declaration(Value):
    """What is declared of a job.

    Attributes:
        inputs: Input → what it reads; one that is not here may be given with the submission.
        output: ``store:NAME`` or ``topic:NAME``; None: it is not declared.
        max_lateness_ms: How far the time of a record that the job writes may lie behind the moment at which the log got
            the record that it is made of (rule R12); None: it is not declared.
    """

    inputs: dict[str, Input] = Field(default_factory=dict)
    output: str | None = None
    max_lateness_ms: int | None = None

    def joined(self, other: Declaration, place: str) -> Declaration:
        """What both say together.

        Args:
            other: What else is said.
            place: Who says this one, for errors: ``delays.py:classify``.

        Raises:
            InvalidRequest: ``declared_otherwise``: one contradicts the other.
        """
        inputs = dict(other.inputs)
        for name, of in self.inputs.items():
            said = other.inputs.get(name, Input())
            topic = _one_of(place, f"the topic of the input {name}", of.topic, said.topic)
            start = _one_of(place, f"the default start of the input {name}", of.start, said.start)
            inputs[name] = Input(topic=topic, start=start)
        return Declaration(
            inputs=inputs,
            output=_one_of(place, "the output", self.output, other.output),
            max_lateness_ms=_one_of(place, _LATENESS, self.max_lateness_ms, other.max_lateness_ms),
        )

    def check_of(self, job: Declaration, place: str) -> None:
        """Raise where a job is not what is declared.

        Args:
            job: All that the job is.
            place: See `joined`.

        Raises:
            InvalidRequest: ``declared_otherwise``.
        """
        for name, of in self.inputs.items():
            known = job.inputs.get(name, Input())
            if of.topic is not None:
                _check_same(place, f"the topic of the input {name}", known.topic, of.topic)
            if of.start is not None:
                _check_same(place, f"the default start of the input {name}", known.start or Start.OLDEST, of.start)
        if self.output is not None:
            _check_same(place, "the output", job.output, self.output)
        if self.max_lateness_ms is not None:
            _check_same(place, _LATENESS, job.max_lateness_ms, self.max_lateness_ms)


NOTHING_DECLARED = Declaration()


def job(
    *,
    inputs: Mapping[str, str | Input] | None = None,
    output: str | None = None,
    max_lateness: str | None = None,
) -> Callable[[_F], _F]:
    """Declare the job that a function is of; the function stays as it is.

    Args:
        inputs: Input → the name of its topic, or an `Input` that says more.
        output: ``store:NAME`` or ``topic:NAME``.
        max_lateness: How late its records may be, ``2h``; see `Declaration`.

    Raises:
        InvalidRequest: ``bad_declaration``.
    """
    declared = Declaration(
        inputs={name: of if isinstance(of, Input) else Input(topic=of) for name, of in (inputs or {}).items()},
        output=output,
        max_lateness_ms=lateness_ms(max_lateness),
    )

    def declares(function: _F) -> _F:
        setattr(function, _ATTRIBUTE, declared)
        return function

    return declares


def declaration_of(function: object) -> Declaration:
    """What a function declares; nothing where it declares nothing."""
    found = getattr(function, _ATTRIBUTE, None)
    return found if isinstance(found, Declaration) else NOTHING_DECLARED


def lateness_ms(text: str | None) -> int | None:
    """A greatest lateness as people write it, in ms; None for None.

    Raises:
        InvalidRequest: ``bad_declaration``.
    """
    found = None if text is None else duration_ms(str(text))
    if text is not None and (found is None or found > LAST_MS):
        raise InvalidRequest(
            "bad_declaration", "the greatest lateness is no duration", found=text, expected="such as 90s, 2h or 7d"
        )
    return found


def misfit_of(error: ValidationError) -> str:
    """What does not fit in a declaration, in one line: first what has a name that nobody knows."""
    kinds = {"extra_forbidden": "there is no such key", "missing": "it is missing"}
    found = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")[0]
    said = kinds.get(found["type"], found["msg"][:1].lower() + found["msg"][1:])
    return f"{'.'.join(map(str, found['loc']))}: {said}"


def start_named(text: str) -> Start:
    """A default start as people write it.

    Raises:
        InvalidRequest: ``bad_declaration``.
    """
    try:
        return Start(text)
    except ValueError:
        raise InvalidRequest(
            "bad_declaration",
            "this is no default start of an input",
            found=text,
            expected=", ".join(Start),
            hint="offsets and times are given when a generation is planned: --from",
        ) from None


def _one_of(place: str, what: str, declared: Any, said: Any) -> Any:
    if declared is not None and said is not None:
        _check_same(place, what, declared, said)
    return said if declared is None else declared


def _check_same(place: str, what: str, wanted: object, found: object) -> None:
    if wanted != found:
        shown = [duration_text(each) if isinstance(each, int) else each for each in (found, wanted)]
        raise InvalidRequest(
            "declared_otherwise",
            f"{place} declares {what} otherwise",
            found=shown[0],
            expected="none is declared" if shown[1] is None else shown[1],
            hint="a job keeps its inputs, its output and its lateness: change the declaration, or make another job",
        )
