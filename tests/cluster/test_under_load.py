"""A repush while writers write and a reader reads: nothing is lost, nothing comes back, no read fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.account import under_load
from tests.cluster.commands import Anew, wait_until


@pytest.mark.case("stores:H6", "stores:I1", "stores:I2", "stores:H9", "rules:R17")
def test_a_repush_under_load_keeps_every_write_and_every_delete(anew: Anew, people: Path) -> None:
    """Partitions and compression change under load; both versions hold just what was acknowledged."""
    anew.create("busy", "hybrid=true", "partitions=2", "rt_partitions=6")
    anew.push("busy", people)
    with under_load(anew, "busy") as account:
        account.await_writes()
        anew.here("store", "update", "busy", "--set", "partitions=5", "--set", "compression=zstd")
        done = anew.here("repush", "busy")
        account.await_writes()
        wait_until(lambda: 2 in account.reader.versions, "the reader to see the new version")
        anew.here("rollback", "busy")
        wait_until(lambda: account.reader.versions[-1] == 1, "the reader to go back")
    account.check()
    anew.here("swap", "busy", "2")
    account.check()
    assert account.reader.versions == [1, 2, 1]
    assert done["ledger"]["read"] == done["ledger"]["superseded"] + done["ledger"]["written"]
    assert done["ledger"]["superseded"] > 0
