"""Replicas on a disk in memory behave as they do on RocksDB: the same tests, and what only such a disk can show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anew.storage.memory import NodeMemory
from anew.storage.replica import Replica
from anew.testing.memory.rocks import RocksDisk, rocks_in_memory
from tests.component.storage.test_replica import *  # noqa: F403 - the tests themselves
from tests.component.storage.test_replica import AT, BASE, applied, opened
from tests.component.storage.test_replica_merge import *  # noqa: F403 - the tests themselves


@pytest.fixture(autouse=True)
def disk() -> Iterator[RocksDisk]:
    """The disk of a test."""
    disk = RocksDisk()
    with rocks_in_memory(disk):
        yield disk


@pytest.mark.case("rules:R5", "rules:R17")
def test_a_position_is_seen_only_with_its_data(tmp_path: Path, disk: RocksDisk) -> None:
    """While records are being written, whoever looks sees the position before them: it is what readiness counts."""
    memory = NodeMemory()
    Replica.create(tmp_path / "r", memory, [], BASE).close()
    replica = opened(tmp_path / "r", memory)
    seen: list[tuple[str, int | None, bool]] = []
    disk.point = lambda what: seen.append((what, replica.offset(AT), replica.get(b"a") is not None))
    applied(replica, {b"a": b"1"}, 5)
    assert seen == [("write", 5, False), ("written", 5, True)]
    assert replica.offset(AT) == 6
    replica.close()
