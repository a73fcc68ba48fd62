"""The nodes that a home knows of: which are started, which were removed, and what new ones are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.core.errors import InvalidRequest
from anew.runtime.detached import planned_cluster
from anew.runtime.home import ClusterFile, Home
from anew.runtime.settings import ProcessSettings, resolve

_CLUSTER = ClusterFile("dc-0", "127.0.0.1", 7717, {}, 0, {})


def _settings(nodes: int | None) -> ProcessSettings:
    return resolve({} if nodes is None else {"nodes": nodes})


@pytest.mark.parametrize(
    ("present", "removed", "asked", "expected"),
    [
        ([1, 2], [], None, [1, 2]),
        ([1, 2], [], 1, [1]),
        ([1, 2], [], 3, [1, 2, 3]),
        ([2], [1], None, [2]),
        ([2], [1], 2, [2, 3]),
        ([1], [2, 3], 2, [1, 4]),
        ([], [1], 1, [2]),
    ],
)
def test_a_removed_node_is_not_started_again(
    tmp_path: Path, present: list[int], removed: list[int], asked: int | None, expected: list[int]
) -> None:
    """``up`` starts the nodes that there are, makes new ones under new names, and leaves removed ones alone."""
    home = Home(tmp_path)
    cluster = _CLUSTER
    for number in (*present, *removed):
        cluster = cluster.with_node(f"node-{number}")
    for number in removed:
        cluster = cluster.without_node(f"node-{number}")
    home.write_cluster(cluster)
    planned = planned_cluster(_settings(asked), home, ())
    assert planned.nodes == {f"node-{number}": 7717 + number for number in expected}
    assert set(planned.removed) == {f"node-{number}" for number in removed}


def test_a_removed_node_may_be_added_again() -> None:
    """Under its old name and port; a new one gets a name that none had."""
    removed = _CLUSTER.with_node("node-1").without_node("node-1")
    assert (removed.nodes, removed.removed, removed.next_node()) == ({}, ("node-1",), "node-2")
    assert removed.with_node("node-1") == _CLUSTER.with_node("node-1")


@pytest.mark.parametrize(
    "name", ["node", "node-", "node-0", "node-x", "../node-1", "node-1/x", "controller", "node-1001"]
)
def test_other_names_are_refused(name: str) -> None:
    """A name that is no node's says what is expected, and names no other file."""
    with pytest.raises(InvalidRequest) as caught:
        _CLUSTER.with_node(name)
    assert caught.value.code == "bad_node"


def test_each_node_is_asked_for_once(tmp_path: Path) -> None:
    """What the supervisor was asked for is told to it, once."""
    home = Home(tmp_path)
    assert home.asked_nodes() == []
    for _ in range(2):
        home.ask_for_node("node-3")
    assert (home.asked_nodes(), home.asked_nodes()) == (["node-3"], [])
