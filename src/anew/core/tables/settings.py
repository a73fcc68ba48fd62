"""The settings of a table: what a configuration file and ``--set`` may say, aliases merged, defaults explicit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from anew.core.errors import InvalidRequest
from anew.core.schedule import parse_schedule
from anew.core.settings import Kind, Setting, Takes
from anew.core.suggest import did_you_mean

CODECS = ("none", "snappy", "gzip", "lz4", "zstd", "brotli")
BUCKETS = ("hour", "day", "month", "year")
PARTITION_FUNCTIONS = ("xxhash64", "modulo")
DEFAULT_FPP = 0.01
DEFAULT_MAX_SEGMENTS = 20
_LEVELS = {"gzip": (1, 9, 6), "zstd": (1, 22, 3), "brotli": (0, 11, 4)}
"""Codec → least, most and default level; the others have none."""

ALIASES = {
    "sort_columns": "sort",
    "sorted_column": "sort",
    "sortedColumn": "sort",
    "bloom_filters": "bloom",
    "bloomFilterColumns": "bloom",
    "compression": "codec",
    "compression_level": "level",
    "row_group_size": "row_group_rows",
    "timeColumnName": "time_column",
    "timeColumn": "time_column",
    "partitionColumn": "partition_column",
    "partitionFunction": "partition_function",
    "partitionCount": "partition_count",
    "numPartitions": "partition_count",
    "replication": "replicas",
    "filter": "row_filter",
    "skipSegmentPreprocess": "skip_segment_preprocess",
    "task": "refresh",
}
"""Other names of settings, merged before anything is compared."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How a column is compressed; ``level`` is None where the codec has none."""

    name: str
    level: int | None


class Refresh(BaseModel):
    """The task block: how the controller refreshes by itself, in the guide's spelling.

    Attributes:
        schedule: Five cron fields in UTC; None: it does not.
        maxSegments: How many segments a run takes at most; 0: all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schedule: str | None = None
    reloadOnly: bool = False  # noqa: N815 - the guide's spelling
    forceReload: bool = False  # noqa: N815 - the guide's spelling
    maxSegments: int = DEFAULT_MAX_SEGMENTS  # noqa: N815 - the guide's spelling


class TableSettings(BaseModel):
    """All settings of a table, parsed; see `docs/tables.md` for what each means."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sort: tuple[str, ...] = ()
    partition_column: str | None = None
    partition_function: str = "xxhash64"
    partition_count: int = 1
    bloom: dict[str, float] = {}
    dictionary: dict[str, bool] = {}
    codec: str = "zstd"
    level: int | None = None
    codecs: dict[str, str] = {}
    row_group_rows: int = 131_072
    page_index: bool = True
    time_column: str | None = None
    bucket: str | None = None
    segment_rows: int = 1_000_000
    derived: dict[str, str] = {}
    row_filter: str | None = None
    replicas: int = 2
    backup_retention_seconds: int = 86_400
    quota_bytes: int = 0
    skip_segment_preprocess: bool = False
    refresh: Refresh = Refresh()
    owner: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()

    def codec_of(self, column: str) -> Codec:
        """How a column is compressed: its own codec, else the table's."""
        own = self.codecs.get(column)
        if own is not None:
            return parse_codec(own)
        return Codec(self.codec, default_level(self.codec) if self.level is None else self.level)


def _number(name: str, meaning: str, least: int, most: int) -> Callable[[Any], int]:
    setting = Setting(name, Takes.FROZEN, Kind.COUNT, least, meaning, least, most)

    def parse(value: Any) -> int:
        return int(setting.parse(value))  # type: ignore[arg-type]  # a count is never null

    return parse


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = json.loads(value) if value.startswith("[") else [part.strip() for part in value.split(",")]
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError
    names = tuple(name for name in value if name)
    if len(set(names)) < len(names):
        raise ValueError
    return names


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = json.loads(value) if value.strip() else {}
    if not isinstance(value, Mapping):
        raise ValueError
    return dict(value)


def _bloom(value: Any) -> dict[str, float]:
    """Column → false-positive probability; a list of columns has the default one."""
    if isinstance(value, list | tuple) or (isinstance(value, str) and not value.strip().startswith("{")):
        return dict.fromkeys(_names(value), DEFAULT_FPP)
    found = {column: float(fpp) for column, fpp in _object(value).items()}
    if not all(0 < fpp < 1 for fpp in found.values()):
        raise ValueError
    return found


def _switches(value: Any) -> dict[str, bool]:
    spelt = {"on": True, "off": False, True: True, False: False}
    return {column: spelt[switch] for column, switch in _object(value).items()}


def _codec(value: Any) -> str:
    if value not in CODECS:
        raise ValueError
    return str(value)


def _codecs(value: Any) -> dict[str, str]:
    found = {}
    for column, codec in _object(value).items():
        parsed = parse_codec(codec)
        found[column] = parsed.name if parsed.level is None else f"{parsed.name}:{parsed.level}"
    return found


def _level(value: Any) -> int | None:
    return None if value in (None, "") else int(str(value))


def _texts(value: Any) -> dict[str, str]:
    found = _object(value)
    if not all(isinstance(text, str) and text.strip() for text in found.values()):
        raise ValueError
    return found


def _text(value: Any) -> str | None:
    return None if value is None or not str(value).strip() else str(value).strip()


def _choice(choices: tuple[str, ...]) -> Callable[[Any], str | None]:
    def parse(value: Any) -> str | None:
        if value in (None, ""):
            return None
        if value not in choices:
            raise ValueError
        return str(value)

    return parse


def _flag(value: Any) -> bool:
    spelt = {"true": True, "false": False}
    return value if isinstance(value, bool) else spelt[str(value).lower()]


def _refresh(value: Any) -> Refresh:
    found = _object(value)
    known = Refresh.model_fields
    for name in found:
        if name not in known:
            raise InvalidRequest(
                "unknown_setting",
                f"the refresh task has no setting {name}",
                found=name,
                expected=", ".join(known),
                hint=did_you_mean(name, known),
            )
    if found.get("schedule"):
        parse_schedule(found["schedule"])
    most = _number("maxSegments", "how many segments a run takes at most; 0: all", 0, 10_000_000)
    return Refresh(
        schedule=_text(found.get("schedule")),
        reloadOnly=_flag(found.get("reloadOnly", False)),
        forceReload=_flag(found.get("forceReload", False)),
        maxSegments=most(found.get("maxSegments", DEFAULT_MAX_SEGMENTS)),
    )


@dataclass(frozen=True, slots=True)
class TableSetting:
    """One row of the table of settings.

    Attributes:
        stale: Whether a change of it makes segments stale.
        parse: The typed value of a text or of a value of a configuration file; raises `ValueError` and its kin.
    """

    name: str
    stale: bool
    expected: str
    meaning: str
    parse: Callable[[Any], Any]


_YEAR_SECONDS = 365 * 86_400

TABLE_SETTINGS: dict[str, TableSetting] = {
    row.name: row
    for row in (
        TableSetting("sort", True, "columns", "by which columns rows are sorted, ascending, nulls last", _names),
        TableSetting("partition_column", True, "a column", "which column decides the partition", _text),
        TableSetting(
            "partition_function",
            True,
            " | ".join(PARTITION_FUNCTIONS),
            "how a value gives its partition: pmod(xxhash64(value), count), or pmod(value, count)",
            _choice(PARTITION_FUNCTIONS),
        ),
        TableSetting(
            "partition_count",
            True,
            "1 to 100,000",
            "how many partitions there are",
            _number("partition_count", "how many partitions there are", 1, 100_000),
        ),
        TableSetting("bloom", True, "column → fpp", "columns with a bloom filter, and its false-positive rate", _bloom),
        TableSetting("dictionary", True, "column → on | off", "which columns are dictionary-encoded (all)", _switches),
        TableSetting("codec", True, " | ".join(CODECS), "how columns are compressed", _codec),
        TableSetting("level", True, "a level of the codec", "how hard the codec tries", _level),
        TableSetting("codecs", True, "column → codec or codec:level", "codecs of single columns", _codecs),
        TableSetting(
            "row_group_rows",
            True,
            "1,000 to 100,000,000",
            "how many rows a row group holds",
            _number("row_group_rows", "how many rows a row group holds", 1_000, 100_000_000),
        ),
        TableSetting("page_index", True, "true | false", "whether files have page indexes", _flag),
        TableSetting("time_column", True, "a column with the role time", "which column says when a row was", _text),
        TableSetting(
            "bucket", False, " | ".join(BUCKETS), "into which spans of time a load is split", _choice(BUCKETS)
        ),
        TableSetting(
            "segment_rows",
            False,
            "1,000 to 1,000,000,000",
            "how many rows a segment of a load holds at most",
            _number("segment_rows", "how many rows a segment of a load holds at most", 1_000, 1_000_000_000),
        ),
        TableSetting("derived", True, "column → SQL expression", "columns that are computed from others", _texts),
        TableSetting("row_filter", True, "an SQL condition", "which rows are kept", _text),
        TableSetting(
            "replicas",
            False,
            "1 to 100",
            "how many nodes hold each segment",
            _number("replicas", "how many nodes hold each segment", 1, 100),
        ),
        TableSetting(
            "backup_retention_seconds",
            False,
            "whole seconds",
            "how long a build that was replaced is kept in the deep store",
            _number("backup_retention_seconds", "how long a replaced build is kept", 0, _YEAR_SECONDS),
        ),
        TableSetting(
            "quota_bytes",
            False,
            "whole bytes",
            "how large the table may become by loads; 0: no limit",
            _number("quota_bytes", "how large the table may become by loads", 0, 2**60),
        ),
        TableSetting(
            "skip_segment_preprocess", False, "true | false", "whether nodes serve builds as they are, always", _flag
        ),
        TableSetting("refresh", False, "an object", "the refresh task: when it runs, and how it chooses", _refresh),
        TableSetting("owner", False, "text", "who is asked about the table", _text),
        TableSetting("description", False, "text", "what the table holds", _text),
        TableSetting("tags", False, "texts", "words by which the table is found", _names),
    )
}
"""Every table setting, in the order in which they are shown."""


def parse_table_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The typed values of what a configuration file or ``--set`` says, all or nothing, under their own names.

    Raises:
        InvalidRequest: ``unknown_setting`` (with the nearest known name), ``bad_setting``; two names of one setting
            with two values.
    """
    parsed: dict[str, Any] = {}
    for said, value in given.items():
        name = ALIASES.get(said, said)
        if name not in TABLE_SETTINGS:
            raise InvalidRequest(
                "unknown_setting",
                f"tables have no setting {said}",
                found=said,
                expected=", ".join(TABLE_SETTINGS),
                hint=did_you_mean(said, [*TABLE_SETTINGS, *ALIASES]),
            )
        typed = _parsed(TABLE_SETTINGS[name], value)
        if parsed.get(name, typed) != typed:
            raise InvalidRequest(
                "bad_setting", f"{name} is said twice, differently", found=[parsed[name], typed], expected="one of them"
            )
        parsed[name] = typed
    return parsed


def default_level(codec: str) -> int | None:
    """The level that a codec has where none is said."""
    return _LEVELS[codec][2] if codec in _LEVELS else None


def parse_codec(text: Any) -> Codec:
    """``zstd`` or ``zstd:9``.

    Raises:
        ValueError: It is no codec, or has no such level.
    """
    name, _, level = str(text).partition(":")
    if name not in CODECS:
        raise ValueError(name)
    return Codec(name, checked_level(name, int(level) if level else None))


def checked_level(codec: str, level: int | None) -> int | None:
    """The level, or the codec's own for None.

    Raises:
        ValueError: The codec has no such level.
    """
    if level is None:
        return default_level(codec)
    least, most, _ = _LEVELS.get(codec, (1, 0, 0))
    if not least <= level <= most:
        raise ValueError(level)
    return level


def _parsed(setting: TableSetting, value: Any) -> Any:
    try:
        if value is None:
            return TableSettings.model_fields[setting.name].default
        parsed = setting.parse(value)
    except (ValueError, KeyError, TypeError, json.JSONDecodeError):
        raise InvalidRequest(
            "bad_setting",
            f"the setting {setting.name} does not accept this value",
            found=value,
            expected=setting.expected,
            hint=f"{setting.name}: {setting.meaning}",
        ) from None
    # What is taken back has its default again.
    return TableSettings.model_fields[setting.name].default if parsed is None else parsed
