"""The co-partitioned path and the combiner give the very version that the general path gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from anew.codec.compression import compressor
from anew.core.ledger import Ledger
from anew.core.merge import Cell
from anew.core.partition import sub_partition_of
from anew.core.partitioning import partitioner_of
from anew.core.stamp import BATCH, Stamp
from anew.deepstore.open import open_deep_store
from anew.segments.manifest import Manifest
from tests.spark.world import World, otherwise_compressed

_BY_FIRST_BYTE = """
import pyarrow as pa

class ByFirstByte:
    def __init__(self, partitions):
        self.partitions = partitions

    def __call__(self, keys):
        return pa.array([key[0] % self.partitions for key in keys.to_pylist()], pa.int32())
"""
_STEPS: list[dict[str, Any]] = [
    {"partitions": 8},
    {"amplification_factor": 2, "partitions": 4},
    {"partitions": 2, "compression": "zstd", "amplification_factor": 1},
    {"compression": "zstd_dict", "partitions": 4},
]


def _write_some(world: World, chance: random.Random, count: int) -> None:
    for _ in range(count):
        key = b"key %d" % chance.randrange(300)
        world.clock.advance(chance.choice([0, 0, 3]))
        written = chance.choice([None, None, None, world.clock() - chance.randrange(200_000)])
        value = None if chance.random() < 0.25 else b"value " + chance.randbytes(chance.randrange(60))
        world.write(key, value, written)


def _both(world: World, *, combiner: bool) -> tuple[Manifest, Manifest]:
    """The version as both paths build it; the general one becomes current."""
    asked: dict[str, Any] = {"ttl": True, "ttl_seconds": 150, "combiner": combiner, "max_records": 70}
    manifests = []
    for path in ("copartitioned", "general"):
        plan = world.repush_plan(path=path, **asked)
        built, directory = world.build_repush(plan)
        manifests.append(world.seal(plan, built, directory) if path == "general" else _as_manifest(world, plan, built))
    return manifests[0], manifests[1]


def _as_manifest(world: World, plan: Any, built: Any) -> Manifest:
    """A manifest that is not sealed: just to look into its files."""
    some = next(iter(world.manifests.values()))
    changes = {
        "config": plan.target.config,
        "sub_partitions": built.sub_partitions,
        "ledger": built.ledger,
        "dictionary": built.dictionary,
    }
    return some.model_copy(update=changes)


@pytest.mark.case("stores:C6", "stores:E1", "stores:E3", "stores:J6")
@pytest.mark.parametrize("rt_partitions", [3, 8])
def test_both_paths_make_the_same_version(make_world: Callable[..., World], rt_partitions: int) -> None:
    """Same rows, order, hashes and account, through a chain of reconfigurations with tombstones and time to live.

    With 3 feed partitions their records are shuffled, with 8 each task reads its own.
    """
    chance = random.Random(1)
    world = make_world(partitions=4, rt_partitions=rt_partitions, tombstone_grace_seconds=100)
    world.base({b"key %d" % n: Cell(Stamp(0, BATCH.encoded), b"base %d" % n, 1) for n in range(0, 300, 2)})
    gone = Ledger()
    for number, step in enumerate(_STEPS):
        _write_some(world, chance, 250)
        world.configure(**step)
        ours, general = _both(world, combiner=number % 2 == 1)
        assert world.units(ours) == world.units(general)
        assert ours.ledger == general.ledger
        assert general.ledger.balances
        _assert_placed(world, general)
        gone += general.ledger
    assert all(gone.counts()[entry] > 0 for entry in ("superseded", "expired", "deleted", "skipped", "combined"))


def _assert_placed(world: World, manifest: Manifest) -> None:
    """Each key is in the sub-partition that the configuration names, in ascending order."""
    partitioner = partitioner_of(manifest.config)
    for (partition, sub), rows in world.units(manifest).items():
        keys = [row["key"] for row in rows]
        assert keys == sorted(set(keys))
        assert set(partitioner.of_all(pa.array(keys, pa.binary())).tolist()) <= {partition}
        assert {sub_partition_of(key, manifest.config.amplification_factor) for key in keys} <= {sub}


@pytest.mark.case("stores:C6", "rules:R6")
def test_a_put_and_a_delete_in_different_splits_end_alike_with_and_without_combiner(
    make_world: Callable[..., World],
) -> None:
    """The tombstone of a later split hides the put of an earlier one; plan and ledger say what the combiner saved."""
    world = make_world(rt_partitions=1)
    world.base({})
    for number in range(60):
        world.write(b"k", b"v%d" % number)
        world.write(b"other", b"v%d" % number)
    world.write(b"k", None)
    found = []
    for combiner in (False, True):
        plan = world.repush_plan(max_records=50, combiner=combiner)
        assert plan.splits.combiner == combiner
        assert any("combiner" in why for why in plan.why) == combiner
        built, directory = world.build_repush(plan)
        found.append(built.ledger.counts())
        manifest = _as_manifest(world, plan, built)
        assert world.values(manifest) == {b"k": None, b"other": b"v59"}
        del directory
    assert found[1].pop("combined") > 100
    assert found[0].pop("combined") == 0
    assert found[0] == found[1]


@pytest.mark.case("stores:J6", "stores:H6")
def test_a_partitioner_of_ones_own_places_keys_in_spark(make_world: Callable[..., World]) -> None:
    """3 → 6 partitions and a partitioner of one's own: each key is where the new function says, values are equal."""
    world = make_world(partitions=3)
    values = {b"%c key %d" % (97 + n % 26, n): b"value %d" % n for n in range(200)}
    world.base({key: Cell(Stamp(0, BATCH.encoded), value, 1) for key, value in values.items()})
    world.configure(partitions=6, partitioner="mine:ByFirstByte", partitioner_source=_BY_FIRST_BYTE)
    plan = world.repush_plan()
    assert (plan.path, "partitioner changes" in " ".join(plan.why)) == ("general", True)
    manifest = world.seal(plan, *world.build_repush(plan))
    assert world.values(manifest) == values
    _assert_placed(world, manifest)
    assert world.repush_plan().path == "copartitioned", "the same function and count leave every file where it is"


@pytest.mark.case("stores:J6")
def test_a_number_out_of_range_fails_the_job_and_names_the_key(make_world: Callable[..., World]) -> None:
    """Spark takes ids silently modulo n: the expression itself fails, and what served goes on."""
    world = make_world(partitions=3)
    world.base({b"key": Cell(Stamp(0, BATCH.encoded), b"v", 1)})
    wrong = _BY_FIRST_BYTE.replace("% self.partitions", "")
    world.configure(partitioner="mine:ByFirstByte", partitioner_source=wrong)
    with pytest.raises(Exception, match=b"key".hex()) as caught:
        world.build_repush(world.repush_plan())
    assert "[0, 3)" in str(caught.value)


@pytest.mark.case("stores:E3", "stores:E4")
def test_a_dictionary_is_trained_or_carried_over(make_world: Callable[..., World]) -> None:
    """By default a repush trains a new dictionary; told not to, it carries the source's over byte for byte."""
    world = make_world(compression="zstd_dict")
    chance = random.Random(3)
    words = [b"alpha", b"beta", b"gamma", b"delta", b"epsilon"]
    world.base({}, dictionary=b"")
    for number in range(3_000):
        world.write(b"key %d" % number, b" ".join(chance.choice(words) for _ in range(12)))
    trained = world.repush()
    dictionaries = [_dictionary(world, trained)]
    assert len(dictionaries[0]) > 200
    for _ in range(500):
        world.write(b"key %d" % chance.randrange(3_000), chance.randbytes(30).hex().encode())
    carried = world.repush(new_dictionary=False)
    dictionaries.append(_dictionary(world, carried))
    again = world.repush()
    dictionaries.append(_dictionary(world, again))
    assert dictionaries[0] == dictionaries[1] != dictionaries[2]
    assert world.values(carried) == world.values(again)
    world.configure(compression="none")
    assert world.values(world.repush()) == world.values(carried)


@pytest.mark.case("stores:E4")
def test_two_rows_are_too_few_to_train_on(make_world: Callable[..., World]) -> None:
    """With too little data the dictionary is empty, the frames are plain zstd, and every value reads."""
    world = make_world()
    world.base({b"a": Cell(Stamp(0), b"one", 1), b"b": Cell(Stamp(0), b"two", 1)})
    world.configure(compression="zstd_dict")
    manifest = world.repush()
    assert _dictionary(world, manifest) == b""
    assert world.values(manifest) == {b"a": b"one", b"b": b"two"}


def _dictionary(world: World, manifest: Manifest) -> bytes:
    assert manifest.dictionary is not None
    return open_deep_store(world.deep_store).get(manifest.dictionary)


@pytest.mark.case("stores:E2")
def test_a_copartitioned_repush_leaves_stored_bytes_alone(make_world: Callable[..., World]) -> None:
    """Same codec: base values pass untouched, also those that this codec would write otherwise."""
    world = make_world(compression="zstd")
    foreign = otherwise_compressed(b"v")
    world.base({b"k": Cell(Stamp(0, BATCH.encoded), foreign, 1)}, plain={b"k": Cell(Stamp(0, BATCH.encoded), b"v", 1)})
    world.write(b"other", b"v")
    plan = world.repush_plan()
    assert plan.path == "copartitioned"
    built, _ = world.build_repush(plan)
    stored = {
        row["key"]: row["value"] for rows in world.units(_as_manifest(world, plan, built)).values() for row in rows
    }
    assert stored[b"k"] == foreign
    assert stored[b"other"] != b"v"


@pytest.mark.case("stores:C2", "rules:R19")
@pytest.mark.parametrize("path", ["general", "copartitioned"])
def test_a_plain_repush_keeps_the_fingerprint(make_world: Callable[..., World], path: str) -> None:
    """Recompression and other partitions leave the fingerprint alone; a single changed row does not."""
    world = make_world(partitions=2, compression="gzip")
    cells = {b"key %d" % n: Cell(Stamp(n % 3, BATCH.encoded), b"value %d" % n, 1) for n in range(50)}
    compressed = compressor("gzip")
    stored = {
        key: Cell(cell.stamp, compressed.compress(cell.value or b""), cell.schema_id) for key, cell in cells.items()
    }
    source = world.base(stored, plain=cells)
    world.configure(partitions=4, compression="zstd", amplification_factor=2)
    target = world.repush(path=path)
    assert world.cells(target) == cells
    fingerprints = [sum(file.fingerprint for file in manifest.files) % (1 << 64) for manifest in (source, target)]
    assert fingerprints[0] == fingerprints[1] != 0
    world.write(b"key 1", b"another")
    changed = world.repush(path=path)
    assert sum(file.fingerprint for file in changed.files) % (1 << 64) != fingerprints[0]
