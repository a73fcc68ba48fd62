"""The write-buffer budget is shared by all instances of a node, however many those are (rule R25)."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.storage.memory import MIB, NodeMemory
from anew.storage.rocks import Database
from tests.component.node.harness import wait_for

INSTANCES, ROUNDS, RECORDS = 24, 10, 30


@pytest.mark.case("rules:R25")
def test_many_instances_with_few_writes_each_stay_within_the_budget(tmp_path: Path) -> None:
    """What is written stays in memory while it is small in all: no write of some records becomes a file."""
    memory = NodeMemory(write_buffer_bytes=8 * MIB)
    databases = [
        Database(str(tmp_path / f"{number}"), memory.options(), memory.small_options()) for number in range(INSTANCES)
    ]
    for number in range(ROUNDS):
        for database in databases:
            keys = [b"key-%d-%d" % (number, key) for key in range(RECORDS)]
            database.write(keys, [b"cell" * 10] * RECORDS, [(b"position", b"%d" % number)])
    assert list(tmp_path.rglob("*.sst")) == []
    for database in databases:
        assert database.get(b"key-0-0") == b"cell" * 10
        database.close()


def test_a_budget_that_is_used_up_is_emptied_into_files(tmp_path: Path) -> None:
    """More than the budget is not kept in memory, also where no instance by itself has much."""
    memory = NodeMemory(write_buffer_bytes=MIB)
    databases = [Database(str(tmp_path / f"{number}"), memory.options(), memory.small_options()) for number in range(4)]
    for number in range(20):
        for database in databases:
            database.write([b"key-%d" % number], [b"c" * 64 * 1024])
    wait_for("a file", lambda: list(tmp_path.rglob("*.sst")))
    for database in databases:
        assert database.get(b"key-0") == b"c" * 64 * 1024
        database.close()
