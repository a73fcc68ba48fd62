"""The base of a sub-partition in a version topic: SOP, the rows in key order, EOP (rule R23).

A task attempt appends everything under its attempt's mark and then reads back what it appended: the exact offsets go
into the manifest, and nothing else in the topic counts. So what a retried or speculative attempt, or one that nobody
waits for any more, leaves between or behind these offsets is never read.

The stamp of a row, which a log record has no columns for, is in front of its origin.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.codec.compression import Compressor
from anew.core.arrow import binary_lengths, in_portions, join_binary, split_binary, take
from anew.core.errors import Failed
from anew.core.hashing import total
from anew.core.ledger import MODULUS
from anew.core.rows import ROWS
from anew.core.stores.store import Frozen
from anew.log.interface import APPEND_RECORDS, Log, TopicPartition
from anew.log.through import read_through
from anew.segments.ascending import check_ascending
from anew.segments.content import check_content
from anew.segments.manifest import BaseRange

_APPENDED_RECORDS = 20_000
_APPENDED_BYTES = 4 << 20
_HASHED_ROWS = 65_536
"""So many of a range's first rows are hashed again from their content when it is read back."""
_FORMAT = 1


class _Mark(IntEnum):
    """What a record of a version topic is."""

    SOP = 1
    ROW = 2
    EOP = 3


_STAMP = np.dtype(
    [
        ("format", "u1"),
        ("mark", "u1"),
        ("append_timed", "u1"),
        ("attempt", "<u8"),
        ("time", "<i8"),
        ("incarnation", "<i4"),
        ("feed_partition", "<i4"),
        ("offset", "<i8"),
        ("hash", "<i8"),
    ]
)
_STAMP_FIELDS = ("append_timed", "time", "incarnation", "feed_partition", "offset", "hash")


def start_of_push(config: Frozen, dictionary: bytes | None, attempt: str) -> bytes:
    """What SOP says: how the rows behind it are to be read. The same version and attempt give the same bytes."""
    return _json(
        {
            "format": _FORMAT,
            "attempt": attempt,
            "sorted": True,
            "compression": config.compression,
            "dictionary": None if dictionary is None else base64.b64encode(dictionary).decode(),
            "config_hash": config.hash,
        }
    )


def _end_of_push(rows: int, tombstones: int, fingerprint: int) -> bytes:
    """What EOP says: what the rows before it amount to."""
    return _json({"rows": rows, "tombstones": tombstones, "fingerprint": f"{fingerprint:016x}"})


@dataclass(slots=True)
class BaseRangeWriter:
    """Appends the sorted rows of one sub-partition; nothing of it counts before its range is sealed.

    Attributes:
        log: Where to.
        at: The partition of the version topic.
        attempt: Who appends; no other attempt of any driver has this name.
        start: What SOP says (`start_of_push`).
        codec: What the values are compressed by.
    """

    log: Log
    at: TopicPartition
    attempt: str
    start: bytes
    codec: Compressor
    _account: _Account = field(init=False, default_factory=lambda: _Account())
    _begin: int | None = field(init=False, default=None)

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows that come after all before them.

        Raises:
            InvalidRequest: ``record_too_large``.
            OutcomeUnknown: ``append_unknown``: another attempt begins anew.
        """
        for portion in in_portions(rows.select(ROWS.names), _APPENDED_RECORDS, _APPENDED_BYTES):
            if self._begin is None:
                self._begin = self.log.append(self.at, _control(_Mark.SOP, self.start, self.attempt)).first_offset
            self.log.append(self.at, _encoded(portion, self.attempt))
            self._account.add(portion, self.at.topic)

    def close(self) -> BaseRange | None:
        """End the range, read it back, and say what it holds; None where there was no row.

        Raises:
            Failed: ``rows_lost``: what was appended does not read back; ``unsorted_base_file``; ``rows_altered``: the
                first rows are not what was read.
        """
        if self._begin is None:
            return None
        written = self._account
        end = self.log.append(self.at, _control(_Mark.EOP, written.end, self.attempt)).next_offset
        pieces, found = self._read_back(self._begin, end)
        if found.totals != written.totals:
            raise Failed(
                "rows_lost",
                f"what was appended to {self.at.topic} does not read back",
                found=found.shown,
                expected=written.shown,
                hint="the new version is not used; run the rebuild again",
            )
        return BaseRange(
            topic=self.at.topic,
            topic_uid=self.at.uid,
            topic_partition=self.at.partition,
            key_schema_id=self.at.key_schema_id,
            attempt=self.attempt,
            pieces=pieces,
            rows=found.rows,
            tombstones=found.tombstones,
            bytes=found.size_bytes,
            smallest_key=(found.smallest or b"").hex(),
            largest_key=(found.largest or b"").hex(),
            fingerprint=found.fingerprint,
        )

    def abort(self) -> None:
        """Give the range up: what was appended never counts."""

    def _read_back(self, begin: int, end: int) -> tuple[tuple[tuple[int, int], ...], _Account]:
        """The pieces of [begin, end) that are this attempt's own, and what their rows amount to."""
        found, own = _Account(), list[npt.NDArray[np.int64]]()
        for read in read_through(self.log, self.at, begin, end):
            offsets, rows = _own(read.records, self.attempt)
            own.append(offsets)
            if found.rows + found.tombstones < _HASHED_ROWS:
                check_content(rows, self.codec, self.at.topic)
            found.add(rows, self.at.topic)
        return _pieces(np.concatenate(own)), found


def read_range(
    log: Log, part: BaseRange, start: bytes | None = None, slice_: int = 0, slices: int = 1
) -> Iterator[pa.RecordBatch]:
    """The rows of a sealed range, batch by batch, columns ``ROWS`` (cases G6, G7).

    Args:
        log: Where it is.
        part: What the manifest says of it.
        start: What its SOP must say; None where nothing depends on that.
        slice_: With ``slices``: only that part of it, in order, so that all slices together are the range.
        slices: Into how many slices.

    Raises:
        Failed: ``foreign_records``: other records than the sealed ones lie there; ``fingerprint_mismatch``: SOP or EOP
            differ from the manifest; ``offset_out_of_range``: it was truncated; ``topic_lost``.
    """
    first, last = part.pieces[0][0], part.pieces[-1][1] - 1
    end = _end_of_push(part.rows, part.tombstones, part.fingerprint)
    for begin, stop in _sliced(part.pieces, slice_, slices):
        offset = begin
        for read in read_through(log, part.at, begin, stop):
            records = read.records
            own, rows = _own(records, part.attempt)
            if own.size != read.next_offset - offset:
                raise Failed(
                    "foreign_records",
                    f"{part.path} holds other records than those that were sealed",
                    found=f"something else between {offset} and {read.next_offset}",
                    expected=f"records of {part.attempt} alone",
                    hint="the version must be made again",
                )
            if offset == first and start is not None:
                _check_control(part, records.column("value")[0].as_py(), start, "SOP")
            if read.next_offset == last + 1:
                _check_control(part, records.column("value")[-1].as_py(), end, "EOP")
            offset = read.next_offset
            yield rows


@dataclass(slots=True)
class _Account:
    """What rows amount to."""

    rows: int = 0
    tombstones: int = 0
    size_bytes: int = 0
    fingerprint: int = 0
    smallest: bytes | None = None
    largest: bytes | None = None

    def add(self, rows: pa.RecordBatch, name: str) -> None:
        """Count rows that come after all before them.

        Raises:
            Failed: ``unsorted_base_file``.
        """
        if rows.num_rows == 0:
            return
        keys: Any = rows.column("key")
        self.largest = check_ascending(keys, self.largest, name)
        self.smallest = keys[0].as_py() if self.smallest is None else self.smallest
        dead = rows.column("value").null_count
        self.rows, self.tombstones = self.rows + rows.num_rows - dead, self.tombstones + dead
        sizes = (int(binary_lengths(rows.column(name)).sum()) for name in ("key", "value", "origin"))
        self.size_bytes += sum(sizes) + rows.num_rows * _STAMP.itemsize
        self.fingerprint = (self.fingerprint + total(np.ascontiguousarray(rows.column("hash").to_numpy()))) % MODULUS

    @property
    def totals(self) -> tuple[int, int, int]:
        """What EOP says of them."""
        return self.rows, self.tombstones, self.fingerprint

    @property
    def end(self) -> bytes:
        """EOP."""
        return _end_of_push(*self.totals)

    @property
    def shown(self) -> str:
        """The totals for people."""
        return f"{self.rows} rows, {self.tombstones} tombstones, fingerprint {self.fingerprint:016x}"


def _mark_of(attempt: str) -> int:
    return int.from_bytes(hashlib.sha256(attempt.encode()).digest()[:8], "little")


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _stamps(count: int, mark: _Mark, attempt: str) -> npt.NDArray[Any]:
    stamps = np.zeros(count, dtype=_STAMP)
    stamps["format"], stamps["mark"], stamps["attempt"] = _FORMAT, mark, _mark_of(attempt)
    return stamps


def _control(mark: _Mark, value: bytes, attempt: str) -> pa.RecordBatch:
    origin = _stamps(1, mark, attempt).tobytes()
    row = {"written_ms": None, "origin": origin, "key": b"", "schema_id": 0, "value": value}
    return pa.RecordBatch.from_pylist([row], schema=APPEND_RECORDS)


def _encoded(rows: pa.RecordBatch, attempt: str) -> pa.RecordBatch:
    """Rows as they are appended."""
    count = rows.num_rows
    stamps = _stamps(count, _Mark.ROW, attempt)
    for name in _STAMP_FIELDS:
        stamps[name] = rows.column(name).to_numpy(zero_copy_only=False)
    ends = np.arange(count + 1, dtype=np.int32) * _STAMP.itemsize
    heads: Any = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(ends.data), pa.py_buffer(stamps.tobytes())]
    )
    columns: list[Any] = [
        pa.nulls(count, pa.int64()),
        join_binary(heads, rows.column("origin")),
        rows.column("key"),
        rows.column("schema_id"),
        rows.column("value"),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=APPEND_RECORDS)


def _own(records: pa.RecordBatch, attempt: str) -> tuple[npt.NDArray[np.int64], pa.RecordBatch]:
    """The offsets of the records that the attempt appended, and the rows among them, columns ``ROWS``."""
    long_enough = binary_lengths(records.column("origin")) >= _STAMP.itemsize
    stamped = (long_enough & (records.column("flaw").to_numpy() == 0)).nonzero()[0]
    records = records if stamped.size == records.num_rows else take(records, stamped)
    heads, origins = split_binary(records.column("origin"), _STAMP.itemsize)
    stamps = np.frombuffer(heads.tobytes(), _STAMP)
    is_own = _is_of(stamps, attempt)
    columns: dict[str, Any] = {name: records.column(name) for name in ("key", "value", "schema_id")}
    columns |= {name: pa.array(np.ascontiguousarray(stamps[name])) for name in _STAMP_FIELDS}
    columns |= {"origin": origins, "append_timed": pa.array(stamps["append_timed"] != 0)}
    rows = pa.RecordBatch.from_arrays([columns[name] for name in ROWS.names], schema=ROWS)
    chosen = (is_own & (stamps["mark"] == _Mark.ROW)).nonzero()[0]
    rows = rows if chosen.size == rows.num_rows else take(rows, chosen)
    return records.column("offset").to_numpy()[is_own], rows


def _is_of(stamps: npt.NDArray[Any], attempt: str) -> npt.NDArray[np.bool_]:
    """Which stamps are the attempt's own, shape (n,)."""
    found: npt.NDArray[np.bool_] = (stamps["format"] == _FORMAT) & (stamps["attempt"] == _mark_of(attempt))
    return found


def _pieces(offsets: npt.NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Offsets in order as ranges."""
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    begins, ends = offsets[np.append(0, breaks + 1)], offsets[np.append(breaks, offsets.size - 1)] + 1
    return tuple(zip(begins.tolist(), ends.tolist(), strict=True))


def _sliced(pieces: Sequence[tuple[int, int]], slice_: int, slices: int) -> Iterator[tuple[int, int]]:
    """One of several about equal parts of some pieces."""
    records = sum(end - begin for begin, end in pieces)
    skipped, left = records * slice_ // slices, records * (slice_ + 1) // slices - records * slice_ // slices
    for begin, end in pieces:
        jump = min(skipped, end - begin)
        skipped -= jump
        stop = min(end, begin + jump + left)
        left -= max(0, stop - begin - jump)
        if stop > begin + jump:
            yield begin + jump, stop


def _check_control(part: BaseRange, found: bytes | None, expected: bytes, name: str) -> None:
    if found != expected:
        raise Failed(
            "fingerprint_mismatch",
            f"{name} of {part.path} does not say what its manifest says",
            found=None if found is None else found[:200].decode(errors="replace"),
            expected=expected[:200].decode(),
            hint="the version must be made again",
        )
