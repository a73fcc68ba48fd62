"""Parquet files that other programs wrote: what a table takes of them, and what it refuses by name.

A file is imported as it is, so that everything that could go wrong with it later is looked for when it comes in: each
column that the table names has to be readable, of a type that holds its values exactly, and of values that become those
of the table's own type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anew.core.errors import AnewError, Failed
from anew.core.tables.arrays import Column, Held, all_null, decoded, is_text, mask_of, numbers, table_of
from anew.core.tables.casts import cast_column, first_misfit, shown_value
from anew.core.tables.columns import TYPES, type_name
from anew.core.tables.columns import Column as TableColumn
from anew.core.tables.config import SegmentConfig
from anew.core.tables.segment import Contents
from anew.segments.tables.fingerprint import fingerprints
from anew.segments.tables.inspect import ReadBack, contents_from
from anew.segments.tables.reading import UNREADABLE, int96_as, metadata_of, plain_type, read_checked, unreadable

_WIDER: dict[Any, str] = {
    pa.int8(): "smallint",
    pa.uint8(): "smallint",
    pa.uint16(): "integer",
    pa.uint32(): "bigint",
    pa.float16(): "real",
}
"""Types that tables do not have → one of theirs that holds all of their values."""
_MOST_DIGITS = 38
_SUBMICROSECONDS = "microseconds, or nanoseconds that are whole microseconds"


def examine(path: Path, config: SegmentConfig) -> Contents:
    """What a file holds that a table can take; every column that the table names has to be right.

    Columns that the table does not name are taken where they can be, for the table may name them later; the others are
    left out, as if the file did not have them.

    Raises:
        Failed: ``segment_unreadable``, ``unsupported_type``, ``duplicate_column``, ``not_utf8``, ``bad_value``,
            ``bad_type``, ``null_value``: names the file, the column and, of a value, its row, counted from 0.
    """
    metadata = metadata_of(path)
    try:
        schema: pa.Schema = metadata.schema.to_arrow_schema()
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    twice = Counter(name.lower() for name in schema.names)
    columns: dict[str, Column] = {}
    for name in dict.fromkeys(schema.names):
        wanted = config.by_name.get(name)
        try:
            _check_once(path, name, twice[name.lower()])
            column = _taken(path, name, schema.field(name).type, wanted)
            _check_count(path, name, len(column), metadata.num_rows)
            if _is_int96(metadata, name):
                _check_microseconds(path, name, column)
            if wanted is not None:
                _check_fits(path, column, wanted, is_derived=name in config.derived)
        except AnewError:
            if wanted is not None:
                raise
        else:
            columns[name] = column
    table = table_of(columns)
    # A table without columns would have no rows.
    counted = contents_from(ReadBack(metadata, table), None, fingerprints(table))
    return counted.model_copy(update={"rows": metadata.num_rows})


def check_readable(path: Path, names: Collection[str]) -> None:
    """Raise for the first of some columns of a file that cannot be read, or holds times in nanoseconds.

    Raises:
        Failed: ``segment_unreadable``, ``unsupported_type``: names the file and the column.
    """
    metadata = metadata_of(path)
    try:
        schema: pa.Schema = metadata.schema.to_arrow_schema()
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    for name in schema.names:
        if name not in names:
            continue
        held: Held = schema.field(name).type
        read_checked(path, name)
        if pa.types.is_timestamp(held) and held.unit == "ns" and not _is_int96(metadata, name):
            raise Failed(
                "unsupported_type",
                f"the column {name} of {path} has times in nanoseconds",
                found=str(held),
                expected="times in microseconds or milliseconds",
                hint="write the column in microseconds",
            )


def _is_int96(metadata: Any, name: str) -> bool:
    columns = (metadata.schema.column(at) for at in range(metadata.num_columns))
    return any(column.path == name and column.physical_type == "INT96" for column in columns)


def _taken(path: Path, name: str, held: Held, wanted: TableColumn | None) -> Column:
    """A column in the canonical type that holds it exactly."""
    kind = _canonical(plain_type(held))
    if pa.types.is_null(held) and wanted is not None:
        kind = wanted.type
    if kind is None:
        expected = f"one of {', '.join(TYPES)}, decimal(precision,scale) up to {_MOST_DIGITS} digits"
        raise Failed(
            "unsupported_type",
            f"tables have no type for the column {name} of {path}",
            found=str(held),
            expected=expected,
            hint="write the column in another type, or leave it out of the table's schema",
        )
    column = read_checked(path, name)
    value_type = column.type.value_type if isinstance(column.type, pa.DictionaryType) else column.type
    if not is_text(value_type):
        column = decoded(column)
    target = TableColumn(name=name, type=kind)
    if pa.types.is_null(column.type):
        return all_null(len(column), target.arrow_type)
    if pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    if is_text(value_type):
        _check_text(path, name, column)
        return column
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return _microseconds(path, name, column)
    return cast_column(column, target)


def _canonical(held: Held) -> str | None:
    if pa.types.is_fixed_size_binary(held) and not pa.types.is_decimal(held):
        return "blob"
    if pa.types.is_decimal(held) and held.precision > _MOST_DIGITS:
        return None
    return _WIDER.get(held, type_name(held))


def _check_count(path: Path, name: str, found: int, expected: int) -> None:
    if found != expected:
        raise unreadable(path, ValueError(f"it has {found} values, and the file {expected} rows"), name)


def _check_once(path: Path, name: str, times: int) -> None:
    if times > 1:
        raise Failed(
            "duplicate_column",
            f"{times} columns of {path} are called {name}, in upper or lower case",
            found=name,
            expected="names that differ in more than upper and lower case",
        )


def _check_text(path: Path, name: str, column: Column) -> None:
    plain = decoded(column)
    row = invalid_text(plain)
    if row is not None:
        value = plain[row].cast(pa.large_binary() if pa.types.is_large_string(plain.type) else pa.binary())
        raise Failed(
            "not_utf8",
            f"a text of the column {name} of {path} is not valid UTF-8, in row {row}",
            found=shown_value(value),
            expected="UTF-8",
            hint="write the column as binary, or write its texts in UTF-8",
        )


def invalid_text(column: Column) -> int | None:
    """The row of the first text that is not valid UTF-8; None: all are, or the column is not of texts."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return first_misfit(column, lambda part: part.validate(full=True))
    return None


def _microseconds(path: Path, name: str, column: Column) -> Column:
    """Nanoseconds as the microseconds that tables have."""
    plain = column.cast(pa.timestamp("ns"))
    try:
        return plain.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        row = first_misfit(plain, lambda part: part.cast(pa.timestamp("us")))
        raise _has_nanoseconds(path, name, row, str(plain[row].cast(pa.string()).as_py())) from None


def _check_microseconds(path: Path, name: str, column: Column) -> None:
    """INT96 counts days and nanoseconds: those that are no times in µs are refused.

    What was left out shows modulo 2**64, also where nanoseconds do not fit into 64 bits.
    """
    there, kept = ~mask_of(column.is_null()), numbers(column, np.int64)
    milliseconds = int96_as(path, name, "ms")
    outside = (kept // 1_000 != numbers(milliseconds, np.int64)) & there
    if outside.any():
        row = int(outside.argmax())
        raise Failed(
            "bad_value",
            f"a time of the column {name} of {path} is too far away, in row {row}",
            found=shown_value(milliseconds[row]),
            expected="a time that 64 bits hold in microseconds",
        )
    multiplied = kept.astype(np.uint64) * np.uint64(1_000)
    cut = (multiplied != numbers(int96_as(path, name, "ns"), np.int64).astype(np.uint64)) & there
    if cut.any():
        row = int(cut.argmax())
        raise _has_nanoseconds(path, name, row, f"{shown_value(column[row])} and less than a microsecond")


def _has_nanoseconds(path: Path, name: str, row: int, found: str) -> Failed:
    return Failed(
        "bad_value",
        f"a time of the column {name} of {path} is not a whole number of microseconds, in row {row}",
        found=found,
        expected=_SUBMICROSECONDS,
        hint="write the column in microseconds",
    )


def _check_fits(path: Path, column: Column, wanted: TableColumn, *, is_derived: bool) -> None:
    try:
        fitting = cast_column(column, wanted)
    except Failed as error:
        raise Failed(
            error.code, f"{path}: {error.message}", found=error.found, expected=error.expected, hint=error.hint
        ) from None
    if wanted.nullable or wanted.default is not None or is_derived or not fitting.null_count:
        return
    row = int(mask_of(fitting.is_null()).argmax())
    raise Failed(
        "null_value",
        f"{path}: the column {wanted.name} has a null and may have none, in row {row}",
        expected=wanted.type,
        hint="give the column a default",
    )
