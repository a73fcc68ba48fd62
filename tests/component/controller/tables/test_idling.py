"""What a round costs a controller that has nothing to do."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from anew.catalog.engine import Database
from tests.component.controller.tables.tables_harness import Tables


def _looks_of_a_round(tables: Tables) -> int:
    """How often an idle round asks the database, of a controller that has listened for long enough to judge."""
    tables.pass_seconds(60)
    tables.settle(3)
    looks = 0
    read = Database.read

    def counted(database: Database, work: Any) -> Any:
        nonlocal looks
        looks += 1
        return read(database, work)

    with patch.object(Database, "read", counted):
        tables.cluster.reconciler.round()
    return looks


def test_an_idle_round_asks_no_more_often_for_more_stores_and_tables(tables: Tables) -> None:
    """Whatever there is of one kind is read at once; so a controller of many rests as one of few does."""
    before = _looks_of_a_round(tables)
    for number in range(3):
        tables.create(f"trips_{number}")
        tables.load("a", "b", name=f"trips_{number}")
        tables.cluster.create(f"flights_{number}")
    after = _looks_of_a_round(tables)
    assert before == after
