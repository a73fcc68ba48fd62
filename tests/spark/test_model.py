"""A whole history through push and repushes equals the merge, record by record."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anew.core.merge import merge_all
from tests.spark.world import World

_KEYS = [f"key {number}" for number in range(150)]
_SETTINGS: list[dict[str, Any]] = [
    {"partitions": 5, "compression": "zstd"},
    {"partitions": 2, "compression": "gzip"},
    {"partitions": 2},
]
_ROUND_RECORDS = 700


@pytest.mark.case("stores:I1", "rules:R6", "rules:R7")
@pytest.mark.parametrize("seed", [1, 2])
def test_push_and_repushes_equal_the_merge(make_world: Callable[..., World], tmp_path: Path, seed: int) -> None:
    """After a push and a chain of repushes each key holds the cell that the merge of all its records gives."""
    chance = random.Random(seed)
    world = make_world(partitions=4, rt_partitions=3, compression="none")
    source = tmp_path / "base.csv"
    source.write_text("id,text\n" + "".join(f"{key},base\n" for key in _KEYS[::2]))
    manifest = world.push(source)
    known = {key: [cell] for key, cell in world.cells(manifest).items()}
    for settings in _SETTINGS:
        _write_some(world, chance)
        ends = world.ends()
        for key, cell in world.history(manifest.start, ends):
            known.setdefault(key, []).append(cell)
        world.configure(**settings)
        manifest = world.repush(max_records=chance.choice([50, 400, 10_000]))
        assert world.cells(manifest) == {key: merge_all(cells) for key, cells in known.items()}
        assert manifest.ledger.balances


def _write_some(world: World, chance: random.Random) -> None:
    for _ in range(_ROUND_RECORDS):
        key = chance.choice(_KEYS).encode()
        world.clock.advance(chance.choice([0, 0, 1, 5]))
        written = chance.choice([None, None, world.clock() - chance.randrange(10), world.clock()])
        value = None if chance.random() < 0.2 else chance.randbytes(chance.randrange(40))
        world.write(bytes([len(key) * 2]) + key, value, written)
