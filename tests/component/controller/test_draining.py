"""Taking nodes out of service: what they hold moves first, then they may be removed."""

from __future__ import annotations

from functools import partial

import pytest

from anew.api.models import DrainNode
from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.catalog.change import Change, NodeRecord
from anew.core.errors import NotFound, Refused
from tests.component.controller.harness import Cluster, node_report, plain, refused


def _drain(cluster: Cluster, node: str = "node-1", *, undo: bool = False, force: bool = False) -> list[str]:
    return list(cluster.client.drain_node(node, DrainNode(undo=undo, force=force)).holds)


def _serving(cluster: Cluster) -> list[int]:
    """A store of two versions with four partitions, each on one of two nodes; the partitions on node-1."""
    cluster.create(partitions=4)
    cluster.serve(cluster.push_plan())
    cluster.serve(cluster.repush_plan())
    return [p for p, nodes in cluster.there(2).assignment.items() if nodes == ("node-1",)]


def _holders(cluster: Cluster, number: int) -> set[str]:
    return {node for nodes in cluster.there(number).assignment.values() for node in nodes}


def _loading(replica: ReplicaReport) -> ReplicaReport:
    return replica.model_copy(update={"state": ReplicaState.LOADING})


@pytest.mark.case("rules:R25")
def test_a_drained_node_is_left_when_others_are_ready(cluster: Cluster) -> None:
    """Successors are told at once; the node serves on until they apply, and then holds nothing, backups included."""
    mine = _serving(cluster)
    assert sorted(_drain(cluster)) == sorted(f"flights_v{v}/{p}" for v in (1, 2) for p in mine)
    for _ in range(3):
        cluster.report("node-1")
        cluster.report("node-2", lambda r: _loading(r) if r.partition in mine else r)
        cluster.round()
        for number in (1, 2):
            after = cluster.there(number).assignment
            assert all(after[p] == ("node-1", "node-2") for p in mine), "the predecessor stays"
            assert all(after[p] == ("node-2",) for p in after if p not in mine)
    assert cluster.client.routing("flights").versions[2].replicas[mine[0]] == ("node-1",)
    # Loaded, it holds the base alone: readers would go back, and see what was deleted.
    cluster.report("node-2", lambda r: r.model_copy(update={"arrived": False}))
    assert cluster.client.routing("flights").versions[2].replicas[mine[0]] == ("node-1",)
    cluster.report("node-2")
    assert cluster.client.routing("flights").versions[2].replicas[mine[0]] == ("node-1", "node-2")
    # One version after the other: a report says of one revision of the store what a node was told.
    cluster.settle(2)
    assert (_holders(cluster, 1), _holders(cluster, 2), _drain(cluster)) == ({"node-2"}, {"node-2"}, [])
    desired = cluster.client.desired("node-1", "dc-0")
    assert desired is not None
    assert desired.stores == ()


@pytest.mark.case("rules:R25")
def test_what_a_node_said_before_it_was_let_go_counts_no_more(cluster: Cluster) -> None:
    """A node that is wanted again is ready only when it says so of what it was told since: it may be dropping all."""
    mine = _serving(cluster)
    _drain(cluster)
    cluster.settle(3)
    assert _holders(cluster, 2) == {"node-2"}
    _drain(cluster, undo=True)
    _drain(cluster, "node-2")
    for _ in range(3):
        cluster.report("node-1", lambda r: r.model_copy(update={"store_revision": r.store_revision - 1}))
        cluster.report("node-2")
        cluster.round()
        assert all(cluster.there(2).assignment[p] == ("node-2", "node-1") for p in mine)
    cluster.settle(3)
    assert _holders(cluster, 2) == {"node-1"}


@pytest.mark.case("rules:R25")
def test_one_replica_may_leave_before_another(cluster: Cluster) -> None:
    """Each partition's replica is let go as soon as its own successor is ready, not before."""
    mine = _serving(cluster)
    _drain(cluster)
    cluster.settle(1)
    for _ in range(2):
        cluster.report("node-1")
        cluster.report("node-2", lambda r: _loading(r) if r.partition == mine[1] else r)
        cluster.round()
    after = cluster.there(2).assignment
    assert (after[mine[0]], after[mine[1]]) == (("node-2",), ("node-1", "node-2"))


def test_new_versions_avoid_a_drained_node(cluster: Cluster) -> None:
    """What is begun from now on is put on the others alone; with none left nothing is begun."""
    _serving(cluster)
    _drain(cluster)
    cluster.serve(cluster.push_plan())
    assert _holders(cluster, 3) == {"node-2"}
    assert refused(Refused, lambda: _drain(cluster, "node-2")).code == "too_few_nodes"
    _drain(cluster, "node-2", force=True)
    plan, before = cluster.push_plan(), cluster.store()
    error = refused(Refused, lambda: cluster.begin(plan))
    assert (error.code, error.expected) == ("no_nodes", "at least one that is alive and not drained")
    assert cluster.store() == before
    cluster.settle(3)
    assert _holders(cluster, 3) == {"node-2"}, "with nowhere to go, replicas stay where they are"


def test_redundancy_is_not_taken_away_unasked(cluster: Cluster) -> None:
    """With two replicas on two nodes neither is drained, unless forced or a third one can take its place."""
    cluster.create(partitions=2, replicas=2)
    cluster.serve(cluster.push_plan())
    before = cluster.there(1).assignment
    for node in ("node-1", "node-2"):
        error = refused(Refused, partial(_drain, cluster, node))
        assert (error.code, error.expected) == ("too_few_nodes", "at least 2 other nodes")
        assert f"anew node drain {node} --force" in str(error.hint)
    cluster.settle(2)
    assert (cluster.there(1).assignment, [n.drained for n in cluster.client.nodes()]) == (before, [False, False])
    cluster.client.report(node_report("node-3"))
    assert sorted(_drain(cluster)) == ["flights_v1/0", "flights_v1/1"]
    assert sorted(_drain(cluster)) == ["flights_v1/0", "flights_v1/1"], "asked again, it is answered as before"
    _drain(cluster, "node-2", force=True)
    assert [n.drained for n in cluster.client.nodes()] == [True, True, False]


def test_a_node_that_is_silent_takes_nothing(cluster: Cluster) -> None:
    """Another node that does not report is nowhere to go."""
    _serving(cluster)
    cluster.clock.advance(60_000)
    cluster.report("node-1")
    assert refused(Refused, lambda: _drain(cluster)).code == "too_few_nodes"
    cluster.report("node-2")
    assert _drain(cluster)


def test_a_version_in_the_making_moves_as_well(cluster: Cluster) -> None:
    """Drained while a version loads on it, the node's share is loaded by others, and the version gets ready there."""
    cluster.create(partitions=4)
    rebuild = cluster.begin(cluster.push_plan())
    cluster.seal(rebuild)
    _drain(cluster)
    cluster.settle()
    assert (cluster.status(1), _holders(cluster, 1)) == ("current", {"node-2"})


def test_a_drain_can_be_undone(cluster: Cluster) -> None:
    """Used again before its replicas moved, a node keeps them; afterwards it gets some of what is made from then on."""
    mine = _serving(cluster)
    before = cluster.there(2).assignment
    _drain(cluster)
    assert [(node.id, node.drained) for node in cluster.client.nodes()] == [("node-1", True), ("node-2", False)]
    assert len(_drain(cluster, undo=True)) == 2 * len(mine)
    cluster.settle(2)
    assert (cluster.there(2).assignment, [n.drained for n in cluster.client.nodes()]) == (before, [False, False])
    cluster.serve(cluster.push_plan())
    assert _holders(cluster, 3) == {"node-1", "node-2"}


def test_what_a_node_holds_keeps_it(cluster: Cluster) -> None:
    """A removal is refused with what is still to move, drained or not, and nothing is changed."""
    mine = _serving(cluster)
    for _ in range(2):
        error = refused(Refused, lambda: cluster.client.remove_node("node-1"))
        assert (error.code, "anew node drain node-1" in str(error.hint)) == ("node_holds_replicas", True)
        assert set(error.found) == {f"flights_v{v}/{p}" for v in (1, 2) for p in mine}
        assert [node.id for node in cluster.client.nodes()] == ["node-1", "node-2"]
        _drain(cluster)
    cluster.report("node-1")


@pytest.mark.case("rules:R25")
def test_a_node_that_reports_while_it_is_removed_stays_removed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that was let in just before the removal does not bring the node back: it is refused as well."""
    _serving(cluster)
    _drain(cluster)
    cluster.settle(3)
    catalog = cluster.context.catalog
    put_node = catalog.put_node

    def removed_meanwhile(record: NodeRecord) -> None:
        monkeypatch.setattr(catalog, "put_node", put_node)
        cluster.client.remove_node("node-1")
        put_node(record)

    monkeypatch.setattr(catalog, "put_node", removed_meanwhile)
    assert refused(Refused, lambda: cluster.client.report(node_report("node-1"))).code == "node_removed"
    assert [node.id for node in cluster.client.nodes()] == ["node-2"]


def test_a_removed_node_is_forgotten_until_it_is_wanted_again(cluster: Cluster) -> None:
    """It is listed no more and its reports are refused; with --undo it reports and is given replicas again."""
    _serving(cluster)
    _drain(cluster)
    cluster.settle(3)
    assert plain(cluster.client.remove_node("node-1")) == {"node": "node-1", "removed": True}
    assert [node.id for node in cluster.client.nodes()] == ["node-2"]
    assert "node-1" not in cluster.client.routing("flights").nodes
    error = refused(Refused, lambda: cluster.client.report(node_report("node-1")))
    assert (error.code, error.hint) == ("node_removed", "to use it again: anew node add node-1")
    assert [node.id for node in cluster.client.nodes()] == ["node-2"]
    assert cluster.client.status().healthy
    assert refused(NotFound, lambda: cluster.client.remove_node("node-1")).code == "unknown_node"
    assert refused(NotFound, lambda: _drain(cluster)).code == "unknown_node"
    assert _drain(cluster, undo=True) == []
    cluster.client.report(node_report("node-1"))
    assert [(node.id, node.drained) for node in cluster.client.nodes()] == [("node-1", False), ("node-2", False)]
    cluster.serve(cluster.push_plan())
    assert _holders(cluster, 3) == {"node-1", "node-2"}


def test_a_report_that_crosses_a_removal_does_not_bring_the_node_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that goes on reporting until the very moment of its removal is gone afterwards."""
    catalog = cluster.context.catalog
    commit = catalog.commit

    def crossed(change: Change) -> bool:
        if change.operation.what == "remove node":
            monkeypatch.setattr(catalog, "commit", commit)
            cluster.client.report(node_report("node-1"))
        return commit(change)

    monkeypatch.setattr(catalog, "commit", crossed)
    cluster.client.remove_node("node-1")
    assert [node.id for node in cluster.client.nodes()] == ["node-2"]
    assert refused(Refused, lambda: cluster.client.report(node_report("node-1"))).code == "node_removed"


def test_a_report_that_comes_late_does_not_show_the_removed_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the record that such a report brings back and its refusal nobody sees the node."""
    catalog, seen = cluster.context.catalog, list[list[str]]()
    put = catalog.put_node

    def late(record: NodeRecord) -> None:
        monkeypatch.setattr(catalog, "put_node", put)
        cluster.client.remove_node("node-1")
        put(record)
        seen.append([node.id for node in cluster.client.nodes()])

    monkeypatch.setattr(catalog, "put_node", late)
    assert refused(Refused, lambda: cluster.client.report(node_report("node-1"))).code == "node_removed"
    assert seen == [["node-2"]]
    assert [node.id for node in cluster.client.nodes()] == ["node-2"]


def test_an_unknown_node_is_not_found(cluster: Cluster) -> None:
    """Draining, undoing or removing a node that never reported is refused with the nearest name."""
    for act in (
        lambda: _drain(cluster, "nod-1"),
        lambda: _drain(cluster, "nod-1", undo=True),
        lambda: cluster.client.remove_node("nod-1"),
    ):
        error = refused(NotFound, act)
        assert (error.code, error.hint) == ("unknown_node", "did you mean node-1?")
    assert cluster.context.catalog.flags() == {}


def test_of_two_drains_at_once_one_looks_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would leave the other's node alone: the second one to commit sees the first, and is refused."""
    _serving(cluster)
    commit = cluster.context.catalog.commit
    others = iter(["node-2"])

    def meanwhile(change: Change) -> None:
        if change.operation.what == "drain node":
            for other in others:
                _drain(cluster, other)
        commit(change)

    monkeypatch.setattr(cluster.context.catalog, "commit", meanwhile)
    assert refused(Refused, lambda: _drain(cluster, "node-1")).code == "too_few_nodes"
    monkeypatch.undo()
    assert [node.drained for node in cluster.client.nodes()] == [False, True]
