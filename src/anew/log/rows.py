"""Between Arrow batches and the rows of a partition's file, column by column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.arrow import concat
from anew.core.errors import InvalidRequest
from anew.log.interface import APPEND_RECORDS, LOG_RECORDS

NO_RECORDS = pa.RecordBatch.from_pylist([], schema=LOG_RECORDS)


@dataclass(frozen=True, slots=True)
class Columns:
    """The records of one append as lists of equal length, in the order of `APPEND_RECORDS`.

    ``least_written_ms`` and ``most_written_ms`` bound the given times; None when none is given.
    """

    count: int
    written_ms: list[int | None]
    origin: list[bytes]
    key: list[bytes]
    schema_id: list[int]
    value: list[bytes | None]
    least_written_ms: int | None
    most_written_ms: int | None

    def check_times(self, appended_ms: int, skew_limit_ms: int) -> None:
        """Raise unless every given time is in (0, append time + skew limit] (rule R6).

        Raises:
            InvalidRequest: ``written_at_out_of_range``, naming the first such row.
        """
        latest = appended_ms + skew_limit_ms
        if self.least_written_ms is None or self.most_written_ms is None:
            return
        if self.least_written_ms > 0 and self.most_written_ms <= latest:
            return
        row, time = next((i, t) for i, t in enumerate(self.written_ms) if t is not None and not 0 < t <= latest)
        raise InvalidRequest(
            "written_at_out_of_range",
            f"the write time of row {row} is out of range",
            found=time,
            expected=f"1 to {latest} (append time {appended_ms} + skew limit {skew_limit_ms} ms)",
            hint="give milliseconds since the epoch, or leave the write time out",
        )


def columns_of(records: pa.RecordBatch) -> Columns:
    """The columns of a batch to append.

    Raises:
        InvalidRequest: ``bad_records``: other columns than `APPEND_RECORDS`, or nulls where none may be.
    """
    _check(records)
    written = records.column("written_ms")
    bounds: Any = pc.min_max(written).as_py()  # both None when no time is given
    lists = {name: _list(records.column(name)) for name in APPEND_RECORDS.names}
    return Columns(records.num_rows, **lists, least_written_ms=bounds["min"], most_written_ms=bounds["max"])


def batch_of(first_offset: int, lists: Iterable[Sequence[tuple[Any, ...]]]) -> pa.RecordBatch:
    """Lists of rows (all columns but the offset) of consecutive offsets as one batch with columns `LOG_RECORDS`."""
    batches: list[pa.RecordBatch] = []
    for rows in lists:
        if rows:
            batches.append(_batch(first_offset, rows))
            first_offset += len(rows)
    if not batches:
        return NO_RECORDS
    return batches[0] if len(batches) == 1 else concat(batches)


def _batch(first_offset: int, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    offsets: Any = pa.array(np.arange(first_offset, first_offset + len(rows), dtype=np.int64))
    columns: list[Any] = list(zip(*rows, strict=True))
    arrays = [offsets, *(pa.array(column, of) for column, of in zip(columns, LOG_RECORDS.types[1:], strict=True))]
    return pa.RecordBatch.from_arrays(arrays, schema=LOG_RECORDS)


def _list(column: pa.Array[Any]) -> list[Any]:
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_integer(column.type) and column.null_count:
        return column.to_pylist()  # through numpy they would become floats
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _check(records: pa.RecordBatch) -> None:
    schema = records.schema
    if schema.names != APPEND_RECORDS.names or schema.types != APPEND_RECORDS.types:
        raise InvalidRequest(
            "bad_records",
            "these are not records to append",
            found=", ".join(f"{field.name}: {field.type}" for field in schema),
            expected=", ".join(f"{field.name}: {field.type}" for field in APPEND_RECORDS),
        )
    for name in ("origin", "key", "schema_id"):
        if records.column(name).null_count:
            raise InvalidRequest("bad_records", f"the column {name} has nulls", found="null", expected="none")
