"""Segments and their builds: what the catalog holds of each, and what a build promises of its file."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from anew.core.errors import InvalidRequest

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,119}")


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ColumnStats(_Value):
    """What a build's file holds of one column.

    Attributes:
        type: Its canonical type.
        least, greatest: The smallest and the greatest value in JSON (ISO-8601 for times, texts for decimals), None
            where every value is null; of texts and bytes they may be bounds that are cut, and of floats with NaN there
            are none.
        fingerprint: The sum modulo 2**64 of the hashes of its values, whatever their order.
        filled: Whether the file was made from one without the column: every value is the default.
    """

    type: str
    nulls: int
    least: Any = None
    greatest: Any = None
    fingerprint: int
    filled: bool = False


class Contents(_Value):
    """What a build's file holds, read back from the file itself.

    Attributes:
        rows: How many rows.
        columns: Column → what it holds.
        row_fingerprint: The sum modulo 2**64 of the hashes of its rows, whatever their order; None: nobody counted.
        partitions: The partitions of its rows, ascending; None where the table has no partitioning.
        created_by: Which library wrote it; says nothing about staleness.
    """

    rows: int
    columns: dict[str, ColumnStats]
    row_fingerprint: int | None = None
    partitions: tuple[int, ...] | None = None
    created_by: str = ""

    @property
    def filled(self) -> frozenset[str]:
        """The columns that hold nothing but the default."""
        return frozenset(name for name, stats in self.columns.items() if stats.filled)


class Build(_Value):
    """One immutable Parquet file of a segment, at its own path.

    Attributes:
        id: Never used again.
        path: In the deep store.
        config_hash: That of the configuration it was made with; None: it was imported.
        imported_under: The config hash that was wanted when it was imported.
        rebuild: Which rebuild made it.
    """

    id: str
    path: str
    bytes: int
    sha256: str
    config_hash: str | None
    imported_under: str | None = None
    contents: Contents
    rebuild: str = ""
    built_at_ms: int

    @property
    def served_hash(self) -> str | None:
        """The hash of a copy that serves these bytes as they are: l of the cases."""
        return self.imported_under if self.config_hash is None else self.config_hash


def same_content(one: Build, other: Build) -> bool:
    """Whether two builds hold the same rows in the same configuration, or the same bytes.

    Columns alone do not tell: a load that puts right which value is in which row changes none of them.
    """
    if one.sha256 == other.sha256 and one.config_hash == other.config_hash:
        return True
    if one.config_hash is None or one.config_hash != other.config_hash or one.contents.row_fingerprint is None:
        return False
    return _rows_of(one.contents) == _rows_of(other.contents)


def may_be_the_same_rows(one: Contents, other: Contents) -> bool:
    """Whether files of different configurations agree: in each column that both have, and in rows if these are all."""
    shared = [
        name for name, stats in one.columns.items() if name in other.columns and other.columns[name].type == stats.type
    ]
    if any(one.columns[name].fingerprint != other.columns[name].fingerprint for name in shared):
        return False
    if not len(shared) == len(one.columns) == len(other.columns):
        return True
    return one.row_fingerprint == other.row_fingerprint or None in (one.row_fingerprint, other.row_fingerprint)


def _rows_of(contents: Contents) -> tuple[Any, ...]:
    columns = {name: (stats.type, stats.fingerprint) for name, stats in contents.columns.items()}
    return contents.rows, contents.row_fingerprint, columns


class Failure(_Value):
    """Why a segment could not be rebuilt with a configuration: not tried again until that changes, or on request."""

    config_hash: str
    error: str
    at_ms: int


class Segment(_Value):
    """A named part of a table's rows, and the build that holds them now.

    Attributes:
        slot: Which place of the table's assignment it belongs to.
        created_at_ms: When the segment was made; builds come and go, it stays.
        pushed_at_ms: When somebody last loaded or imported it.
        prefix: The prefix of the load that it belongs to; None: it was imported.
        redealt: Whether a load dealt the rows of its prefix to other segments than before. Rows of this one's builds
            may since have come from other segments: a query sees the newest of it, or none of the load.
        failure: Of the last refresh that failed on it.
    """

    table_uid: str
    name: str
    slot: int
    created_at_ms: int
    pushed_at_ms: int
    build: Build
    failure: Failure | None = None
    prefix: str | None = None
    redealt: bool = False
    revision: int = 0

    @property
    def made_by(self) -> str | None:
        """The rebuild that says which load the segment belongs to; None where the segment says it, or nothing does."""
        return None if self.prefix is not None else self.build.rebuild or None


def check_segment_name(name: str) -> None:
    """Raise unless a segment may be called so: it names files and directories.

    Raises:
        InvalidRequest: ``bad_name``.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            "bad_name", "this is no name for a segment", found=name, expected="letters, digits, _ - and ., ≤ 120"
        )


class StaleSegment(NamedTuple):
    """What choosing needs to know of a segment whose hash is missing or not the wanted one."""

    name: str
    build: str
    bytes: int
    rows: int
    config_hash: str | None
    slot: int
    created_at_ms: int
    failed_hash: str | None


def stale_segment(segment: Segment) -> StaleSegment:
    """What choosing needs to know of a segment."""
    build, failure = segment.build, segment.failure
    return StaleSegment(
        segment.name,
        build.id,
        build.bytes,
        build.contents.rows,
        build.config_hash,
        segment.slot,
        segment.created_at_ms,
        None if failure is None else failure.config_hash,
    )
