"""The error tree: what went wrong, in terms that a person and a program can act on.

::

    AnewError                 exit code   HTTP
    ├── InvalidRequest            2       422 (404 when something named does not exist; 408, 413 by size and time)
    ├── Refused                   3       409 (401 and 403 for want of a right)
    ├── Unreachable               4       503
    ├── OutcomeUnknown            5       504
    ├── PartlyDone                6       207
    └── Failed                    1       500

The class says what became of the request (changed nothing, ran and failed, unknown); ``code`` says why, in
a word that never changes; the other attributes are what a message is made of, so that nobody has to parse one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, ClassVar


class AnewError(Exception):
    """The root of all errors that this project raises on purpose.

    Attributes:
        code: A stable word for the reason, for programs.
        message: One sentence for people.
        found: What was found, or None where that adds nothing.
        expected: What was expected instead.
        hint: What to do about it.
    """

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(
        self, code: str, message: str, *, found: Any = None, expected: Any = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.found = found
        self.expected = expected
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.message]
        if self.found is not None:
            parts.append(f"found: {_in_one_line(self.found)}")
        if self.expected is not None:
            parts.append(f"expected: {_in_one_line(self.expected)}")
        if self.hint is not None:
            parts.append(f"hint: {self.hint}")
        return "; ".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_error, (type(self), self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The shape of ``{"error": …}`` in the command line's and the controller's answers."""
        return {
            "code": self.code,
            "message": self.message,
            "found": self.found,
            "expected": self.expected,
            "hint": self.hint,
        }


def shown_lines(value: Any) -> list[str]:
    """What was found or expected as people read it: a line for each entry, ``key: value`` for those of a mapping."""
    if isinstance(value, Mapping):
        return [f"{key}: {_in_one_line(entry)}" for key, entry in value.items()]
    if isinstance(value, Sequence | Set) and not isinstance(value, str | bytes):
        return [_in_one_line(entry) for entry in value]
    return [str(value)]


def _in_one_line(value: Any) -> str:
    lines = shown_lines(value)
    return ", ".join(lines) if lines else "none"


class InvalidRequest(AnewError):
    """The request is wrong; nothing was changed."""

    exit_code = 2
    http_status = 422


class NotFound(InvalidRequest):
    """The request names something that does not exist; nothing was changed."""

    http_status = 404


class Refused(AnewError):
    """The request is well formed but not allowed in the present state; nothing was changed."""

    exit_code = 3
    http_status = 409


class Unreachable(AnewError):
    """Something needed did not answer; nothing was changed."""

    exit_code = 4
    http_status = 503


class OutcomeUnknown(AnewError):
    """The request may or may not have been carried out; the hint names what looks it up."""

    exit_code = 5
    http_status = 504


class PartlyDone(AnewError):
    """Some of what was asked for is done; the message lists both parts."""

    exit_code = 6
    http_status = 207


class Failed(AnewError):
    """It ran and failed."""


_KINDS = (Failed, PartlyDone, OutcomeUnknown, Unreachable, Refused, NotFound, InvalidRequest)
_BY_STATUS: dict[int, type[AnewError]] = {
    **{kind.http_status: kind for kind in _KINDS},
    **dict.fromkeys((401, 403), Refused),
    **dict.fromkeys((405, 408, 413), InvalidRequest),
}


def error_from_json(http_status: int, body: dict[str, Any]) -> AnewError:
    """The error that a controller or node answered with, as the same class here."""
    return _rebuild_error(_BY_STATUS.get(http_status, Failed), body)


def _rebuild_error(cls: type[AnewError], body: dict[str, Any]) -> AnewError:
    return cls(
        str(body.get("code", "unexpected_answer")),
        str(body.get("message", "the answer carries no message")),
        found=body.get("found"),
        expected=body.get("expected"),
        hint=body.get("hint"),
    )
