"""Settings: what a setting is, and how its value is read and refused.

Those of stores, tables and processes and the keys of a rebuild are tables of such rows, each where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from anew.core.errors import InvalidRequest
from anew.core.suggest import did_you_mean

_MOST_DIGITS = 30
"""Of a number in a text: Python refuses to read thousands of them with an error of its own."""

SettingValue = int | float | bool | str | None


class Takes(StrEnum):
    """When a change of a setting takes effect."""

    FROZEN = "with the next version"
    FIXED = "never (chosen when the store is made)"
    REFRESH = "with a refresh"
    LOAD = "with the next load"
    LIVE = "at once"


class Kind(StrEnum):
    """How a setting's text is read."""

    COUNT = "whole number"
    SECONDS = "whole seconds"
    BYTES = "whole bytes"
    FLAG = "true or false"
    CHOICE = "one of"
    TEXT = "text"
    SHAPED = "a list or an object, as JSON"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of a table of settings.

    Attributes:
        name: As in ``--set name=value``.
        kind: How it is read.
        default: Its value where nothing is said.
        meaning: One sentence for the docs.
        least: The smallest number that is accepted.
        most: The greatest number that is accepted.
        choices: What a choice may be.
        check: Raises `InvalidRequest` for a text that the kind accepts and the setting does not.
        shown: How a text that may hold a secret is shown.
        read: The value of what is shaped; raises `KeyError`, `TypeError` or `ValueError` for what it does not accept.
        accepts: What is accepted, in words, where the kind does not say it.
        takes: When a change takes effect.
    """

    name: str
    kind: Kind
    default: Any
    meaning: str
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[str], object] | None = None
    shown: Callable[[str], str] | None = None
    read: Callable[[Any], Any] | None = None
    accepts: str | None = None
    takes: Takes = Takes.LIVE

    def show(self, value: SettingValue) -> SettingValue:
        """The value as people may see it."""
        return value if self.shown is None or value is None else self.shown(str(value))

    @property
    def expected(self) -> str:
        """What is accepted, in words."""
        if self.accepts is not None:
            return self.accepts
        if self.kind is Kind.CHOICE:
            return " | ".join(self.choices)
        if self.least is None or self.most is None:
            return self.kind.value
        return f"{self.kind.value} from {self.least:,} to {self.most:,}"

    def parse(self, found: object) -> Any:
        """The value of a text or of an already typed value.

        Null is the default. So is an empty text, where the default is that there is no value: None, an empty list or
        an empty object. Numbers and flags refuse an empty text.

        Raises:
            InvalidRequest: ``bad_setting``, or as `check` raises; names setting, value and what is accepted.
        """
        value = self.default if found is None else self._typed(found)
        return self.default if value is None else value

    def _typed(self, found: object) -> Any:
        if isinstance(found, str):
            found = found.strip()
        match self.kind:
            case Kind.COUNT | Kind.SECONDS | Kind.BYTES:
                return self._whole_number(found)
            case Kind.FLAG:
                flag = {"true": True, "false": False}.get(str(found).lower())
                if flag is None:
                    raise self._bad(found)
                return flag
            case Kind.CHOICE:
                if found not in self.choices and (found != "" or self.default is not None):
                    raise self._bad(found)
                return found or None
            case Kind.TEXT:
                return self._text(found)
            case Kind.SHAPED:
                return self._shaped(found)

    def _text(self, found: object) -> str | None:
        text = str(found)
        if text == "" and self.default is None:
            return None
        if self.check is not None:
            self.check(text)
        elif text == "":
            raise self._bad(found)
        return text

    def _shaped(self, found: object) -> Any:
        assert self.read is not None, f"nothing reads {self.name}"
        try:
            return self.read(found)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            raise self._bad(found) from None

    def _whole_number(self, found: object) -> int:
        if isinstance(found, int) and not isinstance(found, bool):
            number = found
        else:
            text = str(found)
            digits = text.removeprefix("-")
            if not (digits.isascii() and digits.isdigit() and len(text) <= _MOST_DIGITS):
                raise self._bad(found)
            number = int(text)
        too_small = self.least is not None and number < self.least
        if too_small or (self.most is not None and number > self.most):
            raise self._bad(found)
        return number

    def _bad(self, found: object) -> InvalidRequest:
        return InvalidRequest(
            "bad_setting",
            f"the setting {self.name} does not accept this value",
            found=found,
            expected=self.expected,
            hint=f"{self.name}: {self.meaning}",
        )


class Settings(Mapping[str, Setting]):
    """A table of settings by name, in the order in which they are shown.

    Attributes:
        aliases: Other name → name; merged before anything is read or compared.
        not_yet: Names that the product knows but this release does not offer yet: refused, never ignored.
    """

    def __init__(
        self,
        *rows: Setting,
        aliases: Mapping[str, str] | None = None,
        not_yet: tuple[str, ...] = (),
        unknown: tuple[str, str] = ("unknown_setting", "there is no setting"),
    ) -> None:
        """Keep the rows; ``unknown`` is the code of a refused name, and the words before the name."""
        self._rows = {row.name: row for row in rows}
        self.aliases = {} if aliases is None else aliases
        self.not_yet = not_yet
        self._unknown = unknown

    def __getitem__(self, name: str) -> Setting:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def defaults(self) -> dict[str, Any]:
        """Every setting with its default."""
        return {name: setting.default for name, setting in self._rows.items()}

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The typed values of what was given, all or nothing, under the settings' own names.

        Raises:
            InvalidRequest: ``unknown_setting`` (with the nearest known name) or the table's own code for it,
                ``not_supported_yet``, ``bad_setting``, also for two names of one setting with two values; as the
                settings' checks.
        """
        parsed: dict[str, Any] = {}
        for said, value in given.items():
            name = self.aliases.get(said, said)
            if name in self.not_yet:
                raise not_supported_yet(f"the setting {name}", ", ".join(self))
            if name not in self:
                code, words = self._unknown
                raise unknown_name(code, f"{words} {said}", said, self, self.aliases)
            typed = self[name].parse(value)
            if parsed.get(name, typed) != typed:
                raise InvalidRequest(
                    "bad_setting",
                    f"{name} is said twice, differently",
                    found=[parsed[name], typed],
                    expected="one of them",
                )
            parsed[name] = typed
        return parsed


def unknown_name(
    code: str, message: str, found: str, known: Iterable[str], aliases: Iterable[str] = (), hint: str | None = None
) -> InvalidRequest:
    """The refusal of a name that nothing has: with the known ones, and a hint or the nearest."""
    near = did_you_mean(found, [*known, *aliases]) if hint is None else hint
    return InvalidRequest(code, message, found=found, expected=", ".join(known), hint=near)


def not_supported_yet(what: str, expected: str) -> InvalidRequest:
    """The refusal of something that the product knows but this release does not offer yet."""
    return InvalidRequest(
        "not_supported_yet", f"{what} is not supported yet", found=what, expected=expected, hint="leave it out"
    )
