"""Histories of one or several keys: records of several feeds, each in its own order, and batch records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from anew.core.admission import with_hashes
from anew.core.merge import Cell
from anew.core.rows import ROWS
from anew.core.stamp import BATCH, Origin, OriginKind, Stamp, fabric_origin

MODEST = settings(derandomize=True, max_examples=100, deadline=None)

ORIGINS = (
    fabric_origin("dc-0").encoded,
    fabric_origin("dc-1").encoded,
    Origin(OriginKind.JOB, "clicks", 9).encoded,
    Origin(OriginKind.JOB, "clicks", 10).encoded,
)
_FEEDS = [(origin, incarnation, partition) for origin in ORIGINS for incarnation in (1, 2) for partition in (0, 1)]
_TIMES_MS = st.integers(1, 6)  # few, so that ties and clocks that step back are common


@dataclass(frozen=True, slots=True)
class History:
    """What happened to one key: batch records, and each feed partition's records in offset order."""

    batch: tuple[Cell, ...]
    feeds: tuple[tuple[Cell, ...], ...]

    @property
    def records(self) -> tuple[Cell, ...]:
        """All of it, feed after feed."""
        return (*self.batch, *(cell for feed in self.feeds for cell in feed))


def cell_of(stamp: Stamp, *, deleted: bool) -> Cell:
    """A cell whose value tells where it came from."""
    if deleted:
        return Cell(stamp, None)
    return Cell(stamp, repr(stamp).encode(), 1 + stamp.offset % 3)


@st.composite
def feed_records(draw: st.DrawFn, feed: tuple[bytes, int, int]) -> tuple[Cell, ...]:
    """Records of one feed partition: append times that may step back, given times among them, gaps in the offsets."""
    origin, incarnation, partition = feed
    offset, cells = 0, []
    for time_ms, append_timed, deleted, gap in draw(
        st.lists(st.tuples(_TIMES_MS, st.booleans(), st.booleans(), st.integers(1, 3)), max_size=5)
    ):
        offset += gap
        cells.append(cell_of(Stamp(time_ms, origin, append_timed, incarnation, partition, offset), deleted=deleted))
    return tuple(cells)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A history of one key over up to four feed partitions and up to two pushes' records."""
    chosen = draw(st.lists(st.sampled_from(_FEEDS), max_size=4, unique=True))
    batch_times = draw(st.lists(st.integers(0, 6), max_size=2, unique=True))
    batch = tuple(Cell(Stamp(time, BATCH.encoded), f"batch {time}".encode(), 1) for time in batch_times)
    return History(batch, tuple(draw(feed_records(feed)) for feed in chosen))


@st.composite
def interleavings(draw: st.DrawFn, feeds: Sequence[Sequence[Cell]]) -> list[Cell]:
    """One order in which the feeds may be met: each feed's records in their own order."""
    turns = draw(st.permutations([number for number, feed in enumerate(feeds) for _ in feed]))
    waiting = [list(feed) for feed in feeds]
    return [waiting[number].pop(0) for number in turns]


def rows_of(cells: Sequence[tuple[bytes, Cell]]) -> pa.RecordBatch:
    """Keys and cells as a batch with columns `ROWS`, hashes filled in."""
    stamps = [cell.stamp for _, cell in cells]
    columns: dict[str, list[Any]] = {
        "key": [key for key, _ in cells],
        "value": [cell.value for _, cell in cells],
        "schema_id": [cell.schema_id for _, cell in cells],
        "time": [stamp.time_ms for stamp in stamps],
        "origin": [stamp.origin for stamp in stamps],
        "append_timed": [stamp.append_timed for stamp in stamps],
        "incarnation": [stamp.incarnation for stamp in stamps],
        "feed_partition": [stamp.partition for stamp in stamps],
        "offset": [stamp.offset for stamp in stamps],
        "hash": [0] * len(cells),
    }
    return with_hashes(pa.RecordBatch.from_pydict(columns, schema=ROWS))
