"""The columns of JSON values, as Spark writes them: ``carrier STRING, delay INT, stops ARRAY<STRING>``.

Only what is checked here reaches a topic, so that whoever reads it with Spark can use the text as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from anew.core.errors import InvalidRequest

MOST_COLUMNS = 2_000
_MOST_NESTED = 20
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z_][A-Za-z0-9_]*)|([0-9]+)|([<>(),:]))")
_NUMBERS = {"tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double"}
_DECIMALS = {"decimal", "dec", "numeric"}
_SIMPLE = {*_NUMBERS, *_DECIMALS, "boolean", "timestamp", "timestamp_ntz", "string", "binary"}
"""Maps and dates are not among them: Arrow's reader of JSON knows no such values."""
_MOST_DIGITS = 38


def parse_columns_ddl(text: str) -> tuple[str, ...]:
    """Check the columns of JSON values.

    Returns:
        Their names, in order.

    Raises:
        InvalidRequest: ``bad_columns``: what was found where, and what was expected there.
    """
    reader = _Reader(text, _tokens(text))
    names = reader.fields(end="", depth=0)
    if len(names) > MOST_COLUMNS:
        raise _bad(text, f"{len(names)} columns", f"at most {MOST_COLUMNS}")
    return names


def _tokens(text: str) -> list[str]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        matched = _TOKEN.match(text, at)
        if matched is None:
            raise _bad(text, f"{text[at:].strip()[:20]!r}", "names, types, commas and brackets")
        found.append(matched[0].strip())
        at = matched.end()
    return found


@dataclass(slots=True)
class _Reader:
    """Reads tokens from the left."""

    text: str
    tokens: list[str]
    at: int = 0

    def fields(self, end: str, depth: int) -> tuple[str, ...]:
        """``NAME TYPE [NOT NULL], …`` up to a token, which is read too; empty: up to the end of the text."""
        names: list[str] = []
        while True:
            name = self._name()
            if name.lower() in {known.lower() for known in names}:
                raise _bad(self.text, f"the column {name} twice", "each name once, in whatever case")
            names.append(name)
            if self._peek() == ":":
                self.at += 1
            self._type(depth)
            if self._peek().lower() == "not":
                self.at += 1
                self._take("null")
            if self._peek() == end:
                self.at += 1
                return tuple(names)
            self._take(",")

    def _type(self, depth: int) -> None:
        if depth > _MOST_NESTED:
            raise _bad(self.text, f"types in types, more than {_MOST_NESTED} deep", "fewer")
        word = self._next().lower()
        if word in ("array", "struct"):
            self._take("<")
            if word == "struct":
                self.fields(end=">", depth=depth + 1)
                return
            self._type(depth + 1)
            self._take(">")
        elif word not in _SIMPLE:
            raise _bad(self.text, word or "the end", f"a type: array, struct, {', '.join(sorted(_SIMPLE))}")
        elif word in _DECIMALS and self._peek() == "(":
            self.at += 1
            precision = self._number(1, _MOST_DIGITS)
            if self._peek() == ",":
                self.at += 1
                self._number(0, precision)
            self._take(")")

    def _name(self) -> str:
        word = self._next()
        if word.startswith("`"):
            return word[1:-1].replace("``", "`")
        if not word or not (word[0].isalpha() or word[0] == "_"):
            raise _bad(self.text, word or "the end", "the name of a column")
        return word

    def _number(self, least: int, most: int) -> int:
        word = self._next()
        if not word.isdigit() or not least <= int(word) <= most:
            raise _bad(self.text, word or "the end", f"a number, {least} to {most}")
        return int(word)

    def _take(self, expected: str) -> None:
        word = self._next()
        if word.lower() != expected:
            raise _bad(self.text, word or "the end", expected)

    def _next(self) -> str:
        word = self._peek()
        self.at += 1
        return word

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""


def _bad(text: str, found: str, expected: str) -> InvalidRequest:
    return InvalidRequest(
        "bad_columns",
        f"these are no columns of JSON values: {text[:200]}",
        found=found,
        expected=expected,
        hint="write them as Spark does: carrier STRING, delay INT",
    )
