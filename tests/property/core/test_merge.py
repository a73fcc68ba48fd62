"""The merge: what a key holds does not depend on how its history was cut, interleaved or replayed."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.merge import Cell, expire, merge, merge_all
from anew.core.reduce import find_winners, sort_rows
from anew.core.stamp import BATCH, Stamp, fabric_origin
from anew.testing.builders import cells_of
from tests.property.core.histories import (
    MODEST,
    ORIGINS,
    History,
    cell_of,
    histories,
    interleavings,
    rows_of,
)

_DC_0 = fabric_origin("dc-0").encoded


def _append_timed(time_ms: int, offset: int, *, deleted: bool = False) -> Cell:
    return cell_of(Stamp(time_ms, _DC_0, True, 1, 0, offset), deleted=deleted)


def _wanted(history: History) -> Cell | None:
    """Rule R6 over a whole group, in its own words and without a merge of pairs."""
    candidates = list(history.batch)
    for feed in history.feeds:
        timed = [cell for cell in feed if cell.stamp.append_timed]
        if timed:
            last, time_ms = timed[-1], max(cell.stamp.time_ms for cell in timed)
            stamp = Stamp(
                time_ms,
                last.stamp.origin,
                True,
                last.stamp.incarnation,
                last.stamp.partition,
                last.stamp.offset,
            )
            candidates.append(Cell(stamp, last.value, last.schema_id))
        candidates += [cell for cell in feed if not cell.stamp.append_timed]
    return max(candidates, key=lambda cell: cell.stamp.rank, default=None)


@pytest.mark.case("rules:R6", "rules:R20")
@MODEST
@given(st.data(), histories())
def test_any_interleaving_gives_the_cell_of_the_rule(data: st.DataObject, history: History) -> None:
    """However the feeds are interleaved, each in its own order, the cell is the one that R6 describes."""
    order = data.draw(interleavings([history.batch, *history.feeds]))
    assert merge_all(order) == _wanted(history)


@pytest.mark.case("rules:R6")
@MODEST
@given(st.data(), histories())
def test_any_split_into_base_and_feeds_gives_the_same_cell(data: st.DataObject, history: History) -> None:
    """A base of the batch and of any beginning of each feed, with the rest applied on top, ends in the same cell."""
    cuts = [data.draw(st.integers(0, len(feed))) for feed in history.feeds]
    folded = [feed[:cut] for feed, cut in zip(history.feeds, cuts, strict=True)]
    base = merge_all(data.draw(interleavings([history.batch, *folded])))
    held = base
    for cell in data.draw(interleavings([feed[cut:] for feed, cut in zip(history.feeds, cuts, strict=True)])):
        held = merge(held, cell)
    assert held == _wanted(history)


@pytest.mark.case("rules:R18")
@MODEST
@given(st.data(), histories())
def test_any_replay_changes_nothing(data: st.DataObject, history: History) -> None:
    """Applying the end of each feed again, from anywhere and in order, leaves the cell as it was."""
    held = merge_all(history.records)
    for feed in history.feeds:
        for cell in feed[data.draw(st.integers(0, len(feed))) :]:
            held = merge(held, cell)
    assert held == merge_all(history.records)


@pytest.mark.case("rules:R18")
def test_a_batch_reduced_without_the_held_cell_would_lose_a_record() -> None:
    """A record that owes its time to the cell that is held wins with it, but loses inside a batch of its own."""
    held = _append_timed(20, 2)
    other = Cell(Stamp(10, ORIGINS[1], True, 1, 0, 5), b"another fabric's", 1)
    later = _append_timed(10, 3)
    reduced_alone = merge_all([other, later])
    assert reduced_alone == other
    assert merge(held, other) == held
    wanted = merge_all([held, other, later])
    assert wanted is not None
    assert (wanted.value, wanted.stamp.time_ms) == (later.value, 20)
    together = find_winners(sort_rows(rows_of([(b"key", cell) for cell in (held, other, later)])))
    assert (together.times.tolist(), together.raised.tolist()) == ([20], [True])


@pytest.mark.case("rules:R18")
@MODEST
@given(st.data(), histories())
def test_a_batch_is_reduced_together_with_the_held_cell(data: st.DataObject, history: History) -> None:
    """One reduction of a batch and the cell that is held gives what record by record gives."""
    order = data.draw(interleavings([history.batch, *history.feeds]))
    cut = data.draw(st.integers(0, len(order)))
    held = merge_all(order[:cut])
    group = [(b"key", cell) for cell in (*order[cut:], *([] if held is None else [held]))]
    rows = sort_rows(rows_of(group))
    winners = find_winners(rows)
    expected = merge_all(order)
    if expected is None:
        assert winners.indices.size == 0
        return
    (index,), (time_ms,) = winners.indices.tolist(), winners.times.tolist()
    assert (cells_of(rows)[index][1].value, time_ms) == (expected.value, expected.stamp.time_ms)


def test_times_alone_would_let_the_split_decide() -> None:
    """Without the offset rule a broker's clock that steps back makes the order of the merge matter."""
    first, second = _append_timed(900, 0), _append_timed(600, 1, deleted=True)
    by_time = max((first, second), key=lambda cell: cell.stamp.rank)
    assert by_time == first
    merged = merge_all([first, second])
    assert merged is not None
    assert (merged.tombstone, merged.stamp.offset, merged.stamp.time_ms) == (True, 1, 900)


@pytest.mark.case("stores:C1")
@pytest.mark.parametrize("times", list(permutations((100, 200, 300))))
def test_the_last_offset_survives_whatever_the_clock_did(times: tuple[int, int, int]) -> None:
    """A key at offsets 3, 6 and 9: append-timed, the record at 9 wins; with given times the latest time does."""
    timed = [_append_timed(time, offset) for time, offset in zip(times, (3, 6, 9), strict=True)]
    given = [
        cell_of(Stamp(time, _DC_0, False, 1, 0, offset), deleted=False)
        for time, offset in zip(times, (3, 6, 9), strict=True)
    ]
    last, latest = merge_all(timed), merge_all(given)
    assert last is not None
    assert latest is not None
    assert (last.value, last.stamp.time_ms) == (timed[2].value, 300)
    assert latest == given[times.index(300)]


@pytest.mark.case("stores:C3", "stores:C4")
@pytest.mark.parametrize("deleted_last", [True, False])
def test_the_later_of_put_and_delete_wins(deleted_last: bool) -> None:  # noqa: FBT001 - a case, not a switch
    """Put, then delete: a tombstone is held; delete, then put: the put; within one clock tick as well."""
    cells = [_append_timed(5, 0, deleted=not deleted_last), _append_timed(5, 1, deleted=deleted_last)]
    held = merge_all(cells)
    assert held is not None
    assert held.tombstone is deleted_last


@pytest.mark.case("stores:C5")
def test_a_tombstone_hides_an_older_put_that_comes_late() -> None:
    """A delete in the base stays the answer when a put with an older given time arrives afterwards."""
    delete = _append_timed(500, 7, deleted=True)
    late = cell_of(Stamp(499, _DC_0, False, 1, 0, 8), deleted=False)
    assert merge(delete, late) == delete


@pytest.mark.case("rules:R11")
@MODEST
@given(st.data(), histories(), st.integers(0, 7))
def test_expiry_does_not_depend_on_the_split(data: st.DataObject, history: History, floor_ms: int) -> None:
    """Expiring the base at a floor and the merged cell again gives what expiring the whole history gives."""
    cuts = [data.draw(st.integers(0, len(feed))) for feed in history.feeds]
    base = merge_all([*history.batch, *(c for f, cut in zip(history.feeds, cuts, strict=True) for c in f[:cut])])
    held = None if base is None else expire(base, floor_ms)
    for feed, cut in zip(history.feeds, cuts, strict=True):
        for cell in feed[cut:]:
            held = merge(held, cell)
    wanted = _wanted(history)
    assert (held is None) == (wanted is None)
    if held is not None and wanted is not None:
        assert expire(held, floor_ms) == expire(wanted, floor_ms)


@pytest.mark.case("rules:R11")
@MODEST
@given(histories(), st.integers(1, 7), st.integers(0, 3))
def test_a_greater_floor_decides(history: History, floor_ms: int, more_ms: int) -> None:
    """Expiring at two floors, in either order, is expiring at the greater one: what expired never comes back."""
    merged = merge_all(history.records)
    if merged is None:
        return
    greater = expire(merged, floor_ms + more_ms)
    assert expire(expire(merged, floor_ms), floor_ms + more_ms) == greater
    assert expire(greater, floor_ms) == greater


@pytest.mark.case("rules:R11")
def test_an_expired_record_still_hides_an_older_batch_value() -> None:
    """A record below the floor reads as a tombstone with its own stamp, and a batch value without a time stays dead."""
    batch = Cell(Stamp(0, BATCH.encoded), b"old", 1)
    written = _append_timed(10, 0)
    held = merge_all([batch, written])
    assert held is not None
    expired = expire(held, 11)
    assert (expired.tombstone, expired.stamp) == (True, written.stamp)
    assert merge(expired, batch) == expired
    assert expire(batch, 11) == batch


@pytest.mark.case("rules:R20")
def test_equal_times_are_decided_by_the_order_of_origins() -> None:
    """On equal times batch loses to jobs, generation 9 to generation 10, and every job to a fabric."""
    ordered = [BATCH.encoded, ORIGINS[2], ORIGINS[3], ORIGINS[0], ORIGINS[1]]
    cells = [Cell(Stamp(5, origin), origin, 1) for origin in ordered]
    for pair in permutations(range(len(cells)), 2):
        assert merge(cells[pair[0]], cells[pair[1]]) == cells[max(pair)]
