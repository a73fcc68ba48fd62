"""Repushes that read the feeds of jobs: identities order the records, the account goes by the log's partitions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from anew.core.errors import Failed
from anew.core.feed import FeedKind
from anew.core.identity import identified_origins, sequences
from anew.core.merge import Cell, merge_all
from anew.core.partition import XxHash64Partitioner
from anew.core.stamp import Origin, OriginKind, Stamp
from anew.log.interface import APPEND_RECORDS
from tests.spark.world import World

pytestmark = pytest.mark.case("rules:R20")

_JOB = Origin(OriginKind.JOB, "clicks", 2)
_PARTITIONS = 4


@pytest.fixture
def job_world(make_world: Callable[..., World]) -> World:
    """A world whose feed is that of a generation."""
    world = make_world(partitions=2, rt_partitions=_PARTITIONS, compression="none", tombstone_grace_seconds=1)
    feed = world.feed.model_copy(update={"kind": FeedKind.GENERATION, "origin": _JOB.encoded.hex()})
    world.feed, world.store = feed, world.store.model_copy(update={"feeds": (feed,)})
    return world


def _put_out(
    world: World, key: bytes, value: bytes | None, stamp: tuple[int, int, int], schema_id: int = 1
) -> tuple[Cell, int]:
    """Append one record of the job with a stamp of time, batch and sequence; its cell, and its offset."""
    time_ms, batch, sequence = stamp
    partition = XxHash64Partitioner(_PARTITIONS).of(key)
    record: dict[str, Any] = {
        "written_ms": time_ms,
        "origin": identified_origins(_JOB, batch, sequences(0, 1, sequence, 1)).to_pylist()[0],
        "key": key,
        "schema_id": 0 if value is None else schema_id,
        "value": value,
    }
    appended = world.log.append(
        world.topic_partition(partition), pa.RecordBatch.from_pylist([record], schema=APPEND_RECORDS)
    )
    found = Stamp(time_ms, _JOB.encoded, False, 1, batch, int(sequences(0, 1, sequence, 1)[0]))
    return Cell(found, value, 0 if value is None else schema_id), appended.first_offset


@pytest.mark.case("rules:R1", "rules:R19", "stores:G5")
@pytest.mark.parametrize(("path", "combiner"), [("general", False), ("general", True), ("copartitioned", False)])
def test_a_repush_of_a_job_s_feed_is_the_merge(job_world: World, path: str, combiner: bool) -> None:  # noqa: FBT001 - a case
    """On each path, in chains of repushes, keys hold the greatest (time, batch, sequence), and the ledger balances."""
    chance, world = random.Random(3), job_world
    manifest = world.base({})
    known: dict[bytes, list[Cell]] = {}
    for batches in (range(3), range(2, 6)):
        for sequence in range(400):
            key = b"\x08key%d" % chance.randrange(10)
            value = None if chance.random() < 0.2 else chance.randbytes(5)
            batch = chance.choice(batches)
            stamp = (world.clock() - chance.randrange(3), batch, batches[0] * 1_000 + sequence)
            cell, _ = _put_out(world, key, value, stamp)
            known.setdefault(key, []).append(cell)
        manifest = world.repush(path=path, combiner=combiner, max_records=500)
        wanted = {key: merge_all(cells) for key, cells in known.items()}
        assert world.cells(manifest) == wanted
        assert manifest.ledger.balances
        assert manifest.ledger.read.count == 400 + (0 if batches[0] == 0 else len(known))


@pytest.mark.case("rules:R21")
def test_an_undecided_value_of_a_job_is_named_by_its_offset(job_world: World) -> None:
    """A scan that meets an unknown schema names the record by its offset in the log, not by its sequence."""
    job_world.base({})
    _, offset = _put_out(job_world, b"\x02k", b"v", (job_world.clock(), 40, 500), schema_id=77)
    with pytest.raises(Failed, match=f"schema id 77 at offset {offset}"):
        job_world.repush()


@pytest.mark.case("rules:R21")
def test_what_is_not_of_the_generation_is_skipped(job_world: World) -> None:
    """A record without the generation's identity, or without a time, is put aside and counted."""
    job_world.base({})
    cell, _ = _put_out(job_world, b"\x02k", b"v", (job_world.clock(), 40, 500))
    job_world.write(b"\x02k", b"a writer's", job_world.clock())
    manifest = job_world.repush()
    assert job_world.cells(manifest) == {b"\x02k": cell}
    assert (manifest.ledger.read.count, manifest.ledger.skipped.count) == (2, 1)


@pytest.mark.case("rules:R12")
@pytest.mark.parametrize("is_known", [False, True])
def test_new_keys_with_old_times_are_applied_after_a_repush(job_world: World, is_known: bool) -> None:  # noqa: FBT001 - a case
    """Event times reach far back: what is dated before a repush is applied, unless nothing so old was to come."""
    world = job_world
    world.base({})
    first, _ = _put_out(world, b"\x02a", b"first", (world.clock(), 0, 0))
    world.clock.advance(60_000)
    world.to_come_ms = {world.feed.id: world.clock()} if is_known else {}
    world.repush()
    late, _ = _put_out(world, b"\x02b", b"late", (world.clock() - 3_600_000, 1, 0))
    manifest = world.repush()
    kept = {b"\x02a": first, b"\x02b": late} if not is_known else {b"\x02a": first}
    assert (world.cells(manifest), manifest.ledger.skipped.count) == (kept, 2 - len(kept))
