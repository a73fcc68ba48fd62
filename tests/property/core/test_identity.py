"""The records of stream jobs: one winner for each key, wherever batches and versions end, and whatever was tried twice.

A key's records come from a generation's attempts: a batch may be tried several times under rising epochs, its outputs
may differ from one attempt to the next (a function need not be deterministic), stages run again, and attempts that died
leave what they had appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.codec.compression import compressor
from anew.core.admission import admit
from anew.core.arrow import bytes_list, concat
from anew.core.cell import decode_cell, encode_cell
from anew.core.combining import combine
from anew.core.feed import Feed, FeedKind
from anew.core.identity import identified_origins, sequences
from anew.core.merge import Cell, merge_all
from anew.core.reduce import WinnerReducer, sort_rows
from anew.core.stamp import Origin, OriginKind, Stamp
from anew.log.interface import LOG_RECORDS
from anew.storage.applying import Floors, outcome_of
from anew.testing.builders import a_feed, cells_of
from tests.property.core.histories import MODEST, interleavings, rows_of

_KEY = b"k"
_JOB = Origin(OriginKind.JOB, "clicks", 1)
_FEED: Feed = a_feed(
    partitions=1, kind=FeedKind.GENERATION, origin=_JOB.encoded.hex(), topic="clicks_g1", low_water=(0,)
)
_SCHEMAS = (1,)
_PLAIN = compressor("none")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a task of a batch, and what it appended: times and values."""

    epoch: int
    batch: int
    attempt: int
    records: tuple[tuple[int, bytes | None], ...]

    @property
    def origins(self) -> list[bytes]:
        """What its records carry as their origins."""
        numbers = sequences(self.epoch, self.attempt, 0, len(self.records))
        return bytes_list(identified_origins(_JOB, self.batch, numbers))


@st.composite
def attempts(draw: st.DrawFn) -> list[list[tuple[bytes, int, bytes | None]]]:
    """Each attempt's records in its order: origin, time and value. No two attempts of one batch have one number."""
    found = []
    for batch in range(draw(st.integers(1, 3))):
        for epoch in range(draw(st.integers(1, 2))):
            for task in range(draw(st.integers(1, 2))):
                times = draw(st.lists(st.integers(1, 3), max_size=3))
                values = [
                    None if draw(st.integers(0, 4)) == 0 else f"b{batch} e{epoch} t{task} {n}".encode()
                    for n, _ in enumerate(times)
                ]
                made = Attempt(epoch, batch, 10 * epoch + task, tuple(zip(times, values, strict=True)))
                found.append([(o, t, v) for o, (t, v) in zip(made.origins, made.records, strict=True)])
    return found


def _records(history: Sequence[tuple[bytes, int, bytes | None]]) -> pa.RecordBatch:
    count = len(history)
    columns: dict[str, list[Any]] = {
        "offset": list(range(count)),
        "appended_ms": [1_000] * count,
        "written_ms": [time for _, time, _ in history],
        "origin": [origin for origin, _, _ in history],
        "key": [_KEY] * count,
        "schema_id": [0 if value is None else 1 for _, _, value in history],
        "value": [value for _, _, value in history],
        "flaw": [0] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=LOG_RECORDS)


def _wanted(history: Sequence[tuple[bytes, int, bytes | None]]) -> tuple[int, bytes | None] | None:
    """The greatest (time, batch, sequence), read off the bytes."""
    best = max(((time, origin[-12:], value) for origin, time, value in history), key=lambda one: one[:2], default=None)
    return None if best is None else (best[0], best[2])


def _applied(rows: pa.RecordBatch, cuts: Sequence[int], held: Cell | None = None) -> Cell | None:
    """What a replica holds that applies the rows in batches."""
    cell = None if held is None else encode_cell(held)
    for first, after in pairwise([0, *cuts, rows.num_rows]):
        if after > first:
            outcome = outcome_of(
                rows.slice(first, after - first), {} if cell is None else {_KEY: cell}, Floors(), _PLAIN
            )
            cell = outcome.cells[0] if outcome.cells else cell
    return None if cell is None else decode_cell(cell)


@pytest.mark.case("rules:R6", "rules:R20")
@MODEST
@given(st.data(), attempts())
def test_any_attempts_in_any_order_give_one_winner(
    data: st.DataObject, made: list[list[tuple[bytes, int, bytes | None]]]
) -> None:
    """The definition, replicas with other batch borders, a base and the rest, a combined scan: all hold one record."""
    history = data.draw(interleavings(made))  # type: ignore[arg-type]  # any items are interleaved
    wanted = _wanted(history)  # type: ignore[arg-type]  # of the same items
    rows = admit(_FEED, 0, 0, _records(history), _SCHEMAS).rows  # type: ignore[arg-type]  # as above
    assert rows.num_rows == len(history)
    cells = [cell for _, cell in cells_of(rows)]
    borders = st.lists(st.integers(0, len(cells)), max_size=4).map(sorted)
    begin, end = data.draw(st.lists(st.integers(0, len(cells)), min_size=2, max_size=2).map(sorted))
    replayed = concat([rows.slice(0, end), rows.slice(begin)])
    base = merge_all(cells[:begin])
    scanned = combine(rows.slice(0, begin)).rows, combine(rows.slice(begin)).rows
    reducer = WinnerReducer()
    merged = [reducer.feed(sort_rows(concat(scanned))), reducer.finish()]
    found = [
        merge_all(cells),
        _applied(rows, data.draw(borders)),
        _applied(replayed, data.draw(borders)),
        _applied(rows.slice(begin), [], base),
        *(cell for batch in merged for _, cell in cells_of(batch)),
    ]
    assert len(found) == 4 + (wanted is not None)
    for cell in found:
        assert (None if cell is None else (cell.stamp.time_ms, cell.value)) == wanted


def _tied(values: Sequence[bytes], offsets: Sequence[int]) -> pa.RecordBatch:
    """Records of one batch with equal times: they differ by their values, and by their sequences if at all."""
    stamps = [Stamp(1_000, _JOB.encoded, False, 1, 5, offset) for offset in offsets]
    return rows_of([(_KEY, Cell(stamp, value, 1)) for stamp, value in zip(stamps, values, strict=True)])


@pytest.mark.case("rules:R20")
def test_without_a_sequence_the_borders_of_batches_would_decide() -> None:
    """Equal stamps with other values: record by record the first stays, in one batch the last wins; with sequences not.

    So replicas whose batches end elsewhere would differ for ever.
    """
    values = (b"first", b"second")
    tied = _tied(values, (7, 7))
    by_definition, at_once, one_by_one = (
        merge_all(cell for _, cell in cells_of(tied)),
        _applied(tied, []),
        _applied(tied, [1]),
    )
    assert (by_definition and by_definition.value, at_once and at_once.value, one_by_one and one_by_one.value) == (
        b"first",
        b"second",
        b"first",
    )
    again, attempt = sequences(1, 3, 0, 1), sequences(0, 3, 0, 1)
    told_apart = _tied(values, [int(np.max(again)), int(np.max(attempt))])
    found = [
        merge_all(cell for _, cell in cells_of(told_apart)),
        _applied(told_apart, []),
        _applied(told_apart, [1]),
        _applied(_tied(values[::-1], [int(np.max(attempt)), int(np.max(again))]), [1]),
    ]
    assert [cell and cell.value for cell in found] == [b"first"] * 4
