"""The settings of a table: what a configuration file and ``--set`` may say, aliases merged, defaults explicit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict

from anew.core.schedule import parse_schedule
from anew.core.settings import Kind, Setting, Settings, Takes

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


# -- readers of lists and objects: `KeyError`, `TypeError` or `ValueError` for what they do not accept -----------------


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


def _codecs(value: Any) -> dict[str, str]:
    found = {}
    for column, codec in _object(value).items():
        parsed = parse_codec(codec)
        found[column] = parsed.name if parsed.level is None else f"{parsed.name}:{parsed.level}"
    return found


def _level(value: Any) -> int | None:
    return None if value == "" else int(str(value))


def _texts(value: Any) -> dict[str, str]:
    found = _object(value)
    if not all(isinstance(text, str) and text.strip() for text in found.values()):
        raise ValueError
    return found


def _refresh(value: Any) -> Refresh:
    return Refresh(**_REFRESH_SETTINGS.parse(_object(value)))


# -- the tables --------------------------------------------------------------------------------------------------------


def _setting(
    name: str, kind: Kind, meaning: str, least: int | None = None, most: int | None = None, **more: Any
) -> Setting:
    """A row with the model's default: the model needs one, because tables that are kept may lack newer settings."""
    return Setting(name, kind, TableSettings.model_fields[name].default, meaning, least, most, **more)


_stale = partial(_setting, takes=Takes.REFRESH)
_loaded = partial(_setting, takes=Takes.LOAD)

TABLE_SETTINGS = Settings(
    _stale(
        "sort", Kind.SHAPED, "by which columns rows are sorted, ascending, nulls last", read=_names, accepts="columns"
    ),
    _stale("partition_column", Kind.TEXT, "which column decides the partition", accepts="a column"),
    _stale(
        "partition_function",
        Kind.CHOICE,
        "how a value gives its partition: pmod(xxhash64(value), count), or pmod(value, count)",
        choices=PARTITION_FUNCTIONS,
    ),
    _stale("partition_count", Kind.COUNT, "how many partitions there are", 1, 100_000),
    _stale(
        "bloom",
        Kind.SHAPED,
        "columns with a bloom filter, and its false-positive rate",
        read=_bloom,
        accepts="column → fpp",
    ),
    _stale(
        "dictionary",
        Kind.SHAPED,
        "which columns are dictionary-encoded (all)",
        read=_switches,
        accepts="column → on, off",
    ),
    _stale("codec", Kind.CHOICE, "how columns are compressed", choices=CODECS),
    _stale("level", Kind.SHAPED, "how hard the codec tries", read=_level, accepts="a level of the codec"),
    _stale("codecs", Kind.SHAPED, "codecs of single columns", read=_codecs, accepts="column → codec or codec:level"),
    _stale("row_group_rows", Kind.COUNT, "how many rows a row group holds", 1_000, 100_000_000),
    _stale("page_index", Kind.FLAG, "whether files have page indexes"),
    _stale("time_column", Kind.TEXT, "which column says when a row was", accepts="a column with the role time"),
    _loaded("bucket", Kind.CHOICE, "into which spans of time a load is split", choices=BUCKETS),
    _loaded("segment_rows", Kind.COUNT, "how many rows a segment of a load holds at most", 1_000, 1_000_000_000),
    _stale(
        "derived",
        Kind.SHAPED,
        "columns that are computed from others",
        read=_texts,
        accepts="column → SQL expression",
    ),
    _stale("row_filter", Kind.TEXT, "which rows are kept", accepts="an SQL condition"),
    _setting("replicas", Kind.COUNT, "how many nodes hold each segment", 1, 100),
    _setting(
        "backup_retention_seconds",
        Kind.SECONDS,
        "how long a build that was replaced is kept in the deep store",
        0,
        365 * 86_400,
    ),
    _setting("quota_bytes", Kind.BYTES, "how large the table may become by loads; 0: no limit", 0, 2**60),
    _setting("skip_segment_preprocess", Kind.FLAG, "whether nodes serve builds as they are, always"),
    _setting(
        "refresh",
        Kind.SHAPED,
        "the refresh task: when it runs, and how it chooses",
        read=_refresh,
        accepts="an object",
    ),
    _setting("owner", Kind.TEXT, "who is asked about the table"),
    _setting("description", Kind.TEXT, "what the table holds"),
    _setting("tags", Kind.SHAPED, "words by which the table is found", read=_names, accepts="texts"),
    aliases=ALIASES,
    unknown=("unknown_setting", "tables have no setting"),
)
"""Every table setting, in the order in which they are shown."""

_REFRESH_SETTINGS = Settings(
    Setting("schedule", Kind.TEXT, None, "when it runs: five cron fields in UTC", check=parse_schedule),
    Setting(
        "reloadOnly", Kind.FLAG, False, "whether it takes only segments that a node serves with another configuration"
    ),
    Setting(
        "forceReload", Kind.FLAG, False, "with reloadOnly: whether it takes all stale segments, without asking nodes"
    ),
    Setting(
        "maxSegments", Kind.COUNT, DEFAULT_MAX_SEGMENTS, "how many segments a run takes at most; 0: all", 0, 10_000_000
    ),
    unknown=("unknown_setting", "the refresh task has no setting"),
)


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
