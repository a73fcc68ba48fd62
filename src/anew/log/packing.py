"""Between Arrow batches and the rows of a partition's file: a row holds many records, each column laid end to end.

Fixed widths are little-endian; a binary column is the length of each value, -1 for null, beside all values in one. So
neither an append nor a read does anything record by record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from anew.core.arrow import in_portions
from anew.core.errors import InvalidRequest
from anew.log.interface import APPEND_RECORDS, LOG_RECORDS, RAW_APPEND, append_id_of
from anew.log.wire import kept_raw

NO_RECORDS = pa.RecordBatch.from_pylist([], schema=LOG_RECORDS)
PACKED_RECORDS = 4_096
PACKED_BYTES = 1 << 20
"""So much goes into one row at most, or one record: whoever reads a record unpacks its whole row."""
_NOT_GIVEN = np.iinfo(np.int64).min
"""Stands for a write time that the writer left out."""

Row = tuple[int, int, int, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes]
"""First offset, number of records, append time; then the columns as in `Packed`."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The records of one row.

    Attributes:
        columns: Write times (int64), lengths of origins (int32), origins, lengths of keys, keys, schema ids (int32),
            lengths of values, values.
    """

    count: int
    columns: tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Times:
    """The write times of one append.

    ``least_ms`` and ``most_ms`` bound those that are given; None when none is.
    """

    written_ms: pa.Array[Any]
    least_ms: int | None
    most_ms: int | None

    def check(self, appended_ms: int, skew_limit_ms: int) -> None:
        """Raise unless every given time is in (0, append time + skew limit] (rule R6).

        Raises:
            InvalidRequest: ``written_at_out_of_range``, naming the first such row.
        """
        latest = appended_ms + skew_limit_ms
        if self.least_ms is None or self.most_ms is None:
            return
        if self.least_ms > 0 and self.most_ms <= latest:
            return
        times = self.written_ms.to_pylist()
        row, time = next((i, t) for i, t in enumerate(times) if t is not None and not 0 < t <= latest)
        raise InvalidRequest(
            "written_at_out_of_range",
            f"the write time of row {row} is out of range",
            found=time,
            expected=f"1 to {latest} (append time {appended_ms} + skew limit {skew_limit_ms} ms)",
            hint="give milliseconds since the epoch, or leave the write time out",
        )


@dataclass(frozen=True, slots=True)
class Appending:
    """What one append is about to write.

    Attributes:
        append_id: Under which a repeat finds it; None: it is not repeated.
    """

    count: int
    packed: tuple[Packed, ...]
    times: Times
    append_id: bytes | None = None


def rows_too_late(times: Times, appended_ms: npt.NDArray[np.int64], skew_limit_ms: int) -> tuple[int, ...]:
    """The rows whose given time readers reject (rule R6).

    Args:
        times: Those of one append.
        appended_ms: The append time of each record, shape (records,), or one for all, shape (1,).
        skew_limit_ms: How far a given time may be ahead.
    """
    if times.most_ms is None or times.most_ms <= int(appended_ms.min()) + skew_limit_ms:
        return ()
    given = times.written_ms.fill_null(pa.scalar(_NOT_GIVEN, pa.int64())).to_numpy()
    return tuple((given > appended_ms + skew_limit_ms).nonzero()[0].tolist())


def appending(records: pa.RecordBatch) -> Appending:
    """A batch as it is appended.

    Raises:
        InvalidRequest: As `times_of`.
    """
    times = times_of(records)
    packed = tuple(_packed(portion) for portion in in_portions(records, PACKED_RECORDS, PACKED_BYTES))
    return Appending(records.num_rows, packed, times, append_id_of(records))


def raw_appending(records: pa.RecordBatch) -> Appending:
    """A batch of raw records as it is appended: marked as `RAW`, without write times.

    Raises:
        InvalidRequest: As `no_times_of`.
    """
    times, kept = no_times_of(records), kept_raw(records)
    packed = tuple(_packed(portion) for portion in in_portions(kept, PACKED_RECORDS, PACKED_BYTES))
    return Appending(records.num_rows, packed, times, append_id_of(records))


def no_times_of(records: pa.RecordBatch) -> Times:
    """The write times of raw records, which are none.

    Raises:
        InvalidRequest: ``bad_records``: other columns than `RAW_APPEND`.
    """
    _check_columns(records, RAW_APPEND)
    return Times(pa.nulls(records.num_rows, pa.int64()), None, None)


def times_of(records: pa.RecordBatch) -> Times:
    """The write times of a batch that may be appended, if its times are right.

    Raises:
        InvalidRequest: ``bad_records``: other columns than `APPEND_RECORDS`, or nulls where none may be.
    """
    _check(records)
    written = records.column("written_ms")
    bounds: Any = pc.min_max(written).as_py()  # both None when no time is given
    return Times(written, bounds["min"], bounds["max"])


def unpacked(rows: Sequence[Row]) -> pa.RecordBatch:
    """The records of consecutive rows, columns `LOG_RECORDS`; raw ones are marked (`anew.log.wire.RAW`).

    Raises:
        ValueError: The rows do not follow one another, or what they hold does not add up.
    """
    if not rows:
        return NO_RECORDS
    firsts, counts, appended, *blobs = zip(*rows, strict=True)
    first, count = firsts[0], sum(counts)
    if list(firsts[1:]) != (np.cumsum(counts)[:-1] + first).tolist():
        raise ValueError("rows are missing")
    written, origin_lengths, origins, key_lengths, keys, schema_ids, value_lengths, values = map(b"".join, blobs)
    times = np.frombuffer(written, "<i8")
    columns: list[Any] = [
        pa.array(np.arange(first, first + count)),
        pa.array(np.repeat(np.array(appended, dtype=np.int64), counts)),
        pa.array(times, mask=times == _NOT_GIVEN),
        _binary(origin_lengths, origins),
        _binary(key_lengths, keys),
        pa.array(np.frombuffer(schema_ids, "<i4")),
        _binary(value_lengths, values),
        pa.array(np.zeros(count, dtype=np.int8)),
    ]
    if any(len(column) != count for column in columns):
        raise ValueError("a column is too short or too long")
    return pa.RecordBatch.from_arrays(columns, schema=LOG_RECORDS)


def row_checksum(columns: Sequence[Any]) -> bytes:
    """What a row holds, as 16 bytes: XXH3-128 of its numbers (8 bytes each, little-endian) and blobs in order.

    A damaged row may hold what no row does, a text or nothing, which has a checksum of its own.
    """
    digest = xxhash.xxh3_128()
    for column in columns:
        if isinstance(column, bytes):
            digest.update(column)
        else:
            number = isinstance(column, int)
            digest.update(column.to_bytes(8, "little", signed=True) if number else repr(column).encode())
    return digest.digest()


def _packed(records: pa.RecordBatch) -> Packed:
    columns = {name: records.column(name) for name in APPEND_RECORDS.names}
    written = columns["written_ms"].fill_null(pa.scalar(_NOT_GIVEN, pa.int64())).to_numpy()
    return Packed(
        records.num_rows,
        (
            written.astype("<i8", copy=False).tobytes(),
            *_laid_out(columns["origin"]),
            *_laid_out(columns["key"]),
            columns["schema_id"].to_numpy().astype("<i4", copy=False).tobytes(),
            *_laid_out(columns["value"]),
        ),
    )


def _laid_out(column: pa.Array[Any]) -> tuple[bytes, bytes]:
    """The lengths of a binary column's values, and the values."""
    _, ends, values = column.buffers()
    offsets = np.frombuffer(memoryview(_present(ends)), np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets)
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        if lengths[null].any():
            # Something lies in the buffer where nothing is said to be.
            return _laid_out(pa.array(column.to_pylist(), pa.binary()))
        lengths[null] = -1
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    laid_out = _present(values).slice(first, size).to_pybytes() if size else b""
    return lengths.astype("<i4", copy=False).tobytes(), laid_out


def _present(buffer: pa.Buffer | None) -> pa.Buffer:
    assert buffer is not None, "a column with values has their buffer"
    return buffer


def _binary(packed_lengths: bytes, values: bytes) -> pa.Array[Any]:
    lengths: npt.NDArray[np.int32] = np.frombuffer(packed_lengths, "<i4")
    null = lengths < 0
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(np.where(null, 0, lengths), out=offsets[1:])
    if offsets[-1] != len(values):
        raise ValueError("values are missing")
    nulls = int(null.sum())
    valid = pa.py_buffer(np.packbits(~null, bitorder="little").data) if nulls else None
    buffers = [valid, pa.py_buffer(offsets.astype(np.int32).data), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers, nulls)


def _check_columns(records: pa.RecordBatch, expected: pa.Schema) -> None:
    schema = records.schema
    if schema.names != expected.names or schema.types != expected.types:
        raise InvalidRequest(
            "bad_records",
            "these are not records to append",
            found=", ".join(f"{field.name}: {field.type}" for field in schema),
            expected=", ".join(f"{field.name}: {field.type}" for field in expected),
        )


def _check(records: pa.RecordBatch) -> None:
    _check_columns(records, APPEND_RECORDS)
    for name in ("origin", "key", "schema_id"):
        if records.column(name).null_count:
            raise InvalidRequest("bad_records", f"the column {name} has nulls", found="null", expected="none")
    least: Any = pc.min(records.column("schema_id")).as_py()  # None of no records
    if least is not None and least < 0:
        # The marker of raw records is one (`anew.log.wire.RAW`).
        raise InvalidRequest("bad_records", "a schema's id is negative", found=least, expected="0 or greater")
