"""Sorted files for RocksDB, made from base files without opening a database.

The rows come in key order with values already compressed by the version's codec; each becomes a cell. What the
manifest says of the file is counted again from the rows that were written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anew.core.arrow import bytes_list
from anew.core.cell import encode_cells
from anew.core.errors import Failed
from anew.core.hashing import total
from anew.storage.memory import sst_options
from anew.storage.rocks import RocksError, SortedFile, as_failed

_MODULUS = 1 << 64
_CANNOT_WRITE = "RocksDB cannot write a sorted file"


@dataclass(frozen=True, slots=True)
class Promised:
    """What the manifest says of a base file: its name, live rows, tombstones, and the sum of the rows' hashes."""

    path: str
    rows: int
    tombstones: int
    fingerprint: int


@dataclass(frozen=True, slots=True)
class SstFile:
    """A finished sorted file; ``last_key`` is its greatest key."""

    path: str
    rows: int
    tombstones: int
    last_key: bytes


def build_sst(
    target: Path, batches: Iterable[pa.RecordBatch], promised: Promised, after: bytes | None = None
) -> SstFile | None:
    """Write one sorted file from the rows of one base file; None and no file when there is no row.

    Args:
        target: Where the file appears; its folder exists.
        batches: Columns `anew.core.rows.ROWS`, keys strictly ascending over all batches.
        promised: What the rows must amount to.
        after: The greatest key of the file before it in the same run.

    Raises:
        Failed: ``unsorted_base_file`` (naming file and key; case G1), ``fingerprint_mismatch``, ``storage_broken``.
    """
    writer: SortedFile | None = None
    last, rows, tombstones, fingerprint = after, 0, 0, 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        keys: Any = batch.column("key")
        if last is not None and keys[0].as_py() <= last:
            raise _unsorted(keys, last, promised.path)
        with as_failed(_CANNOT_WRITE, target, "free some space"):
            if writer is None:
                writer = SortedFile(str(target), sst_options())
            _write(writer, batch, promised.path)
        last = keys[-1].as_py()
        tombstones += batch.column("value").null_count
        rows += batch.num_rows
        fingerprint = (fingerprint + total(np.ascontiguousarray(batch.column("hash").to_numpy()))) % _MODULUS
    _check_promise(promised, rows - tombstones, tombstones, fingerprint)
    if writer is None or last is None:
        return None
    with as_failed(_CANNOT_WRITE, target, "free some space"):
        writer.finish()
    return SstFile(str(target), rows - tombstones, tombstones, last)


def _check_promise(promised: Promised, rows: int, tombstones: int, fingerprint: int) -> None:
    if (rows, tombstones, fingerprint) != (promised.rows, promised.tombstones, promised.fingerprint):
        raise Failed(
            "fingerprint_mismatch",
            f"{promised.path} does not hold what its manifest says",
            found=f"{rows} rows, {tombstones} tombstones, fingerprint {fingerprint:016x}",
            expected=f"{promised.rows} rows, {promised.tombstones} tombstones, fingerprint {promised.fingerprint:016x}",
            hint="the version must be made again",
        )


def _write(file: SortedFile, batch: pa.RecordBatch, path: str) -> None:
    """Add rows; RocksDB compares each key with the one before it, so that this happens once.

    Raises:
        Failed: ``unsorted_base_file``.
        RocksError: The file cannot be written.
    """
    keys: Any = batch.column("key")
    try:
        file.put(keys, encode_cells(batch))
    except RocksError:
        if pc.all(pc.greater(keys[1:], keys[:-1])).as_py() is False:
            raise _unsorted(keys, None, path) from None
        raise


def _unsorted(keys: pa.Array[Any], last: bytes | None, path: str) -> Failed:
    before = last
    for key in bytes_list(keys):
        if before is not None and key <= before:
            break
        before = key
    return Failed(
        "unsorted_base_file",
        f"{path} is marked sorted but is not",
        found=f"key {key.hex()} after {'nothing' if before is None else before.hex()}",
        expected="strictly ascending keys in unsigned byte order",
        hint="the version must be made again",
    )
