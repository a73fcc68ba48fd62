"""A replica holds what the merge's definition says, however a history is cut."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anew.codec.compression import compressor
from anew.core.arrow import concat
from anew.core.cell import encode_cell
from anew.core.feed import FeedPartition, PositionMap
from anew.core.merge import Cell, expire, merge, merge_all
from anew.core.rows import ROWS
from anew.core.stamp import Origin, OriginKind, Stamp, fabric_origin
from anew.storage.applying import Floors, outcome_of
from anew.storage.memory import NodeMemory
from anew.storage.portions import Portion
from anew.storage.replica import Base, Replica

ZSTD = compressor("zstd")
KEYS = [b"", b"a", b"ab"]
NUMBERS = itertools.count()
FEEDS = {
    1: (fabric_origin("dc-0"), 1),
    2: (fabric_origin("dc-0"), 2),
    3: (Origin(OriginKind.JOB, "job", 2), 1),
    4: (Origin(OriginKind.JOB, "job", 10), 1),
}


@dataclass(frozen=True)
class Record:
    """One feed record of a key."""

    key: bytes
    feed: int
    partition: int
    time_ms: int
    append_timed: bool
    value: bytes | None

    def cell(self, offset: int) -> Cell:
        """The record as the merge sees it."""
        origin, incarnation = FEEDS[self.feed]
        stamp = Stamp(self.time_ms, origin.encoded, self.append_timed, incarnation, self.partition, offset)
        return Cell(stamp, self.value, 0 if self.value is None else 1)


RECORDS = st.builds(
    Record,
    key=st.sampled_from(KEYS),
    feed=st.sampled_from(sorted(FEEDS)),
    partition=st.integers(0, 1),
    time_ms=st.integers(1, 6),
    append_timed=st.booleans(),
    value=st.one_of(st.none(), st.binary(max_size=3)),
)


def feed_partition(record: Record) -> FeedPartition:
    """Where a record lies."""
    return FeedPartition(f"f{record.feed}", record.partition)


def rows_of(cells: list[tuple[bytes, Cell]]) -> pa.RecordBatch:
    """Cells as rows."""
    columns: dict[str, Any] = {name: [] for name in ROWS.names}
    for key, cell in cells:
        stamp = cell.stamp
        entry = (key, cell.value, cell.schema_id, stamp.time_ms, stamp.origin, stamp.append_timed, stamp.incarnation)
        for name, value in zip(ROWS.names, (*entry, stamp.partition, stamp.offset, 0), strict=True):
            columns[name].append(value)
    return pa.RecordBatch.from_pydict(columns, schema=ROWS)


@pytest.fixture(scope="module")
def memory() -> NodeMemory:
    """One budget for all instances of these tests."""
    return NodeMemory()


def fresh(folder: Path, memory: NodeMemory, floors: Floors, held: dict[bytes, Cell]) -> Replica:
    """An empty replica that is given cells as if they were its base."""
    replica = Replica.create(folder / f"r{next(NUMBERS)}", memory, [], Base("m", 0, 0, PositionMap()))
    replica.use(ZSTD, floors)
    for key, cell in held.items():
        stored = Cell(cell.stamp, None if cell.value is None else ZSTD.compress(cell.value), cell.schema_id)
        replica._database.write([key], [encode_cell(stored)])
    return replica


def cells_of(replica: Replica) -> dict[bytes, Cell | None]:
    """What the replica holds."""
    return {key: replica.cell(key) for key in KEYS}


@pytest.mark.case("rules:R6", "rules:R11", "rules:R18", "rules:R20")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(RECORDS, max_size=24), cuts=st.data())
def test_any_cut_of_a_history_gives_the_definition(
    tmp_path: Path, memory: NodeMemory, history: list[Record], cuts: st.DataObject
) -> None:
    """Base, feeds, batches of any size, whole or cut off, and replays end in the cells that the definition gives."""
    floor = cuts.draw(st.integers(0, 5))
    offsets: dict[FeedPartition, int] = {}
    placed: list[tuple[FeedPartition, bytes, Cell]] = []
    for record in history:
        at = feed_partition(record)
        placed.append((at, record.key, record.cell(offsets.setdefault(at, 0))))
        offsets[at] += 1
    expected: dict[bytes, Cell | None] = {}
    for key in KEYS:
        merged = merge_all(cell for _, other, cell in placed if other == key)
        expected[key] = None if merged is None else expire(merged, floor)
    split = {at: cuts.draw(st.integers(0, end)) for at, end in offsets.items()}
    held: dict[bytes, Cell] = {}
    for at, key, cell in placed:
        if cell.stamp.offset < split[at]:
            held[key] = merge(held.get(key), cell)
    replica = fresh(tmp_path, memory, Floors(floor), {key: expire(cell, floor) for key, cell in held.items()})
    try:
        _apply_in_batches(replica, placed, split, cuts)
        assert cells_of(replica) == expected
    finally:
        replica.discard()


def portion_of(at: FeedPartition, rows: pa.RecordBatch, next_offset: int) -> Portion:
    """A portion of rows whose stamps say where they lie in the log."""
    return Portion(at, rows, rows.column("offset").to_numpy(), next_offset)


def _apply_in_batches(
    replica: Replica, placed: list[tuple[FeedPartition, bytes, Cell]], split: dict[FeedPartition, int], cuts: Any
) -> None:
    """Apply feed partitions from their splits in random batches, some together, going back now and then."""
    ends = {at: sum(other == at for other, _, _ in placed) for at in split}
    reached = dict(split)
    replays = 3
    while open_ends := [at for at in ends if reached[at] < ends[at]]:
        portions = []
        for at in cuts.draw(st.lists(st.sampled_from(open_ends), min_size=1, unique=True)):
            if replays and cuts.draw(st.booleans()):
                replays -= 1
                reached[at] = cuts.draw(st.integers(split[at], reached[at]))
            upto = cuts.draw(st.integers(reached[at] + 1, ends[at]))
            records = [(k, c) for other, k, c in placed if other == at and reached[at] <= c.stamp.offset < upto]
            portions.append(portion_of(at, rows_of(records), upto))
            reached[at] = upto
        if cuts.draw(st.booleans()):
            _die_between_writes(replica, concat([portion.rows for portion in portions]), cuts)
        replica.apply(portions)
        assert {at: replica.offset(at) for at, *_ in portions} == {at: upto for at, *_, upto in portions}


def _die_between_writes(replica: Replica, rows: pa.RecordBatch, cuts: Any) -> None:
    """Leave behind some of the cells of a batch, without its position."""
    database = replica._database
    held = {key: cell for key in KEYS if (cell := database.get(key)) is not None}
    outcome = outcome_of(rows, held, replica._floors, ZSTD)
    for key, cell in zip(outcome.keys, outcome.cells, strict=True):
        if cuts.draw(st.booleans()):
            database.write([key], [cell])


@pytest.mark.case("rules:R6", "rules:R18")
def test_a_time_owed_to_the_held_cell_counts_inside_a_batch(tmp_path: Path, memory: NodeMemory) -> None:
    """A record whose clock stepped back wins its batch by the time that its clock's earlier, held record had."""
    at = FeedPartition("f1", 0)
    stepping = [Record(b"a", 1, 0, 20, True, b"old"), Record(b"a", 1, 0, 9, True, b"new")]
    given_time = Record(b"a", 1, 0, 10, False, b"given")
    cells = [stepping[0].cell(0), stepping[1].cell(1), given_time.cell(2)]
    replica = fresh(tmp_path, memory, Floors(), {b"a": cells[0]})
    replica.apply([portion_of(at, rows_of([(b"a", cells[1]), (b"a", cells[2])]), 3)])
    assert replica.cell(b"a") == merge_all(cells)
    assert replica.cell(b"a") == Cell(Stamp(20, cells[0].stamp.origin, True, 1, 0, 1), b"new", 1)
    replica.discard()


@pytest.mark.case("rules:R12")
def test_late_records_without_a_cell_are_turned_away(tmp_path: Path, memory: NodeMemory) -> None:
    """Below the tombstone floor a record that meets no cell is rejected; one that meets a cell is merged."""
    at = FeedPartition("f1", 0)
    held = Record(b"a", 1, 0, 5, False, b"held").cell(0)
    replica = fresh(tmp_path, memory, Floors(tombstone_floor_ms=50), {b"a": held})
    late = [
        (b"a", Record(b"a", 1, 0, 7, False, b"merged").cell(1)),
        (b"ab", Record(b"ab", 1, 0, 7, False, b"x").cell(2)),
    ]
    mixed = [(b"", Record(b"", 1, 0, 7, False, b"y").cell(3)), (b"", Record(b"", 1, 0, 60, False, b"z").cell(4))]
    rejected = list[tuple[FeedPartition, int]]()
    replica.apply([portion_of(at, rows_of([*late, *mixed]), 5)], rejected.extend)
    assert rejected == [(at, 2)]
    assert [replica.get(key) and replica.get(key).body for key in KEYS] == [b"z", b"merged", None]  # type: ignore[union-attr]  # just checked
    replica.discard()
