"""Repushes: what a base and the feed's records on top of it become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anew.core.errors import Failed
from anew.core.feed import PositionMap
from anew.core.hashing import row_hashes, total
from anew.core.merge import Cell
from anew.core.partition import XxHash64Partitioner
from anew.core.stamp import BATCH, Stamp
from anew.spark.stores.frames import Kind
from anew.spark.stores.scan import Scan, plan_scan
from anew.testing.builders import ORIGIN
from anew.testing.clock import NOON_MS
from tests.spark.world import World, otherwise_compressed, rows_of

_K = b"\x02k"


def _batch(value: bytes, schema_id: int = 1) -> Cell:
    return Cell(Stamp(0, BATCH.encoded), value, schema_id)


@pytest.mark.case("stores:C1", "rules:R6", "rules:R19")
def test_the_later_offset_wins_although_the_clock_stepped_back(make_world: Callable[..., World]) -> None:
    """Of append-timed records at 3, 6 and 9 the one at 9 wins, carries the greatest time, and the ledger knows."""
    world = make_world(rt_partitions=1)
    world.base({_K: _batch(b"base")})
    for offset in range(10):
        world.write(_K if offset in (3, 6, 9) else b"\x04%02d" % offset, b"at %d" % offset)
    world.tamper(0, "appended_ms", {3: NOON_MS + 900, 6: NOON_MS + 500, 9: NOON_MS - 5_000})
    manifest = world.repush()
    winner = world.cells(manifest)[_K]
    assert winner == Cell(Stamp(NOON_MS + 900, ORIGIN, True, 1, 0, 9), b"at 9", 1)
    own = replace(winner, stamp=replace(winner.stamp, time_ms=NOON_MS - 5_000))
    raised = total(row_hashes(rows_of({_K: winner}))) - total(row_hashes(rows_of({_K: own})))
    assert (manifest.ledger.raised.count, manifest.ledger.raised.hash) == (1, raised % (1 << 64))
    assert manifest.ledger.counts()["superseded"] == 3
    assert manifest.ledger.balances


@pytest.mark.case("stores:C1", "rules:R6")
def test_the_latest_given_time_wins(make_world: Callable[..., World]) -> None:
    """Of records with given times the latest time wins, whatever the offset."""
    world = make_world()
    world.base({})
    for time_ms in (1_000, 3_000, 2_000):
        world.write(_K, b"at %d" % time_ms, written_ms=time_ms)
    assert world.values(world.repush()) == {_K: b"at 3000"}


@pytest.mark.case("stores:C2", "stores:E6")
def test_every_row_keeps_its_own_fields(make_world: Callable[..., World]) -> None:
    """Without duplicates every row comes through with its schema id, write time, origin and place."""
    world = make_world()
    base = {b"\x04%02d" % n: _batch(b"v%d" % n, schema_id=1 + 2 * (n % 2)) for n in range(20)}
    base[b"\x02j"] = Cell(Stamp(77, ORIGIN, False, 1, 1, 5), b"nearline before", 3)
    world.base(base)
    offset = world.write(_K, b"new", written_ms=5_000)
    cells = world.cells(world.repush())
    partition = XxHash64Partitioner(2).of(_K)
    assert cells == {**base, _K: Cell(Stamp(5_000, ORIGIN, False, 1, partition, offset), b"new", 1)}


@pytest.mark.case("stores:C3", "stores:C4")
def test_put_and_delete_in_either_order(make_world: Callable[..., World]) -> None:
    """Put then delete leaves the tombstone, delete then put the put; a tombstone carries no schema."""
    world = make_world()
    world.base({b"\x02b": _batch(b"in the base")})
    for key, value in [(b"\x02a", b"x"), (b"\x02a", None), (b"\x02b", None), (b"\x02c", None), (b"\x02c", b"y")]:
        world.write(key, value)
    manifest = world.repush()
    assert world.values(manifest) == {b"\x02a": None, b"\x02b": None, b"\x02c": b"y"}
    assert world.cells(manifest)[b"\x02a"].schema_id == 0
    assert sum(file.tombstones for file in manifest.files) == 2


@pytest.mark.case("stores:C5")
def test_an_older_put_that_comes_late_stays_dead(make_world: Callable[..., World]) -> None:
    """A tombstone in the base beats a put with an older ``written_at`` that arrives afterwards."""
    world = make_world()
    world.base({_K: _batch(b"first")})
    world.write(_K, None, written_ms=NOON_MS - 1_000)
    world.repush()
    world.write(_K, b"late", written_ms=NOON_MS - 2_000)
    assert world.values(world.repush()) == {_K: None}


@pytest.mark.case("stores:B1", "stores:B2", "stores:B7")
@pytest.mark.parametrize(("max_records", "splits"), [(5_000_000, 3), (100, 11)])
def test_no_task_reads_more_than_it_may(make_world: Callable[..., World], max_records: int, splits: int) -> None:
    """Every task of a log scan reads at most the limit; together they read each record once."""
    world = make_world(rt_partitions=3, rt_partitioner="any")
    world.base({})
    for partition, count in enumerate((300, 356, 350)):
        for number in range(count):
            world.write(b"%d-%d" % (partition, number), b"v", partition=partition)
    plan = world.repush_plan(max_records)
    assert len(plan.splits.ranges) == splits
    source = world.place("x").source_log
    scan = plan_scan(plan, world.deep_store, source, None, world.feeds, cores=2)
    counts = _scanned(scan)
    assert sum(counts) == 1_006
    assert max(counts) <= max_records
    built, _ = world.build_repush(plan)
    assert built.ledger.read.count == 1_006


@pytest.mark.case("stores:B7")
def test_a_task_reads_about_the_limit_of_the_base(make_world: Callable[..., World]) -> None:
    """A base scan's tasks read about as many rows as the limit says, and no more tasks are made than row groups."""
    world = make_world(partitions=6)
    manifest = world.base({b"%04d" % n: _batch(b"v" * 50) for n in range(3_000)})
    location = world.place("x").source_log
    for limit, fewest, most, tasks in ((1_000, 3, 1_000, 6), (1, 6, 600, 6)):
        plan = world.repush_plan(limit)
        counts = _scanned(
            plan_scan(
                plan,
                world.deep_store,
                location,
                manifest,
                world.feeds,
                cores=2,
            )
        )
        assert sum(counts) == 3_000
        assert fewest <= len(counts) <= tasks
        assert max(counts) <= most


def _scanned(scan: Scan) -> list[int]:
    """How many records each task of a scan reads."""
    return [
        sum(int((rows.column("kind").to_numpy() != int(Kind.REPORT)).sum()) for rows in scan.rows(index))
        for index in range(len(scan.tasks))
    ]


@pytest.mark.case("stores:B3", "stores:C9")
def test_nothing_becomes_an_empty_version(make_world: Callable[..., World]) -> None:
    """A repush of a version and a feed without any record makes an empty version."""
    world = make_world()
    world.base({})
    manifest = world.repush()
    assert manifest.files == ()
    assert [part.partition for part in manifest.sub_partitions] == [0, 1, 2, 3]
    assert manifest.ledger.counts()["read"] == 0


@pytest.mark.case("stores:B5")
def test_records_after_planning_are_not_read(make_world: Callable[..., World]) -> None:
    """What is appended after planning is not in the new base, and lies at or after the new version's start."""
    world = make_world()
    world.base({})
    world.write(_K, b"before")
    plan = world.repush_plan()
    world.write(_K, b"after")
    manifest = world.seal(plan, *world.build_repush(plan))
    assert world.values(manifest) == {_K: b"before"}
    assert [cell.value for _, cell in world.history(manifest.start, world.ends())] == [b"after"]
    assert world.values(world.repush()) == {_K: b"after"}


@pytest.mark.case("stores:E1")
def test_values_survive_every_change_of_codec(make_world: Callable[..., World]) -> None:
    """none → gzip → zstd → none by repushes: equal values after decoding at every step, other bytes in between."""
    world = make_world(compression="none")
    base = {b"%03d" % n: _batch(b"value %d " % n * 20) for n in range(50)}
    manifest = world.base(base)
    expected = {key: cell.value for key, cell in base.items()}
    sizes = []
    for codec in ("gzip", "zstd", "none"):
        world.configure(compression=codec)
        key, value = f"new {codec}".encode(), f"written before {codec}".encode()
        world.write(key, value)
        expected[key] = value
        manifest = world.repush()
        assert manifest.config.compression == codec
        assert world.values(manifest) == expected
        sizes.append(sum(len(cell.value or b"") for part in world.stored(manifest).values() for _, cell in part))
    assert max(sizes[:2]) < sizes[2] / 2


@pytest.mark.case("stores:E2")
def test_with_the_same_codec_nothing_is_decoded(make_world: Callable[..., World]) -> None:
    """With the same codec the stored bytes pass through, also those that this codec would write otherwise."""
    world = make_world(compression="zstd")
    plain = {b"%02d" % n: _batch(b"value %d" % n) for n in range(30)}
    foreign = {key: _batch(otherwise_compressed(cell.value or b"")) for key, cell in plain.items()}
    world.base(foreign, plain=plain)
    world.configure(partitions=7)
    world.write(_K, b"new")
    stored = dict(pair for part in world.stored(world.repush()).values() for pair in part)
    assert {key: stored[key].value for key in foreign} == {key: cell.value for key, cell in foreign.items()}


@pytest.mark.case("rules:R1")
def test_records_below_the_start_are_discarded(make_world: Callable[..., World]) -> None:
    """A range that reaches below the version's start brings nothing back: those records are passed over."""
    world = make_world(rt_partitions=1)
    for n in range(5):
        world.write(b"old %d" % n, b"x")
    at = world.feed.feed_partitions()[0]
    world.base({}, PositionMap({at: 5}))
    world.write(_K, b"new")
    plan = world.repush_plan()
    (split,) = plan.splits.ranges
    early = plan.splits.model_copy(update={"ranges": (split.model_copy(update={"begin": 2}),)})
    built, directory = world.build_repush(plan.model_copy(update={"splits": early}))
    assert world.values(world.seal(plan, built, directory)) == {_K: b"new"}


@pytest.mark.case("rules:R6", "rules:R8", "rules:R7")
def test_rejected_records_are_counted_as_skipped(make_world: Callable[..., World]) -> None:
    """Records with a time out of range or in a wrong partition are put aside and counted; the rest is complete."""
    world = make_world()
    world.base({})
    world.write(_K, b"good")
    wrong = 1 - XxHash64Partitioner(2).of(b"\x02w")
    world.write(b"\x02w", b"misplaced", partition=wrong)
    offset = world.write(b"\x02t", b"future", written_ms=1_000)
    far_ms = NOON_MS + world.feed.skew_limit_ms + 1
    world.tamper(XxHash64Partitioner(2).of(b"\x02t"), "written_ms", {offset: far_ms})
    manifest = world.repush()
    assert world.values(manifest) == {_K: b"good"}
    counts = manifest.ledger.counts()
    assert (counts["read"], counts["skipped"], counts["written"]) == (3, 2, 1)


@pytest.mark.case("stores:H6", "stores:J6")
def test_another_partition_count_moves_every_key(make_world: Callable[..., World]) -> None:
    """After a change of the partition count each key lies where the new function puts it, with equal values."""
    world = make_world(partitions=3)
    base = {b"key %d" % n: _batch(b"v%d" % n) for n in range(200)}
    world.base(base)
    world.configure(partitions=8)
    manifest = world.repush()
    for partition, pairs in world.stored(manifest).items():
        assert {XxHash64Partitioner(8).of(key) for key, _ in pairs} == {partition}
        assert [key for key, _ in pairs] == sorted(key for key, _ in pairs)
    assert world.cells(manifest) == base


@pytest.mark.case("rules:R21")
def test_a_value_of_an_unknown_schema_waits_to_be_decided(make_world: Callable[..., World]) -> None:
    """A scan that meets one fails and says so; once it was decided against, it is skipped and counted."""
    world = make_world(rt_partitions=1)
    world.base({_K: _batch(b"base")})
    offset = world.write(_K, b"unknown", schema_id=77)
    with pytest.raises(Failed, match=f"names a schema that is not known; found: schema id 77 at offset {offset}"):
        world.repush()
    settled = world.store.feeds[0].with_settled(0, offset + 1, world.store.newest_schema_id)
    world.store = world.store.model_copy(update={"feeds": (settled,)})
    manifest = world.repush()
    assert (world.values(manifest), manifest.ledger.skipped.count) == ({_K: b"base"}, 1)
