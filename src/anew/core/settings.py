"""The settings of a store: one table with type, unit, default, bounds and when a change takes effect.

*Frozen* settings belong to a version: a change is pending until the next push or repush. *Fixed* ones are chosen when
the store is made. *Live* ones act at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

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
    LIVE = "at once"


class Kind(StrEnum):
    """How a setting's text is read."""

    COUNT = "whole number"
    SECONDS = "whole seconds"
    BYTES = "whole bytes"
    FLAG = "true or false"
    CHOICE = "one of"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    Attributes:
        name: As in ``--set name=value``.
        takes: When a change takes effect.
        kind: How it is read.
        default: Its value where nothing is said.
        least: The smallest number that is accepted.
        most: The greatest number that is accepted.
        choices: What a choice may be.
        check: Raises `InvalidRequest` for a text that the kind accepts and the setting does not.
        shown: How a text that may hold a secret is shown.
        meaning: One sentence for the docs.
    """

    name: str
    takes: Takes
    kind: Kind
    default: SettingValue
    meaning: str
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[str], object] | None = None
    shown: Callable[[str], str] | None = None

    def show(self, value: SettingValue) -> SettingValue:
        """The value as people may see it."""
        return value if self.shown is None or value is None else self.shown(str(value))

    @property
    def expected(self) -> str:
        """What is accepted, in words."""
        if self.kind is Kind.CHOICE:
            return " | ".join(self.choices)
        if self.least is None and self.most is None:
            return self.kind.value
        least, most = "…" if self.least is None else self.least, "…" if self.most is None else self.most
        return f"{self.kind.value} from {least} to {most}"

    def parse(self, found: str | SettingValue) -> SettingValue:
        """The value of a text or of an already typed value.

        Raises:
            InvalidRequest: ``bad_setting`` or ``not_supported_yet``; names setting, value and what is accepted.
        """
        value = self._typed(found)
        if isinstance(value, int) and not isinstance(value, bool):
            too_small = self.least is not None and value < self.least
            if too_small or (self.most is not None and value > self.most):
                raise self._bad(found)
        return value

    def _typed(self, found: str | SettingValue) -> SettingValue:
        match self.kind:
            case Kind.COUNT | Kind.SECONDS | Kind.BYTES:
                return self._whole_number(found)
            case Kind.FLAG:
                if isinstance(found, bool):
                    return found
                if str(found).lower() in ("true", "false"):
                    return str(found).lower() == "true"
                raise self._bad(found)
            case Kind.CHOICE:
                if found not in self.choices:
                    raise self._bad(found)
                return str(found)
            case Kind.TEXT:
                return self._checked_text(found)

    def _checked_text(self, found: str | SettingValue) -> str | None:
        # What has a form of its own is taken back by an empty text.
        unset = found is None or (found == "" and self.check is not None and self.default is None)
        text = None if unset else str(found)
        if text is not None and self.check is not None:
            self.check(text)
        return text

    def _whole_number(self, found: str | SettingValue) -> int:
        if isinstance(found, int) and not isinstance(found, bool):
            return found
        text = str(found).strip()
        if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit():
            raise self._bad(found)
        return int(text)

    def _bad(self, found: object) -> InvalidRequest:
        return InvalidRequest(
            "bad_setting",
            f"the setting {self.name} does not accept this value",
            found=found,
            expected=self.expected,
            hint=f"{self.name}: {self.meaning}",
        )


def not_supported_yet(what: str, expected: str) -> InvalidRequest:
    """The refusal of something that the product knows but this release does not offer yet."""
    return InvalidRequest(
        "not_supported_yet", f"{what} is not supported yet", found=what, expected=expected, hint="leave it out"
    )


_WEEK_SECONDS = 7 * 86_400

STORE_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("partitions", Takes.FROZEN, Kind.COUNT, 4, "into how many partitions a version is split", 1, 100_000),
        Setting(
            "partitioner",
            Takes.FROZEN,
            Kind.TEXT,
            "xxhash64",
            "which partition a key belongs to: xxhash64, or module:Class of your own",
            check=check_partitioner_name,
        ),
        Setting(
            "partitioner_params",
            Takes.FROZEN,
            Kind.TEXT,
            "{}",
            "keyword arguments of a partitioner of your own, as a JSON object",
            check=check_partitioner_params,
        ),
        Setting(
            "amplification_factor",
            Takes.FROZEN,
            Kind.COUNT,
            1,
            "how many sub-partitions a partition is kept as, each loaded and ingested by itself",
            1,
            64,
        ),
        Setting(
            "compression",
            Takes.FROZEN,
            Kind.CHOICE,
            "none",
            "how values are compressed",
            choices=("none", "gzip", "zstd", "zstd_dict"),
        ),
        Setting(
            "transport",
            Takes.FROZEN,
            Kind.CHOICE,
            "files",
            "how the base reaches the nodes",
            choices=("files", "log"),
        ),
        Setting("replicas", Takes.FROZEN, Kind.COUNT, 2, "how many nodes hold each partition", 1, 100),
        Setting("hybrid", Takes.FROZEN, Kind.FLAG, False, "whether the store takes nearline writes on top of its base"),
        Setting(
            "rewind_seconds",
            Takes.FROZEN,
            Kind.SECONDS,
            86_400,
            "how far before a full push's start nearline writes are applied again",
            0,
            365 * 86_400,
        ),
        Setting(
            "rewind_from",
            Takes.FROZEN,
            Kind.CHOICE,
            "sop",
            "from which moment of a full push the rewind counts",
            choices=("sop", "eop"),
        ),
        Setting(
            "lag_limit_records",
            Takes.FROZEN,
            Kind.COUNT,
            1_000,
            "how many records a replica may be behind to count as ready",
            0,
            10**12,
        ),
        Setting(
            "lag_limit_seconds",
            Takes.FROZEN,
            Kind.SECONDS,
            60,
            "how many seconds a replica may be behind to count as ready; at the end of a log it is never behind",
            1,
            86_400,
        ),
        Setting(
            "rt_partitions",
            Takes.FIXED,
            Kind.COUNT,
            24,
            "into how many partitions the real-time topic is split (24 has many divisors)",
            1,
            10_000,
        ),
        Setting(
            "rt_partitioner",
            Takes.FIXED,
            Kind.CHOICE,
            "xxhash64",
            "how producers place keys in the real-time topic; any: their own way, so that all partitions are read",
            choices=("xxhash64", "any"),
        ),
        Setting(
            "skew_limit_seconds",
            Takes.FIXED,
            Kind.SECONDS,
            60,
            "how far ahead of the log's time a given write time may be",
            0,
            86_400,
        ),
        Setting(
            "backup_retention_seconds",
            Takes.LIVE,
            Kind.SECONDS,
            _WEEK_SECONDS,
            "how long a version that was current is kept as a rollback target",
            0,
            365 * 86_400,
        ),
        Setting(
            "tombstone_grace_seconds",
            Takes.LIVE,
            Kind.SECONDS,
            10 * 86_400,
            "how long the tombstone of a delete is kept at least, so that late older writes still lose",
            0,
            365 * 86_400,
        ),
        Setting(
            "quota_bytes",
            Takes.LIVE,
            Kind.BYTES,
            0,
            "how large the base of a full push may be; 0: no limit; a repush is not judged, its data is there already",
            0,
            2**60,
        ),
        Setting(
            "max_value_bytes",
            Takes.LIVE,
            Kind.BYTES,
            1_048_576,
            "the largest Avro body of a nearline write's value",
            1,
            64 * 1_048_576,
        ),
        Setting("reads", Takes.LIVE, Kind.FLAG, True, "whether reads are answered"),
        Setting("writes", Takes.LIVE, Kind.FLAG, True, "whether nearline writes and pushes are accepted"),
        Setting(
            "repush_schedule",
            Takes.LIVE,
            Kind.TEXT,
            None,
            "when the controller repushes by itself: five cron fields in UTC, such as 0 3 * * *",
            check=parse_schedule,
        ),
        Setting(
            "repush_when",
            Takes.LIVE,
            Kind.TEXT,
            None,
            "on what condition a scheduled repush starts, such as: stale or unsorted_share > 0.3 or age > 7d",
            check=parse_condition,
        ),
        Setting("owner", Takes.LIVE, Kind.TEXT, None, "who is asked about the store"),
        Setting("description", Takes.LIVE, Kind.TEXT, None, "what the store holds"),
    )
}
"""Every store setting of this release, in the order in which they are shown."""

NOT_YET_SETTINGS = (
    "replication",
    "active_fabric",
)
"""Settings of the product that this release does not offer yet: refused, never ignored."""

FROZEN_SETTINGS = tuple(s.name for s in STORE_SETTINGS.values() if s.takes is Takes.FROZEN)
"""The names of the settings that belong to a version."""


def defaults() -> dict[str, SettingValue]:
    """Every setting with its default."""
    return {setting.name: setting.default for setting in STORE_SETTINGS.values()}


def parse_settings(given: Mapping[str, str | SettingValue]) -> dict[str, SettingValue]:
    """The typed values of what was given, all or nothing.

    Raises:
        InvalidRequest: ``unknown_setting`` (with the nearest known name), ``not_supported_yet``, ``bad_setting``.
    """
    parsed: dict[str, SettingValue] = {}
    for name, value in given.items():
        if name in NOT_YET_SETTINGS:
            raise not_supported_yet(f"the setting {name}", ", ".join(STORE_SETTINGS))
        if name not in STORE_SETTINGS:
            raise InvalidRequest(
                "unknown_setting",
                f"there is no setting {name}",
                found=name,
                expected=", ".join(STORE_SETTINGS),
                hint=did_you_mean(name, STORE_SETTINGS),
            )
        parsed[name] = STORE_SETTINGS[name].parse(value)
    return parsed
