"""Rows of an input file as they were read: the columns, the place of each row, and the rows that did not parse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.codec.kernels import pc
from anew.core.errors import InvalidRequest

PARSES = "a row that parses"
_SHOWN_CHARACTERS = 200

Lines = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Unparsed:
    r"""A row that its format does not allow.

    Attributes:
        line: Where it begins, counted from 1.
        text: The row as it was found, cut short; bytes that are not text are shown as ``\xNN``.
        expected: What it should have been.
    """

    line: int
    text: str
    expected: str = PARSES


@dataclass(frozen=True, slots=True)
class FileRows:
    """Some rows of one file, in the file's order.

    Attributes:
        batch: Those of the wanted columns that the file has; one row for each row that parsed.
        lines: The line where each row of ``batch`` begins (text files), or its number, from 1; shape (n,).
        unparsed: The rows between them that did not parse.
    """

    batch: pa.RecordBatch
    lines: Lines
    unparsed: Sequence[Unparsed] = ()


def shown_bytes(row: bytes) -> str:
    r"""A row's text for people: cut short, with bytes that are not UTF-8 as ``\xNN``."""
    text = row[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "backslashreplace").rstrip("\r\n")
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def unreadable_file(path: str, found: Any, expected: str, hint: str | None = None) -> InvalidRequest:
    """The refusal of a file that cannot be read: ``unreadable_input``, with the file's name in the message."""
    lines = str(found).strip().splitlines()
    return InvalidRequest(
        "unreadable_input",
        f"{path} cannot be read",
        found=(lines[0] if lines else type(found).__name__)[:500],
        expected=expected,
        hint=hint,
    )


def line_numbers(first: int, count: int) -> Lines:
    """``count`` numbers from ``first``."""
    return np.arange(first, first + count, dtype=np.int64)


def batch_of(columns: dict[str, Any], count: int) -> pa.RecordBatch:
    """A batch of so many rows, also where it has no column."""
    if columns:
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    rows: Any = pa.array([{}] * count, pa.struct([]))
    return pa.RecordBatch.from_struct_array(rows)


def utf8_rows(columns: dict[str, Any], count: int) -> tuple[dict[str, Any], npt.NDArray[np.bool_]]:
    """Binary columns of ``count`` rows as text, and which rows have bytes that are not UTF-8 (null there)."""
    bad = np.zeros(count, np.bool_)
    for column in columns.values():
        if not is_utf8(column):
            bad |= np.array([value is not None and not _decodes(value) for value in column.to_pylist()], np.bool_)
    if bad.any():
        nothing = pa.scalar(None, pa.binary())
        columns = {name: pc.if_else(pa.array(~bad), one, nothing) for name, one in columns.items()}
    return {name: column.cast(pa.string()) for name, column in columns.items()}, bad


def is_utf8(column: Any) -> bool:
    """Whether all values of a text or binary array are UTF-8."""
    try:
        # The cast itself looks at the bytes.
        column.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
