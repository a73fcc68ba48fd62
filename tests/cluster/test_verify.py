"""``anew store verify`` and ``Cluster.verify`` on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.runtime.connect import connect
from tests.cluster.commands import Anew


@pytest.mark.case("rules:R19")
def test_a_store_is_proved_equal_through_its_life(anew: Anew, people: Path) -> None:
    """After a push, writes and a repush into sub-partitions with a dictionary all replicas are base ⊕ feeds: exit 0."""
    refused = anew.run_here("store", "verify", "proved")
    assert (refused.code, refused.error["code"]) == (2, "unknown_store")
    anew.create("proved", "hybrid=true", "partitions=2", "rt_partitions=4", "replicas=2")
    refused = anew.run_here("store", "verify", "proved")
    assert (refused.code, refused.error["code"]) == (3, "no_current_version")
    anew.push("proved", people)
    pushed = anew.here("store", "verify", "proved")
    assert pushed["equal"] is True
    assert {replica["node"] for replica in pushed["replicas"]} == {"node-1", "node-2"}
    assert sum(expected["rows"] for expected in pushed["expected"]) == 20
    anew.write("proved", {"key": "p1", "value": {"name": "new", "age": 1}}, {"key": "p2", "delete": True})
    written = anew.here("store", "verify", "proved")
    assert (written["equal"], written["version"], written["differences"]) == (True, 1, [])
    assert sum(expected["tombstones"] for expected in written["expected"]) == 1
    assert written["position"] != pushed["position"]
    anew.here("store", "update", "proved", "--set", "compression=zstd_dict", "--set", "amplification_factor=2")
    anew.here("repush", "proved")
    anew.write("proved", {"key": "p3", "value": {"name": "late", "age": 3}})
    with connect(home=str(anew.home)) as cluster:
        found = cluster.verify("proved")
    assert found.equal
    assert (found.version, found.error, len(found.replicas)) == (2, None, 8)
