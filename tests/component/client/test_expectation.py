"""Base ⊕ feeds computed from a real deep store and a real log is what the merge's definition says, key by key."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anew.client.expectation import Expectation, expectation_of
from anew.codec.compression import compressor
from anew.core.arrow import bytes_list
from anew.core.errors import Failed
from anew.core.feed import FeedPartition, PositionMap
from anew.core.fingerprint import FingerprintSum, buckets_of
from anew.core.merge import Cell, expire, merge_all
from anew.core.partition import XxHash64Partitioner
from anew.core.rows import ROWS
from anew.core.stamp import BATCH, Stamp, fabric_origin
from anew.core.stores.store import Frozen
from anew.log.interface import TopicPartition
from anew.segments.manifest import SubPartition
from anew.testing.builders import FABRIC, cells_of
from tests.component.node.harness import World, clock, config, key_of, place_of, world
from tests.component.node.stores.fleet import subject_of
from tests.property.core.histories import rows_of

_KEYS = [f"k{number:02}" for number in range(60)]
_ORIGIN = fabric_origin("dc-0").encoded
_EVERYTHING = frozenset(range(256))


@pytest.fixture
def words(tmp_path: Path) -> Iterator[World]:
    """A world without versions yet."""
    with world(tmp_path) as made:
        yield made


def feed_partition_of(words: World, text: str) -> FeedPartition:
    """Where a key's records lie."""
    return FeedPartition(words.feed.id, XxHash64Partitioner(words.feed.partitions).of(key_of(text)))


def base_cells(words: World, chance: random.Random, start: PositionMap, floor_ms: int) -> dict[str, Cell]:
    """What an earlier rebuild might have left: batch records, and feed records below the start, of a fast clock too."""
    cells: dict[str, Cell] = {}
    for text in chance.sample(_KEYS, 40):
        at = feed_partition_of(words, text)
        value = None if chance.random() < 0.2 else key_of(f"base {text}")
        if value is not None and chance.random() < 0.3:
            cells[text] = Cell(Stamp(0, BATCH.encoded), value, 1)
            continue
        time_ms = floor_ms + chance.choice([1, 5_000, 60_000])
        timed, offset = chance.random() < 0.7, chance.randrange(start[at])
        cells[text] = Cell(Stamp(time_ms, _ORIGIN, timed, 1, at.partition, offset), value, 0 if value is None else 1)
    return cells


def write_base(words: World, frozen: Frozen, cells: dict[str, Cell]) -> tuple[SubPartition, ...]:
    """The base files of cells."""
    places: dict[tuple[int, int], list[str]] = defaultdict(list)
    for text in cells:
        places[place_of(frozen, text)].append(text)
    subs = []
    for place in (divmod(unit, frozen.amplification_factor) for unit in range(frozen.sub_partitions)):
        rows = rows_of([(key_of(text), cells[text]) for text in sorted(places[place], key=key_of)])
        codec = compressor(frozen.compression)
        packed = codec.compress_array(rows.column("value"))
        file = words.write_base(f"v1/{place}", rows.set_column(1, ROWS.field("value"), packed), codec)
        subs.append(SubPartition(partition=place[0], sub_partition=place[1], runs=((file,),) if file else ()))
    return tuple(subs)


def logged_cells(words: World, start: PositionMap, position: PositionMap) -> dict[bytes, list[Cell]]:
    """The records of the log from start to position, as the merge sees them, each feed partition in its order."""
    found: dict[bytes, list[Cell]] = defaultdict(list)
    for at in words.feed.feed_partitions():
        records = words.log.read(TopicPartition("words_rt", "t1", at.partition), start[at], 10_000).records
        for row in records.to_pylist():
            if row["offset"] < position[at]:
                timed = row["written_ms"] is None
                time_ms = row["appended_ms"] if timed else row["written_ms"]
                stamp = Stamp(time_ms, row["origin"], timed, 1, at.partition, row["offset"])
                found[row["key"]].append(Cell(stamp, row["value"], row["schema_id"]))
    return found


def model_of(base: dict[str, Cell], logged: dict[bytes, list[Cell]], floors: tuple[int, int]) -> dict[bytes, Cell]:
    """What a replica holds, by the definitions of merge and floors (time to live, tombstones)."""
    held: dict[bytes, Cell] = {}
    based = {key_of(text): cell for text, cell in base.items()}
    for key in based.keys() | logged.keys():
        cell = merge_all([*([based[key]] if key in based else []), *logged.get(key, [])])
        assert cell is not None
        if key in based or cell.stamp.time_ms >= floors[1]:
            held[key] = expire(cell, floors[0])
    return held


def expected_cells(expectation: Expectation, place: tuple[int, int]) -> Iterator[tuple[bytes, int]]:
    """Key and hash of each row that is expected in a place."""
    for rows in expectation.rows(place, _EVERYTHING):
        yield from zip(bytes_list(rows.column("key")), rows.column("hash").to_pylist(), strict=True)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.case("rules:R1", "rules:R6", "rules:R11", "rules:R12", "rules:R19")
def test_the_expectation_is_the_definition(words: World, seed: int) -> None:
    """Counts, fingerprints and rows of every place are those of the definition, for records of every kind."""
    chance, floor_ms = random.Random(seed), clock() - 10_000
    frozen = config("zstd", 2, amplification_factor=1 + seed % 3)
    for text in _KEYS * 2:
        words.write(text, "below the start")
    start = words.ends()
    base = base_cells(words, chance, start, floor_ms)
    floors = (floor_ms, floor_ms - 3_000)
    changes = {"start": start, "ttl_floor_ms": floors[0], "tombstone_floor_ms": floors[1]}
    words.seal(1, write_base(words, frozen, base), frozen, changes)
    for number in range(200):
        given = floor_ms + chance.randrange(-6_000, 6_000) if chance.random() < 0.5 else None
        words.write(chance.choice(_KEYS), None if chance.random() < 0.3 else f"v{number}", written_ms=given)
    words.write("late", "met nothing", written_ms=floors[1] - 1)
    position = words.ends()
    for text in _KEYS:
        words.write(text, "behind the position")
    expectation = expectation_of(subject_of(words, {}).version, FABRIC, words.feeds, position, words.deep, words.log)
    logged = logged_cells(words, start, position)
    held = model_of(base, logged, floors)
    carried = [cell for cell in held.values() if cell.stamp.time_ms > clock()]
    assert carried, "a later offset carries a fast clock's time"
    turned_away = logged.keys() - held.keys()
    assert key_of("late") in turned_away
    for place, found in expectation.fingerprints():
        mine = sorted(key for key in held if place_of(frozen, key[1:].decode()) == place)
        rows = rows_of([(key, held[key]) for key in mine])
        summed = FingerprintSum()
        summed.add(rows)
        assert found == summed.result()
        assert list(expected_cells(expectation, place)) == list(zip(mine, rows.column("hash").to_pylist(), strict=True))


def test_rows_of_some_buckets_are_those_of_these_buckets(words: World) -> None:
    """Buckets part the keys: each row comes with its own bucket, and with no other."""
    words.version(1, dict.fromkeys(_KEYS, "x"), config=config(partitions=1))
    expectation = expectation_of(
        subject_of(words, {}).version,
        FABRIC,
        words.feeds,
        words.ends(),
        words.deep,
        words.log,
    )
    some = frozenset(range(100))
    inside = [rows for rows in expectation.rows((0, 0), some) if rows.num_rows]
    outside = [rows for rows in expectation.rows((0, 0), _EVERYTHING - some) if rows.num_rows]
    assert all(set(buckets_of(rows.column("key"))) <= some for rows in inside)
    assert all(some.isdisjoint(buckets_of(rows.column("key"))) for rows in outside)
    found = [key for rows in (*inside, *outside) for key, _ in cells_of(rows)]
    assert sorted(found) == sorted(key_of(text) for text in _KEYS)


def test_a_log_that_ends_too_early_is_an_error(words: World) -> None:
    """A position that the log does not have is never taken for the end of what there is."""
    words.version(1, {}, config=config(partitions=1))
    beyond = PositionMap({at: end + 1 for at, end in words.ends().items()})
    expectation = expectation_of(subject_of(words, {}).version, FABRIC, words.feeds, beyond, words.deep, words.log)
    with pytest.raises(Failed, match="ends before the position that was read from it"):
        list(expectation.fingerprints())


def test_a_base_row_with_a_raised_time_is_hashed_again(words: World) -> None:
    """A base row that wins with another record's time has the hash of its uncompressed value with that time."""
    words.write("a", "below the start")
    at, ends = feed_partition_of(words, "a"), words.ends()
    late = Cell(Stamp(clock() - 60_000, _ORIGIN, True, 1, at.partition, ends[at] + 5), key_of("late"), 1)
    frozen = config("gzip", 1)
    words.seal(1, write_base(words, frozen, {"a": late}), frozen, {"start": ends})
    words.write("a", "earlier in its clock")
    position = words.ends()
    expectation = expectation_of(subject_of(words, {}).version, FABRIC, words.feeds, position, words.deep, words.log)
    time_ms = logged_cells(words, ends, position)[key_of("a")][0].stamp.time_ms
    raised = replace(late, stamp=replace(late.stamp, time_ms=time_ms))
    wanted = rows_of([(key_of("a"), raised)]).column("hash").to_pylist()
    assert [value for _, value in expected_cells(expectation, (0, 0))] == wanted
    assert np.int64(wanted[0]) != rows_of([(key_of("a"), late)]).column("hash")[0].as_py()
