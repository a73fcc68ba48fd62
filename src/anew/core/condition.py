"""The language of the setting ``repush_when``: on what condition a scheduled repush starts.

::

    condition   any
    any         all ("or" all)*
    all         factor ("and" factor)*
    factor      "not" factor | "(" any ")" | flag | name operator literal
    flag        stale
    name        unsorted_share | tombstone_share | age | rows | feed_records
    operator    < | <= | > | >= | == | !=
    literal     0.3 or 30% (shares) | 90s, 15m, 12h, 7d, 2w (age) | 1000 or 1_000_000 (counts)

For example ``stale or unsorted_share > 0.3 or age > 7d``. A judgement says why: each comparison with its present value.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from anew.core.errors import InvalidRequest
from anew.core.moment import duration_ms, duration_text
from anew.core.suggest import did_you_mean

Number = int | float

MAX_CHARACTERS = 1_000
MAX_DEPTH = 32
"""How many parentheses and ``not`` may stand within one another."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a condition is judged on: the store's current version as it is now.

    Attributes:
        stale: Whether the store's configuration has changes that wait for the next version.
        unsorted_share: Feed records that lie on top of the sorted base, as a share of all, from 0 to 1.
        tombstone_share: Tombstones among the rows of the base, from 0 to 1.
        age_ms: How long ago the current version was made.
        rows: Rows of its base.
        feed_records: Records of its feeds since its start.
    """

    stale: bool
    unsorted_share: float
    tombstone_share: float
    age_ms: int
    rows: int
    feed_records: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a condition holds, and each of its comparisons with the present value."""

    holds: bool
    reasons: tuple[str, ...]


class _Kind(StrEnum):
    """What a name stands for, and so what it can be compared with."""

    FLAG = "true or false"
    SHARE = "a share from 0 to 1, such as 0.3 or 30%"
    AGE = "a duration in whole s, m, h, d or w, such as 90s or 7d"
    COUNT = "a whole number, such as 1000"


_NAMES: dict[str, tuple[_Kind, Callable[[Facts], Number]]] = {
    "stale": (_Kind.FLAG, lambda facts: facts.stale),
    "unsorted_share": (_Kind.SHARE, lambda facts: facts.unsorted_share),
    "tombstone_share": (_Kind.SHARE, lambda facts: facts.tombstone_share),
    "age": (_Kind.AGE, lambda facts: facts.age_ms),
    "rows": (_Kind.COUNT, lambda facts: facts.rows),
    "feed_records": (_Kind.COUNT, lambda facts: facts.feed_records),
}
_OPERATORS: dict[str, Callable[[Number, Number], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_WORDS = ("and", "or", "not")
_TOKEN = re.compile(
    r"\s*(?:(?P<literal>[0-9][0-9A-Za-z_.%]*)|(?P<word>[A-Za-z_]\w*)|(?P<sign>[<>=!]=|[<>()])|(?P<other>\S))",
    re.ASCII,
)
_LITERALS = {
    _Kind.SHARE: re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>%?)", re.ASCII),
    _Kind.COUNT: re.compile(r"[0-9]+(?:_[0-9]+)*", re.ASCII),
}
_OPERAND = f"not, ( or one of {', '.join(_NAMES)}"


@dataclass(frozen=True, slots=True)
class _Flag:
    name: str

    def judge(self, facts: Facts) -> tuple[bool, tuple[str, ...]]:
        holds = bool(_NAMES[self.name][1](facts))
        return holds, (self.name if holds else f"not {self.name}",)


@dataclass(frozen=True, slots=True)
class _Comparison:
    name: str
    sign: str
    wanted: Number
    literal: str

    def judge(self, facts: Facts) -> tuple[bool, tuple[str, ...]]:
        kind, fact = _NAMES[self.name]
        holds = _OPERATORS[self.sign](fact(facts), self.wanted)
        present = _shown(kind, fact(facts), percent=self.literal.endswith("%"))
        return holds, (f"{self.name} is {present}, {'' if holds else 'not '}{self.sign} {self.literal}",)


@dataclass(frozen=True, slots=True)
class _Not:
    part: _Node

    def judge(self, facts: Facts) -> tuple[bool, tuple[str, ...]]:
        holds, reasons = self.part.judge(facts)
        return not holds, reasons


@dataclass(frozen=True, slots=True)
class _Joined:
    """Parts joined by ``and`` (`all`) or ``or`` (`any`); all are judged, so that every value is shown."""

    by: Callable[[Iterator[bool]], bool]
    parts: tuple[_Node, ...]

    def judge(self, facts: Facts) -> tuple[bool, tuple[str, ...]]:
        judged = [part.judge(facts) for part in self.parts]
        return self.by(holds for holds, _ in judged), tuple(reason for _, reasons in judged for reason in reasons)


_Node = _Flag | _Comparison | _Not | _Joined


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition."""

    text: str
    _root: _Node

    def judge(self, facts: Facts) -> Judgement:
        """Whether it holds, with each comparison's present value in the order in which they are written."""
        holds, reasons = self._root.judge(facts)
        return Judgement(holds, tuple(dict.fromkeys(reasons)))


def parse_condition(text: str) -> Condition:
    """The condition that a text says.

    Raises:
        InvalidRequest: ``bad_condition``: names the position, what stands there and what was expected.
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidRequest(
            "bad_condition",
            "the condition is too long",
            found=f"{len(text)} characters",
            expected=f"at most {MAX_CHARACTERS}",
        )
    return Condition(text, _Parser(text).parse())


def _shown(kind: _Kind, value: Number, *, percent: bool) -> str:
    if kind is _Kind.AGE:
        return duration_text(int(value))
    if kind is _Kind.SHARE:
        return f"{value * 100:.6g}%" if percent else f"{value:.6g}"
    return str(value)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    kind: str
    position: int
    """Counted from 1, as people count; the end of the text stands behind its last character."""


class _Parser:
    """Recursive descent, one method per rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._tokens = [_token(found) for found in _TOKEN.finditer(text)]
        self._tokens.append(_Token("", "end", len(text) + 1))
        self._at = 0

    def parse(self) -> _Node:
        """The whole text."""
        root = self._any(0)
        if self._token.kind != "end":
            raise self._unexpected("and, or, or the end", _WORDS)
        return root

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> str | None:
        """The next token when it is one of these, None otherwise."""
        token = self._token
        if token.text not in texts:
            return None
        self._at += 1
        return token.text

    def _any(self, depth: int) -> _Node:
        parts = [self._all(depth)]
        while self._take("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else _Joined(any, tuple(parts))

    def _all(self, depth: int) -> _Node:
        parts = [self._factor(depth)]
        while self._take("and"):
            parts.append(self._factor(depth))
        return parts[0] if len(parts) == 1 else _Joined(all, tuple(parts))

    def _factor(self, depth: int) -> _Node:
        if depth > MAX_DEPTH:
            raise self._unexpected(f"at most {MAX_DEPTH} parentheses and nots within one another")
        if self._take("not"):
            return _Not(self._factor(depth + 1))
        if self._take("("):
            inside = self._any(depth + 1)
            if not self._take(")"):
                raise self._unexpected("and, or, or )", _WORDS)
            return inside
        name = self._take(*_NAMES)
        if name is None:
            raise self._unexpected(_OPERAND, (*_NAMES, "not"))
        return _Flag(name) if _NAMES[name][0] is _Kind.FLAG else self._comparison(name)

    def _comparison(self, name: str) -> _Node:
        sign = self._take(*_OPERATORS)
        if sign is None:
            raise self._unexpected(f"one of {' '.join(_OPERATORS)} after {name}")
        literal, wanted = self._token.text, _literal(_NAMES[name][0], self._token.text)
        if wanted is None:
            raise self._unexpected(f"{_NAMES[name][0].value}, to compare {name} with")
        self._at += 1
        return _Comparison(name, sign, wanted, literal)

    def _unexpected(self, expected: str, near: tuple[str, ...] = ()) -> InvalidRequest:
        token = self._token
        return InvalidRequest(
            "bad_condition",
            f"the condition cannot be understood at position {token.position}",
            found="the end" if token.kind == "end" else token.text,
            expected=expected,
            hint=did_you_mean(token.text.lower(), near) if token.kind == "word" else None,
        )


def _token(found: re.Match[str]) -> _Token:
    kind = found.lastgroup or "other"
    return _Token(found[kind], kind, found.start(kind) + 1)


def _literal(kind: _Kind, text: str) -> Number | None:
    """The value of a literal of that kind; None when the text is not one."""
    if kind is _Kind.AGE:
        return duration_ms(text)
    matched = _LITERALS[kind].fullmatch(text)
    if matched is None:
        return None
    if kind is _Kind.SHARE:
        share = float(matched["number"]) / (100 if matched["unit"] else 1)
        return share if share <= 1 else None
    return int(text)
