"""The columns of a push's input, looked up before anything is made: from the first file, without Spark."""

from __future__ import annotations

import bz2
import csv
import gzip
from pathlib import Path
from typing import IO

import pyarrow as pa

from anew.codec.container import container_columns
from anew.core.errors import InvalidRequest
from anew.core.plan import PushInput
from anew.segments.basefile import parquet_columns

_UNREAD_COMPRESSION = ".zst"


def header_of(files: PushInput) -> list[str] | None:
    """The columns that the input has; None where only the data shows them (JSON lines, CSV without a header).

    Raises:
        InvalidRequest: ``unreadable_input``, ``empty_input``.
    """
    path = Path(files.paths[0])
    match files.format:
        case "csv":
            return _csv_header(path, files.options)
        case "parquet":
            try:
                return parquet_columns(str(path))
            except (pa.ArrowInvalid, OSError) as error:
                raise InvalidRequest(
                    "unreadable_input", f"{path} cannot be read", found=str(error).splitlines()[0], expected="Parquet"
                ) from error
        case "avro":
            with path.open("rb") as source:
                return container_columns(source)
        case _:
            return None


def opened_text(path: Path) -> IO[str]:
    """The lines of a text file; bytes that are no UTF-8 become U+FFFD, as in a Spark scan."""
    match path.suffix.lower():
        case ".gz":
            return gzip.open(path, "rt", encoding="utf-8", errors="replace", newline="")
        case ".bz2":
            return bz2.open(path, "rt", encoding="utf-8", errors="replace", newline="")
        case _:
            return path.open(encoding="utf-8", errors="replace", newline="")


def _csv_header(path: Path, options: dict[str, str]) -> list[str] | None:
    separator = options.get("sep", options.get("delimiter", ","))
    if options.get("header", "true").lower() != "true" or len(separator) != 1 or path.suffix == _UNREAD_COMPRESSION:
        return None
    with opened_text(path) as lines:
        first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise InvalidRequest(
            "empty_input", "the input holds nothing", found=str(path), expected="a line of column names"
        )
    return next(csv.reader([first], delimiter=separator))
