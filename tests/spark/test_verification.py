"""Faults between reading and writing are found before anything is sealed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame

from anew.codec.compression import compressor
from anew.core.arrow import concat
from anew.core.blocks import unpack
from anew.core.errors import Failed
from anew.core.merge import Cell
from anew.core.partition import XxHash64Partitioner
from anew.core.stamp import BATCH, Stamp
from anew.core.stores.copartition import groups_of
from anew.core.stores.plan import Plan
from anew.deepstore.open import open_deep_store
from anew.segments.basefile import BaseFileWriter
from anew.segments.provenfile import read_proven
from anew.spark.stores import build, shuffle
from anew.spark.stores.frames import Kind, report_row
from anew.spark.stores.shuffle import Destination, packed
from tests.spark.dying import dying_once
from tests.spark.world import World

Fault = Callable[[pa.RecordBatch], list[pa.RecordBatch]]
"""What becomes of rows of one kind (columns `SCANNED`), or of a report."""

# Tasks cannot import this module.
register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # of PySpark


def _filled(make_world: Callable[..., World]) -> World:
    world = make_world()
    world.base({b"base %02d" % n: Cell(Stamp(0, BATCH.encoded), b"v%d" % n, 1) for n in range(40)})
    for n in range(40):
        world.write(b"feed %02d" % n, b"v%d" % n)
    return world


def _inject(monkeypatch: pytest.MonkeyPatch, plan: Plan, fault: Fault) -> None:
    """Let a fault happen to the rows on their way from the scans to the merge."""
    config = plan.target.config
    groups = groups_of(config, config) if plan.path == "copartitioned" else None
    destination = Destination.of(config, groups, runs=1)

    def faulty(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (rows for batch in batches for block in batch.to_pylist() for rows in fault(_opened(block)))
        return packed(rows, destination)

    def injected(blocks: DataFrame, count: int) -> DataFrame:
        return shuffle.delivered(blocks.mapInArrow(faulty, blocks.schema), count)

    monkeypatch.setattr(build, "delivered", injected)


def _opened(block: dict[str, Any]) -> pa.RecordBatch:
    if block["constants"] is None:
        return report_row(json.loads(block["rows"]))
    return unpack(block["constants"], block["rows"])


def _kind(rows: pa.RecordBatch) -> int:
    return int(rows.column("kind")[0].as_py())


def _drop_a_shuffle_block(kind: int) -> Fault:
    def fault(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        keys: Any = rows.column("key")
        lost = XxHash64Partitioner(4).of_all(keys)[0] == 1
        return [] if _kind(rows) == kind and lost else [rows]

    return fault


def _drop_one_make_one_twice(first: bytes, second: bytes) -> Fault:
    def fault(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        keys: Any = rows.column("key")
        return [rows.filter(pc.not_equal(keys, pa.scalar(first))), rows.filter(pc.equal(keys, pa.scalar(second)))]

    return fault


@pytest.mark.case("stores:J1", "rules:R19", "rules:R7")
@pytest.mark.parametrize(
    ("path", "kind", "source"),
    [("general", 0, "base"), ("general", 1, "dc-0/flights_rt#1/"), ("copartitioned", 1, "dc-0/flights_rt#1/")],
)
def test_a_lost_shuffle_block_fails_the_rebuild(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, path: str, kind: int, source: str
) -> None:
    """Rows that vanish between scan and merge fail the rebuild, naming the source and both counts."""
    world = _filled(make_world)
    plan = world.repush_plan(path=path)
    _inject(monkeypatch, plan, _drop_a_shuffle_block(kind))
    with pytest.raises(Failed) as caught:
        world.build_repush(plan)
    assert caught.value.code == "rows_lost"
    assert f"rows of {source}" in str(caught.value)
    assert len(world.manifests) == 1


@pytest.mark.case("stores:J1", "rules:R19")
def test_a_base_file_that_lost_rows_fails_a_copartitioned_rebuild(make_world: Callable[..., World]) -> None:
    """A task that reads fewer rows of a base file than the manifest names fails the rebuild."""
    world = _filled(make_world)
    plan = world.repush_plan(path="copartitioned")
    manifest, store = world.manifests[1], open_deep_store(world.deep_store)
    file = manifest.files[0]
    writer = BaseFileWriter.open(store, "short.parquet", compressor("none"))
    writer.write(concat(list(read_proven(store, file))).slice(1))
    short = writer.close()
    assert short is not None
    promised = short.model_copy(update={"rows": file.rows, "fingerprint": file.fingerprint})
    parts = tuple(
        sub.model_copy(update={"runs": tuple(tuple(promised if p == file else p for p in run) for run in sub.runs)})
        for sub in manifest.sub_partitions
    )
    lying = manifest.model_copy(update={"sub_partitions": parts})
    store.put("lying.json", lying.to_bytes())
    source = plan.source.model_copy(update={"manifest": lying.ref("lying.json")})
    plan = plan.model_copy(update={"source": source})
    with pytest.raises(Failed) as caught:
        world.build_repush(plan)
    assert (caught.value.code, caught.value.expected) == ("rows_lost", "40 rows")


@pytest.mark.case("rules:R19")
@pytest.mark.parametrize(("path", "name"), [("general", b"base"), ("general", b"feed"), ("copartitioned", b"feed")])
def test_counts_that_agree_by_accident_do_not_pass(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, path: str, name: bytes
) -> None:
    """One row lost and another made twice leave the counts equal; the hashes tell."""
    world = _filled(make_world)
    plan = world.repush_plan(path=path)
    _inject(monkeypatch, plan, _drop_one_make_one_twice(*_two_of_one_partition(world, name)))
    with pytest.raises(Failed) as caught:
        world.build_repush(plan)
    assert caught.value.code == "rows_lost"
    counts = [str(text).split()[0] for text in (caught.value.found, caught.value.expected)]
    assert counts[0] == counts[1]


def _two_of_one_partition(world: World, name: bytes) -> tuple[bytes, bytes]:
    """Two keys of one source: of one feed partition, so that its count stays right."""
    if name == b"base":
        return b"base 00", b"base 01"
    found = [key for key, cell in world.history(world.manifests[1].start, world.ends()) if cell.stamp.partition == 0]
    return found[0], found[1]


@pytest.mark.case("rules:R19")
@pytest.mark.parametrize("path", ["general", "copartitioned"])
def test_a_split_that_did_not_report_fails_the_rebuild(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Each split of the plan must report once: one that is missing, rows and all, is named."""
    world = _filled(make_world)
    plan = world.repush_plan(path=path)
    missing = plan.splits.ranges[0]

    def fault(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        if _kind(rows) == int(Kind.REPORT):
            return [] if missing.id in str(rows.column("value")[0].as_py()) else [rows]
        of_split = pc.equal(rows.column("feed_partition"), pa.scalar(missing.partition))
        return [rows if _kind(rows) == int(Kind.BASE) else rows.filter(pc.invert(of_split))]

    _inject(monkeypatch, plan, fault)
    with pytest.raises(Failed) as caught:
        world.build_repush(plan)
    assert (caught.value.code, caught.value.found) == ("split_missing", [missing.id])


@pytest.mark.case("rules:R19")
@pytest.mark.parametrize("path", ["general", "copartitioned"])
def test_a_split_that_reported_twice_fails_the_rebuild(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A scan whose rows and report come twice is refused."""
    world = _filled(make_world)
    plan = world.repush_plan(path=path)
    _inject(monkeypatch, plan, lambda rows: [rows] if _kind(rows) == int(Kind.BASE) else [rows, rows])
    with pytest.raises(Failed) as caught:
        world.build_repush(plan)
    assert caught.value.code == "split_missing"


def test_a_retried_task_counts_once(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A task that dies after it has written is tried again: its first file is an orphan, its result counts once."""
    world = _filled(make_world)
    flag = tmp_path / "died"
    monkeypatch.setattr(build, "merge_and_write", dying_once(flag))
    plan = world.repush_plan()
    built, directory = world.build_repush(plan)
    assert flag.exists()
    assert built.ledger.counts()["written"] == 80
    named = {file.path for part in built.sub_partitions for file in part.files}
    assert len(set(world.files(directory)) - named) >= 1
    assert len(world.values(world.seal(plan, built, directory))) == 80


def test_a_task_that_goes_on_failing_leaves_nothing(make_world: Callable[..., World]) -> None:
    """A value that cannot be recoded fails the job with the task's own words, and no file is left."""
    world = make_world(compression="zstd")
    world.base({b"k": Cell(Stamp(0, BATCH.encoded), b"no zstd", 1)})
    world.configure(compression="gzip")
    with pytest.raises(Failed, match="cannot be decompressed") as caught:
        world.build_repush(world.repush_plan())
    assert caught.value.code == "corrupt_value"
    assert [path for path in world.files("d1") if path.endswith("parquet")] == []
