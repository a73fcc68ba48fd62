"""Sorting through a file is sorting in memory: the same rows in the same order, and bounded memory."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.arrow import concat
from anew.core.reduce import sort_rows
from anew.core.rows import ROWS
from anew.core.spilling import sort_spilling
from tests.property.core.histories import MODEST, History, histories, interleavings, rows_of

_ROWS_AT_ONCE, _RUN_BYTES = 5_000, 1 << 20


@MODEST
@given(st.data(), histories(), st.sampled_from((1, 200, 1 << 20)), st.integers(1, 7))
def test_rows_come_sorted_whatever_fits_into_memory(
    data: st.DataObject, history: History, sorted_bytes: int, step: int
) -> None:
    """In one run, in a run per batch, or in several; a file is asked for only where there is more than one."""
    rows = rows_of([(b"k%d" % (n % 5), cell) for n, cell in enumerate(data.draw(interleavings(history.feeds)))])
    spilled: list[IO[bytes]] = []

    def opened() -> IO[bytes]:
        spilled.append(io.BytesIO())
        return spilled[0]

    batches = [rows.slice(first, step) for first in range(0, rows.num_rows, step)]
    found = concat([rows.slice(0, 0), *sort_spilling(iter(batches), opened, sorted_bytes)])
    assert found.equals(sort_rows(rows))
    assert len(spilled) <= (len(batches) > 1 and sorted_bytes < 1 << 20)
    assert len(spilled) == 1 or sorted_bytes > 1 or len(batches) < 2
    assert all(file.closed for file in spilled)


@pytest.mark.case("stores:B7")
def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    """Four times as many rows, and a hot key among them: the same peak."""
    peaks = []
    for count in (20, 80):
        before, peak = pa.total_allocated_bytes(), 0
        read = 0
        for rows in sort_spilling(_random(count), tempfile.TemporaryFile, _RUN_BYTES):
            peak = max(peak, pa.total_allocated_bytes() - before)
            read += rows.num_rows
        assert read == count * _ROWS_AT_ONCE
        peaks.append(peak)
    assert peaks[1] < peaks[0] * 1.5


def _random(count: int) -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(count)
    for step in range(count):
        keys = [b"hot" if number % 2 else random.bytes(16) for number in range(_ROWS_AT_ONCE)]
        columns: dict[str, Any] = {
            "key": keys,
            "value": [random.bytes(100) for _ in keys],
            "schema_id": [1] * len(keys),
            "time": [step] * len(keys),
            "origin": [b"o"] * len(keys),
            "append_timed": [True] * len(keys),
            "incarnation": [1] * len(keys),
            "feed_partition": [0] * len(keys),
            "offset": range(step * len(keys), (step + 1) * len(keys)),
            "hash": range(len(keys)),
        }
        yield pa.RecordBatch.from_pydict(columns, schema=ROWS)
