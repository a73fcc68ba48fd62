"""Sorted files from base rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anew.core.errors import Failed
from anew.core.hashing import total
from anew.core.rows import ROWS
from anew.storage.sst import Promised, build_sst


def rows_of(keys: list[bytes], values: list[bytes | None]) -> pa.RecordBatch:
    """Base rows with made-up hashes."""
    zeros = [0] * len(keys)
    columns: dict[str, Any] = dict.fromkeys(ROWS.names, zeros) | {
        "key": keys,
        "value": values,
        "origin": [b"\x00"] * len(keys),
        "append_timed": [False] * len(keys),
        "hash": [len(key) + 7 for key in keys],
    }
    return pa.RecordBatch.from_pydict(columns, schema=ROWS)


def promised_of(batches: list[pa.RecordBatch]) -> Promised:
    """What a manifest would say of the rows."""
    count = sum(batch.num_rows for batch in batches)
    dead = sum(batch.column("value").null_count for batch in batches)
    hashes = np.concatenate([batch.column("hash").to_numpy() for batch in batches])
    return Promised("base.parquet", count - dead, dead, total(hashes))


def test_a_file_holds_what_it_was_promised(tmp_path: Path) -> None:
    """Rows and tombstones of all batches are counted, and the greatest key is told."""
    batches = [rows_of([b"", b"a"], [b"1", None]), rows_of([b"b"], [b"2"])]
    built = build_sst(tmp_path / "x.sst", batches, promised_of(batches))
    assert built is not None
    assert (built.rows, built.tombstones, built.last_key) == (2, 1, b"b")
    assert (tmp_path / "x.sst").stat().st_size > 0


@pytest.mark.case("stores:C9")
def test_no_row_means_no_file(tmp_path: Path) -> None:
    """An empty base file makes no sorted file."""
    assert build_sst(tmp_path / "x.sst", [rows_of([], [])], Promised("base.parquet", 0, 0, 0)) is None
    assert not (tmp_path / "x.sst").exists()


@pytest.mark.case("stores:G1")
@pytest.mark.parametrize(
    ("keys", "after", "found"),
    [
        ([[b"a", b"c", b"b"]], None, "key 62 after 63"),
        ([[b"a", b"a"]], None, "key 61 after 61"),
        ([[b"a", b"c"], [b"b"]], None, "key 62 after 63"),
        ([[b"b"]], b"c", "key 62 after 63"),
    ],
)
def test_keys_that_do_not_ascend_are_refused(
    tmp_path: Path, keys: list[list[bytes]], after: bytes | None, found: str
) -> None:
    """Out-of-order and duplicate keys, also across batches and files, are refused naming file and key."""
    batches = [rows_of(some, [b"v"] * len(some)) for some in keys]
    with pytest.raises(Failed, match=f"base.parquet is marked sorted but is not; found: {found}"):
        build_sst(tmp_path / "x.sst", batches, promised_of(batches), after)


@pytest.mark.parametrize("wrong", [Promised("f", 3, 0, 16), Promised("f", 1, 1, 16), Promised("f", 2, 0, 17)])
def test_a_broken_promise_is_refused(tmp_path: Path, wrong: Promised) -> None:
    """Another number of rows or tombstones, or another fingerprint, than the manifest says is refused."""
    batch = rows_of([b"a", b"b"], [b"1", b"2"])
    with pytest.raises(Failed, match="does not hold what its manifest says") as refusal:
        build_sst(tmp_path / "x.sst", [batch], wrong)
    assert refusal.value.code == "fingerprint_mismatch"
