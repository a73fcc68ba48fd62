"""Settings: what a setting is, how its value is read and refused, and the table of those that stores have.

Settings of tables, of processes and the keys of a rebuild are further tables of the same rows, each where it is used.
*Frozen* settings belong to a version: a change is pending until the next push or repush. *Fixed* ones are chosen when
the store is made. *Live* ones act at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from anew.core.condition import parse_condition
from anew.core.errors import InvalidRequest
from anew.core.partitioners import check_partitioner_name, check_partitioner_params
from anew.core.schedule import parse_schedule
from anew.core.suggest import did_you_mean

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
                return self._text(str(found).strip())
            case Kind.SHAPED:
                return self._shaped(found)

    def _text(self, text: str) -> str | None:
        if text == "" and self.default is None:
            return None
        if self.check is not None:
            self.check(text)
        return text

    def _shaped(self, found: object) -> Any:
        assert self.read is not None, f"nothing reads {self.name}"
        try:
            return self.read(found)
        except (KeyError, TypeError, ValueError):
            raise self._bad(found) from None

    def _whole_number(self, found: object) -> int:
        if isinstance(found, int) and not isinstance(found, bool):
            number = found
        else:
            text = str(found).strip()
            if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit():
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


_WEEK_SECONDS = 7 * 86_400

_frozen = partial(Setting, takes=Takes.FROZEN)
_fixed = partial(Setting, takes=Takes.FIXED)

STORE_SETTINGS = Settings(
    _frozen("partitions", Kind.COUNT, 4, "into how many partitions a version is split", 1, 100_000),
    _frozen(
        "partitioner",
        Kind.TEXT,
        "xxhash64",
        "which partition a key belongs to: xxhash64, or module:Class of your own",
        check=check_partitioner_name,
    ),
    _frozen(
        "partitioner_params",
        Kind.TEXT,
        "{}",
        "keyword arguments of a partitioner of your own, as a JSON object",
        check=check_partitioner_params,
    ),
    _frozen(
        "amplification_factor",
        Kind.COUNT,
        1,
        "how many sub-partitions a partition is kept as, each loaded and ingested by itself",
        1,
        64,
    ),
    _frozen(
        "compression", Kind.CHOICE, "none", "how values are compressed", choices=("none", "gzip", "zstd", "zstd_dict")
    ),
    _frozen("transport", Kind.CHOICE, "files", "how the base reaches the nodes", choices=("files", "log")),
    _frozen("replicas", Kind.COUNT, 2, "how many nodes hold each partition", 1, 100),
    _frozen("hybrid", Kind.FLAG, False, "whether the store takes nearline writes on top of its base"),
    _frozen(
        "rewind_seconds",
        Kind.SECONDS,
        86_400,
        "how far before a full push's start nearline writes are applied again",
        0,
        365 * 86_400,
    ),
    _frozen(
        "rewind_from", Kind.CHOICE, "sop", "from which moment of a full push the rewind counts", choices=("sop", "eop")
    ),
    _frozen(
        "lag_limit_records", Kind.COUNT, 1_000, "how many records a replica may be behind to count as ready", 0, 10**12
    ),
    _frozen(
        "lag_limit_seconds",
        Kind.SECONDS,
        60,
        "how many seconds a replica may be behind to count as ready; at the end of a log it is never behind",
        1,
        86_400,
    ),
    _fixed(
        "rt_partitions",
        Kind.COUNT,
        24,
        "into how many partitions the real-time topic is split (24 has many divisors)",
        1,
        10_000,
    ),
    _fixed(
        "rt_partitioner",
        Kind.CHOICE,
        "xxhash64",
        "how producers place keys in the real-time topic; any: their own way, so that all partitions are read",
        choices=("xxhash64", "any"),
    ),
    _fixed(
        "skew_limit_seconds", Kind.SECONDS, 60, "how far ahead of the log's time a given write time may be", 0, 86_400
    ),
    Setting(
        "backup_retention_seconds",
        Kind.SECONDS,
        _WEEK_SECONDS,
        "how long a version that was current is kept as a rollback target",
        0,
        365 * 86_400,
    ),
    Setting(
        "tombstone_grace_seconds",
        Kind.SECONDS,
        10 * 86_400,
        "how long the tombstone of a delete is kept at least, so that late older writes still lose",
        0,
        365 * 86_400,
    ),
    Setting(
        "quota_bytes",
        Kind.BYTES,
        0,
        "how large the base of a full push may be; 0: no limit; a repush is not judged, its data is there already",
        0,
        2**60,
    ),
    Setting(
        "max_value_bytes", Kind.BYTES, 1_048_576, "the largest Avro body of a nearline write's value", 1, 64 * 1_048_576
    ),
    Setting("reads", Kind.FLAG, True, "whether reads are answered"),
    Setting("writes", Kind.FLAG, True, "whether nearline writes and pushes are accepted"),
    Setting(
        "repush_schedule",
        Kind.TEXT,
        None,
        "when the controller repushes by itself: five cron fields in UTC, such as 0 3 * * *",
        check=parse_schedule,
    ),
    Setting(
        "repush_when",
        Kind.TEXT,
        None,
        "on what condition a scheduled repush starts, such as: stale or unsorted_share > 0.3 or age > 7d",
        check=parse_condition,
    ),
    Setting("owner", Kind.TEXT, None, "who is asked about the store"),
    Setting("description", Kind.TEXT, None, "what the store holds"),
    not_yet=("replication", "active_fabric"),
)
"""Every store setting of this release, in the order in which they are shown."""

FROZEN_SETTINGS = tuple(s.name for s in STORE_SETTINGS.values() if s.takes is Takes.FROZEN)
"""The names of the settings that belong to a version."""


def defaults() -> dict[str, Any]:
    """Every store setting with its default."""
    return STORE_SETTINGS.defaults()
