"""Values that do not fit their type: one way to say where, what was found and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from anew.core.errors import InvalidRequest

_FOUND_CHARACTERS = 80
_KINDS = {"str": "text", "float": "number", "bool": "boolean", "dict": "object"}
"""What a value is called where Python's own name for it says less."""


def describe(value: Any) -> str:
    """A value with its kind, cut short, as in ``int 3`` or ``text 'old'``."""
    if value is None:
        return "null"
    text = repr(value)
    if len(text) > _FOUND_CHARACTERS:
        text = text[: _FOUND_CHARACTERS - 1] + "…"
    name = type(value).__name__
    return f"{_KINDS.get(name, name)} {text}"


class ValueMisfit(ValueError):
    """A value does not fit its type; raised by the innermost step, each outer step puts its name in front.

    Attributes:
        found: The offending value in words.
        expected: The type in words.
        hint: What to do about it, or None.
        path: Field names and indexes from the outermost value inwards.
    """

    def __init__(self, found: str, expected: str, hint: str | None = None) -> None:
        super().__init__(found, expected)
        self.found = found
        self.expected = expected
        self.hint = hint
        self.path: list[str] = []

    def below(self, step: str) -> ValueMisfit:
        """The same misfit as the value one level further out sees it."""
        self.path.insert(0, step)
        return self

    def where(self) -> str:
        """The path as text: ``legs[2].carrier``; ``value`` for the outermost value itself."""
        text = ""
        for step in self.path:
            text += step if step.startswith("[") or not text else f".{step}"
        return text if text else "value"

    def as_request_error(self) -> InvalidRequest:
        """The error for the caller: code ``value_misfit``, the path in its message."""
        return InvalidRequest(
            "value_misfit",
            f"{self.where()} does not fit the schema",
            found=self.found,
            expected=self.expected,
            hint=self.hint,
        )


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest known name, or None where nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else None
