"""Making segment files: read, shape, write, read back, and account for every row and each column that stays."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from anew.core.errors import Failed
from anew.core.tables.arrays import whole, whole_table
from anew.core.tables.casts import cast_column
from anew.core.tables.columns import Column as TableColumn
from anew.core.tables.config import SegmentConfig
from anew.core.tables.segment import Contents
from anew.segments.tables.fingerprint import Fingerprints, fingerprints
from anew.segments.tables.inspect import check_sound, contents_from, read_back
from anew.segments.tables.reading import metadata_of, read_rows
from anew.segments.tables.shape import Shaped, shaped
from anew.segments.tables.write import write_segment

_READ_ONLY = 0o444


@dataclass(frozen=True, slots=True)
class RebuildJob:
    """What a file becomes, and what is known of it.

    Attributes:
        wanted: The configuration that it gets.
        now: The one that it was made with; None: it was imported.
        known: What it holds, read back from it when it was made or imported.
    """

    wanted: SegmentConfig
    now: SegmentConfig | None = None
    known: Contents | None = None

    @property
    def filled(self) -> frozenset[str]:
        """Its columns that hold nothing but the default of ``now``."""
        return frozenset() if self.known is None else self.known.filled


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A file that was made and verified.

    Attributes:
        contents: What it holds, read back from it.
        rows_read: How many rows there were.
        rows_filtered: How many of them did not meet the row filter.
        bytes: Its size.
        sha256: Of its bytes, in hexadecimal.
    """

    contents: Contents
    rows_read: int
    rows_filtered: int
    bytes: int
    sha256: str


def rebuild_file(source: Path, target: Path, job: RebuildJob) -> Rebuilt:
    """Make a segment file anew from that of an older build.

    The target is read-only when this returns, and nothing is there when it fails; a power cut may take it away again.

    Raises:
        Failed: ``segment_unreadable``; ``bad_value``, ``bad_type``, ``null_value`` and what expressions raise: rows do
            not fit; ``rows_changed``: a row, or a value that had to stay, is not the same in the file made;
            ``segment_unsound``: the file made is not what was promised; ``target_exists``.
    """
    names = metadata_of(source).schema.to_arrow_schema().names
    needed = [name for name in names if _is_read(name, job)]
    # A file is read by its columns: one of them has to say how many rows there are.
    read = read_rows(source, needed or [name for name in names if _is_known(name, job)][:1])
    return _made(read if job.known is None else _as_known(read, job.known), target, job)


def make_file(table: pa.Table, target: Path, config: SegmentConfig) -> Rebuilt:
    """Make a segment file from rows of a load, whose columns have their types or such as can be cast to them.

    The target is read-only when this returns, and nothing is there when it fails; a power cut may take it away again.

    Raises:
        Failed: As `rebuild_file`.
    """
    return _made(whole_table(table), target, RebuildJob(config))


def unchanged_columns(table: pa.Table, job: RebuildJob) -> tuple[str, ...]:
    """The columns of the rows read whose values have to be the same in the file made, by name.

    Not those whose type changes, that are filled anew or get defaults for nulls; a derived column only if neither its
    expression nor any column that it may be computed from changes.
    """
    base = [column for column in job.wanted.columns if column.name not in job.wanted.derived]
    same = [column.name for column in base if _stays(table, column, job)]
    if any(column.name in table.column_names and column.name not in same for column in base):
        return tuple(same)
    derived = [column for column in job.wanted.columns if column.name in job.wanted.derived]
    return tuple(sorted([*same, *(column.name for column in derived if _stays(table, column, job))]))


@dataclass(frozen=True, slots=True)
class _Expected:
    """What the file made has to hold: so many rows, and the fingerprints of the columns that stay."""

    rows_read: int
    rows_kept: int
    filled: frozenset[str]
    prints: Fingerprints


def _made(source: pa.Table, target: Path, job: RebuildJob) -> Rebuilt:
    rows = shaped(source, job.wanted, job.filled)
    expected = _expected(source, rows, job)
    _reserve(target)
    try:
        # Memory that is given back is used again for what follows: fresh memory takes time.
        del source
        write_segment(rows.table, job.wanted, target)
        del rows
        return _verified(target, job, expected)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _expected(source: pa.Table, rows: Shaped, job: RebuildJob) -> _Expected:
    names = unchanged_columns(source, job)
    kept = rows.rows_read if rows.kept is None else int(rows.kept.sum())
    prints = _known_prints(job.known, names) if kept == rows.rows_read else None
    if prints is None:
        chosen = source.select(list(names))
        prints = fingerprints(chosen if rows.kept is None else chosen.filter(pa.array(rows.kept)))
    return _Expected(rows.rows_read, kept, rows.filled, prints)


def _known_prints(known: Contents | None, names: Collection[str]) -> Fingerprints | None:
    """The fingerprints that a file was found to have when it was made, if all of its columns stay.

    They say more than those of the rows that were just read: an error in reading them is found as well.
    """
    if known is None or known.row_fingerprint is None or known.columns.keys() != set(names):
        return None
    columns = {name: stats.fingerprint for name, stats in known.columns.items()}
    return Fingerprints(columns, known.row_fingerprint, known.row_fingerprint)


def _verified(target: Path, job: RebuildJob, expected: _Expected) -> Rebuilt:
    read, prints = read_back(target), expected.prints
    if read.table.num_rows != expected.rows_kept:
        raise _changed("rows were lost or added", read.table.num_rows, expected.rows_kept)
    found = fingerprints(read.table, prints.columns)
    for name, before in prints.columns.items():
        if found.columns.get(name) != before:
            raise _changed(f"values of {name} changed", found.columns.get(name), before)
    if found.among != prints.rows:
        raise _changed("values changed places among rows", found.among, prints.rows)
    check_sound(read, job.wanted, rows=expected.rows_kept)
    contents = contents_from(read, job.wanted, found, expected.filled)
    size, checksum = _sealed(target)
    return Rebuilt(contents, expected.rows_read, expected.rows_read - expected.rows_kept, size, checksum)


def _is_read(name: str, job: RebuildJob) -> bool:
    column = job.wanted.by_name.get(name)
    return (
        column is not None and _is_known(name, job) and (_same_expression(name, job) or name not in job.wanted.derived)
    )


def _as_known(table: pa.Table, known: Contents) -> pa.Table:
    """The rows in the types in which the segment holds them: another program's file may have others as wide."""
    for at, name in enumerate(table.column_names):
        kind = known.columns[name].type
        table = table.set_column(at, name, cast_column(whole(table.column(name)), TableColumn(name=name, type=kind)))
    return table


def _is_known(name: str, job: RebuildJob) -> bool:
    """Whether a column belongs to the segment: an import leaves out what tables cannot hold."""
    return job.known is None or name in job.known.columns


def _stays(table: pa.Table, column: TableColumn, job: RebuildJob) -> bool:
    if column.name not in table.column_names or not _same_default(column, job):
        return False
    held: Any = table.schema.field(column.name).type
    value_type = held.value_type if isinstance(held, pa.DictionaryType) else held
    if value_type != column.arrow_type or (not column.nullable and table.column(column.name).null_count):
        return False
    return column.name not in job.wanted.derived or _same_expression(column.name, job)


def _same_expression(name: str, job: RebuildJob) -> bool:
    return job.now is not None and job.now.derived.get(name) == job.wanted.derived.get(name)


def _same_default(column: TableColumn, job: RebuildJob) -> bool:
    """Whether a column that is filled again gets what it had."""
    if column.name not in job.filled:
        return True
    before = None if job.now is None else job.now.by_name.get(column.name)
    return before is not None and (before.type, before.default) == (column.type, column.default)


def _reserve(target: Path) -> None:
    try:
        target.touch(exist_ok=False)
    except FileExistsError:
        raise Failed(
            "target_exists",
            "a segment file is never written over another one",
            found=str(target),
            expected="a fresh path",
        ) from None


def _sealed(path: Path) -> tuple[int, str]:
    """The size and the SHA-256 of a file that is read-only from now on."""
    with path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
        path.chmod(_READ_ONLY)
        return file.tell(), checksum


def _changed(message: str, found: Any, expected: Any) -> Failed:
    return Failed("rows_changed", f"the file made is refused: {message}", found=found, expected=expected)
