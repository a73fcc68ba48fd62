"""The canonical form of all configuration that decides a segment's bytes, its hash, and why two of them differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from anew.core.confighash import value_hash
from anew.core.errors import InvalidRequest
from anew.core.tables.columns import Column, Role, check_known
from anew.core.tables.settings import TableSettings, checked_level

ALGORITHM = "t1"
"""Which canonical form was hashed; a change of the form gets a new name, so that hashes of two forms never meet."""

FORMAT = 1
"""The version of the segment format: another one makes every segment stale."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Partitioning(_Value):
    """Which column decides the partition of a row, and how."""

    column: str
    function: str
    count: int


class Encoding(_Value):
    """How a column is stored; ``bloom`` is the false-positive rate of its bloom filter, None for none."""

    codec: str
    level: int | None
    dictionary: bool
    bloom: float | None = None


class SegmentConfig(_Value):
    """What decides a segment's bytes, in canonical form: columns by name, every default explicit.

    Attributes:
        encodings: Column → how it is stored; every column is named.
        derived: Column → SQL expression.
        row_filter: The SQL condition that rows have to meet.
    """

    format: int = FORMAT
    columns: tuple[Column, ...]
    time_column: str | None
    sort: tuple[str, ...]
    partition: Partitioning | None
    encodings: dict[str, Encoding]
    row_group_rows: int
    page_index: bool
    derived: dict[str, str]
    row_filter: str | None

    @property
    def hash(self) -> str:
        """The config hash: ``t1-…``."""
        return f"{ALGORITHM}-{value_hash(self.model_dump(mode='json'))}"

    @property
    def by_name(self) -> dict[str, Column]:
        """The columns by name."""
        return {column.name: column for column in self.columns}

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns as a file of a segment holds them."""
        return pa.schema([pa.field(c.name, c.arrow_type, c.nullable) for c in self.columns])


def segment_config(columns: tuple[Column, ...], settings: TableSettings) -> SegmentConfig:
    """The canonical configuration of a table.

    Raises:
        InvalidRequest: ``unknown_column``, ``bad_setting``: settings that do not fit the columns or one another.
    """
    known = {column.name: column for column in sorted(columns, key=lambda c: c.name)}
    _check_names(known, settings)
    _check_time(known, settings)
    return SegmentConfig(
        columns=tuple(known.values()),
        time_column=settings.time_column,
        sort=settings.sort,
        partition=_partitioning(known, settings),
        encodings={name: _encoding(name, settings) for name in known},
        row_group_rows=settings.row_group_rows,
        page_index=settings.page_index,
        derived=dict(sorted(settings.derived.items())),
        row_filter=settings.row_filter,
    )


def _check_names(known: Mapping[str, Column], settings: TableSettings) -> None:
    named = {
        "sort": settings.sort,
        "bloom": tuple(settings.bloom),
        "dictionary": tuple(settings.dictionary),
        "codecs": tuple(settings.codecs),
        "derived": tuple(settings.derived),
        "partition_column": () if settings.partition_column is None else (settings.partition_column,),
        "time_column": () if settings.time_column is None else (settings.time_column,),
    }
    for setting, names in named.items():
        for name in names:
            check_known(name, known, f"the setting {setting}")
    for name in settings.bloom:
        if known[name].type == "boolean":
            raise _bad("bloom", name, "a column that is not boolean", "two values need no bloom filter")


def _check_time(known: Mapping[str, Column], settings: TableSettings) -> None:
    if settings.bucket is not None and settings.time_column is None:
        raise _bad("bucket", settings.bucket, "a time_column", "say which column: --set time_column=…")
    if settings.time_column is None:
        return
    column = known[settings.time_column]
    if column.role is not Role.TIME or column.type not in ("timestamp", "date", "bigint"):
        raise _bad(
            "time_column",
            f"{column.name}: {column.role.value}, {column.type}",
            "a column with the role time, of type timestamp, date or bigint (ms)",
        )


def _partitioning(known: Mapping[str, Column], settings: TableSettings) -> Partitioning | None:
    if settings.partition_column is None:
        return None
    function, kind = settings.partition_function, known[settings.partition_column].type
    fitting = (
        ("smallint", "integer", "bigint")
        if function == "modulo"
        else ("smallint", "integer", "bigint", "varchar", "blob")
    )
    if kind not in fitting:
        raise _bad("partition_column", kind, f"for {function}: {', '.join(fitting)}")
    return Partitioning(column=settings.partition_column, function=function, count=settings.partition_count)


def _encoding(name: str, settings: TableSettings) -> Encoding:
    codec = settings.codec_of(name)
    try:
        level = checked_level(codec.name, codec.level)
    except ValueError:
        raise _bad("level", f"{codec.name}:{codec.level}", "a level that the codec has") from None
    return Encoding(
        codec=codec.name,
        level=level,
        dictionary=settings.dictionary.get(name, True),
        bloom=settings.bloom.get(name),
    )


def _bad(setting: str, found: Any, expected: str, hint: str | None = None) -> InvalidRequest:
    return InvalidRequest(
        "bad_setting", f"the setting {setting} does not fit", found=found, expected=expected, hint=hint
    )


# -- why two configurations differ -------------------------------------------------------------------------------------

Kind = Literal[
    "column_added",
    "column_removed",
    "type",
    "default",
    "role",
    "nullable",
    "time_column",
    "sort",
    "partition",
    "bloom",
    "dictionary",
    "codec",
    "row_group_rows",
    "page_index",
    "derived",
    "row_filter",
    "format",
]


class Reason(_Value):
    """One way in which the configuration of a build differs from the wanted one; ``column`` where it is about one."""

    kind: Kind
    column: str | None = None
    now: Any = None
    wanted: Any = None

    @property
    def shown(self) -> str:
        """One line for people."""
        what = self.kind.replace("_", " ")
        if self.kind in ("column_added", "column_removed"):
            return f"{what}: {self.column} ({self.wanted if self.now is None else self.now})"
        about = what if self.column is None else f"{what} of {self.column}"
        return f"{about}: {_shown(self.now)} → {_shown(self.wanted)}"


def differences(now: SegmentConfig, wanted: SegmentConfig) -> tuple[Reason, ...]:
    """Every difference that matters, not just the first (case A7)."""
    whole: list[tuple[Kind, Any, Any]] = [
        ("format", now.format, wanted.format),
        ("time_column", now.time_column, wanted.time_column),
        ("sort", list(now.sort), list(wanted.sort)),
        ("partition", _plain(now.partition), _plain(wanted.partition)),
        ("row_group_rows", now.row_group_rows, wanted.row_group_rows),
        ("page_index", now.page_index, wanted.page_index),
        ("row_filter", now.row_filter, wanted.row_filter),
    ]
    reasons = _reasons(None, whole)
    before, after = now.by_name, wanted.by_name
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            reasons.append(Reason(kind="column_added", column=name, wanted=after[name].type))
        elif name not in after:
            reasons.append(Reason(kind="column_removed", column=name, now=before[name].type))
        else:
            reasons += _column_reasons(name, now, wanted)
        if now.derived.get(name) != wanted.derived.get(name):
            reasons.append(
                Reason(kind="derived", column=name, now=now.derived.get(name), wanted=wanted.derived.get(name))
            )
    return tuple(reasons)


_COLUMN_PARTS: dict[Kind, Callable[[Column], Any]] = {
    "type": lambda column: column.type,
    "default": lambda column: column.default,
    "role": lambda column: column.role.value,
    "nullable": lambda column: column.nullable,
}
_ENCODING_PARTS: dict[Kind, Callable[[Encoding], Any]] = {
    "bloom": lambda encoding: encoding.bloom,
    "dictionary": lambda encoding: encoding.dictionary,
    "codec": lambda encoding: encoding.codec if encoding.level is None else f"{encoding.codec}:{encoding.level}",
}


def _column_reasons(name: str, now: SegmentConfig, wanted: SegmentConfig) -> list[Reason]:
    columns, encodings = (now.by_name[name], wanted.by_name[name]), (now.encodings[name], wanted.encodings[name])
    pairs: list[tuple[Kind, Any, Any]] = [
        (kind, part(columns[0]), part(columns[1])) for kind, part in _COLUMN_PARTS.items()
    ]
    pairs += [(kind, part(encodings[0]), part(encodings[1])) for kind, part in _ENCODING_PARTS.items()]
    return _reasons(name, pairs)


def _reasons(column: str | None, pairs: list[tuple[Kind, Any, Any]]) -> list[Reason]:
    return [Reason(kind=kind, column=column, now=now, wanted=wanted) for kind, now, wanted in pairs if now != wanted]


def _plain(partition: Partitioning | None) -> Any:
    return None if partition is None else partition.model_dump()


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or value == []:
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return str(value)
