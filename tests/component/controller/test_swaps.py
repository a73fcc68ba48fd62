"""Swap, rollback and what a rebuild does when somebody was there first."""

from __future__ import annotations

from typing import Any

import pytest

from anew.api.stores.replicas import ReplicaState
from anew.api.stores.requests import RollBack, Swap
from anew.catalog.change import Change, PutStore
from anew.core.errors import InvalidRequest, NotFound, Refused
from anew.core.stores.planning import RepushRequest
from anew.core.stores.properties import RepushProperties
from tests.component.controller.harness import Cluster, plain, refused


def _two_versions(cluster: Cluster) -> None:
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.pass_seconds(10)
    cluster.serve(cluster.repush_plan())


@pytest.mark.case("stores:H9")
def test_a_rollback_serves_the_version_before(cluster: Cluster) -> None:
    """Readers get the backup, which applied the feeds all the time; the other is kept, a source only when named."""
    _two_versions(cluster)
    answer = cluster.client.roll_back("flights", RollBack())
    assert plain(answer)["done"] == {"dc-0": {"before": 2, "after": 1}}
    assert (cluster.store().current, cluster.status(1), cluster.status(2)) == ({"dc-0": 1}, "current", "rolled_back")
    for number in (1, 2):
        assert cluster.version(number).feeds == (cluster.store().feeds[0].id,)
        desired = cluster.client.desired("node-1", "dc-0")
        assert desired is not None
        assert number in [v.number for v in desired.stores[0].versions]
    assert cluster.repush_plan().source.version == 1
    named = RepushProperties(input_topic="flights_v2")
    assert refused(Refused, lambda: cluster.repush_plan(request=RepushRequest(named))).code == "not_serving"
    allowed = RepushRequest(named, allow_not_serving=True)
    assert cluster.repush_plan(request=allowed).source.version == 2
    week_seconds = cluster.store().config.backup_retention_seconds
    cluster.pass_seconds(week_seconds - 1)
    cluster.settle(1)
    assert cluster.status(2) == "rolled_back"
    cluster.pass_seconds(1)
    cluster.settle(1)
    assert cluster.status(2) == "retired"


@pytest.mark.case("stores:H9")
def test_one_may_go_back_and_forth(cluster: Cluster) -> None:
    """Rolled back and swapped forward again, as often as one likes, both versions stay; a third goes on counting."""
    _two_versions(cluster)
    for _ in range(2):
        cluster.client.roll_back("flights", RollBack())
        assert plain(cluster.swap(2))["done"] == {"dc-0": {"before": 1, "after": 2}}
        assert (cluster.status(1), cluster.status(2)) == ("backup", "current")
    assert cluster.serve(cluster.repush_plan()) == 3
    back = cluster.client.roll_back("flights", RollBack(to=1))
    assert plain(back)["done"] == {"dc-0": {"before": 3, "after": 1}}


def test_moves_that_cannot_be_are_refused(cluster: Cluster) -> None:
    """No backup, the current version, an unknown one, an unknown fabric: refused, and nothing moves."""
    cluster.create()
    assert refused(Refused, lambda: cluster.client.roll_back("flights", RollBack())).code == "no_backup"
    cluster.serve(cluster.push_plan())
    before = cluster.store()
    assert refused(Refused, lambda: cluster.client.roll_back("flights", RollBack())).code == "no_backup"
    assert refused(Refused, lambda: cluster.swap(1)).code == "already_current"
    assert refused(NotFound, lambda: cluster.swap(7)).code == "unknown_version"
    elsewhere = Swap(version=1, fabrics=("dc-9",))
    assert refused(InvalidRequest, lambda: cluster.client.swap("flights", elsewhere)).code == "unknown_fabric"
    rebuild = cluster.begin(cluster.repush_plan())
    assert refused(Refused, lambda: cluster.swap(2)).code == "bad_transition"
    cluster.client.kill_rebuild(rebuild.id)
    assert cluster.store().current == before.current


def test_a_dry_run_moves_nothing(cluster: Cluster) -> None:
    """What a swap or rollback would do is answered as if it were done, refusals included, and nothing is changed."""
    _two_versions(cluster)
    before = cluster.store()
    answer = cluster.client.roll_back("flights", RollBack(dry_run=True))
    assert (answer.dry_run, plain(answer)["done"]) == (True, {"dc-0": {"before": 2, "after": 1}})
    dry = Swap(version=2, dry_run=True)
    assert refused(Refused, lambda: cluster.client.swap("flights", dry)).code == "already_current"
    assert cluster.store() == before


@pytest.mark.case("rules:R14")
def test_a_rebuild_does_not_undo_a_rollback(cluster: Cluster) -> None:
    """Somebody rolls back while a repush runs: its version is deferred, says why, and only a swap brings it in."""
    _two_versions(cluster)
    rebuild = cluster.begin(cluster.repush_plan())
    cluster.client.roll_back("flights", RollBack())
    cluster.seal(rebuild)
    cluster.settle()
    assert (cluster.store().current, cluster.status(3)) == ({"dc-0": 1}, "deferred")
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, "planned from version 2, but 1 is current" in str(view.error)) == ("partly", True)
    problems = [(p.what, p.hint) for p in cluster.client.status().problems]
    assert problems == [
        (f"flights_v3 waits to be swapped: {cluster.version(3).error}", "anew swap flights 3"),
    ]
    cluster.swap(3)
    assert (cluster.store().current, cluster.version(3).error) == ({"dc-0": 3}, None)
    assert cluster.client.status().healthy


@pytest.mark.case("rules:R14")
def test_without_the_condition_the_pointer_would_jump(cluster: Cluster) -> None:
    """With the version that its plan saw still current, the same rebuild swaps."""
    _two_versions(cluster)
    rebuild = cluster.begin(cluster.repush_plan())
    cluster.client.roll_back("flights", RollBack())
    cluster.swap(2)
    cluster.seal(rebuild)
    cluster.settle()
    assert (cluster.store().current, cluster.client.rebuild(rebuild.id).status) == ({"dc-0": 3}, "succeeded")


@pytest.mark.case("rules:R9")
def test_a_swap_never_forgets_a_feed(cluster: Cluster) -> None:
    """A backup that does not apply a feed of the version that serves is refused, and so is going back to it."""
    _two_versions(cluster)
    store = cluster.store()
    backup = cluster.version(1).model_copy(update={"feeds": ()})
    forgetful = store.model_copy(update={"versions": (backup, cluster.version(2))})
    operation = cluster.context.operation("feed lost", "flights", "test")
    cluster.context.catalog.commit(Change(operation, (PutStore(forgetful, store.revision),)))
    for act in (lambda: cluster.client.roll_back("flights", RollBack()), lambda: cluster.swap(1)):
        error = refused(Refused, act)
        assert (error.code, error.expected) == ("feeds_missing", [store.feeds[0].id])
    assert cluster.store().current == {"dc-0": 2}


@pytest.mark.case("rules:R17")
def test_what_clients_see_never_goes_back(cluster: Cluster) -> None:
    """The routing's revision grows with every swap and rollback, so that an older answer is recognised as such."""
    _two_versions(cluster)
    seen = [cluster.client.routing("flights")]
    cluster.client.roll_back("flights", RollBack())
    seen.append(cluster.client.routing("flights"))
    cluster.swap(2)
    seen.append(cluster.client.routing("flights"))
    assert [routing.current for routing in seen] == [2, 1, 2]
    revisions = [routing.revision for routing in seen]
    assert revisions == sorted(set(revisions))
    assert sorted(seen[-1].versions) == [1, 2]
    assert seen[-1].nodes == {"node-1": "http://node-1:1", "node-2": "http://node-2:1"}
    assert seen[-1].feed == cluster.store().feeds[0]


def test_a_rollback_asks_for_a_loaded_replica_of_each_partition(cluster: Cluster) -> None:
    """Where no node answers reads of a partition the rollback is refused, unless it is forced; lag does not stop it."""
    _two_versions(cluster)
    for node in cluster.nodes:
        cluster.report(node, lambda replica: None if replica.version == 1 else replica)
    error = refused(Refused, lambda: cluster.client.roll_back("flights", RollBack()))
    assert (error.code, cluster.store().current) == ("not_loaded", {"dc-0": 2})
    dry = refused(Refused, lambda: cluster.client.roll_back("flights", RollBack(dry_run=True)))
    assert dry.code == "not_loaded"
    bases = {"fresh": True, "arrived": False}
    for node in cluster.nodes:
        cluster.report(node, lambda replica: replica.model_copy(update=bases if replica.version == 1 else {}))
    assert refused(Refused, lambda: cluster.client.roll_back("flights", RollBack())).code == "not_loaded"
    late = {"lag_records": 70_000, "lag_ms": 90_000}
    for node in cluster.nodes:
        cluster.report(node, lambda replica: replica.model_copy(update=late if replica.version == 1 else {}))
    answer = cluster.client.roll_back("flights", RollBack())
    told = {"replicas_missing": 0, "lag_records": 70_000, "lag_seconds": 90.0}
    assert (plain(answer)["loaded"], cluster.store().current) == ({"dc-0": told}, {"dc-0": 1})


def test_a_forced_rollback_needs_no_replica(cluster: Cluster) -> None:
    """In an incident somebody may know better: forced, the version becomes current, and nodes load it then."""
    _two_versions(cluster)
    for node in cluster.nodes:
        cluster.report(node, lambda replica: None if replica.version == 1 else replica)
    cluster.client.roll_back("flights", RollBack(force=True))
    assert cluster.store().current == {"dc-0": 1}


@pytest.mark.parametrize(
    "lacks",
    [{"state": ReplicaState.LOADING}, {"lag_records": 2_000_000}, {"lag_ms": 3_600_000}],
    ids=["not loaded", "records behind", "late"],
)
def test_a_swap_by_hand_asks_for_what_the_automatic_one_asks_for(cluster: Cluster, lacks: dict[str, Any]) -> None:
    """A version whose replicas are not all loaded and within the lag limits does not become current unforced."""
    _two_versions(cluster)
    cluster.client.roll_back("flights", RollBack())
    for node in cluster.nodes:
        cluster.report(node, lambda replica: replica.model_copy(update=lacks if replica.version == 2 else {}))
    error = refused(Refused, lambda: cluster.swap(2))
    assert (error.code in ("not_ready", "not_loaded"), cluster.store().current) == (True, {"dc-0": 1})
    cluster.client.swap("flights", Swap(version=2, force=True))
    assert cluster.store().current == {"dc-0": 2}


def test_a_version_that_was_ready_is_judged_again_before_its_swap(cluster: Cluster) -> None:
    """A node that lost its replica between ready and swap keeps the version from service until it has it again."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan())
    cluster.seal(rebuild)
    while cluster.status(2) != "ready":
        for node in cluster.nodes:
            cluster.report(node)
        cluster.round()
    cluster.report("node-1", lambda replica: None if replica.version == 2 else replica)
    cluster.round()
    assert (cluster.status(2), cluster.store().current) == ("ready", {"dc-0": 1})
    cluster.settle(2)
    assert cluster.store().current == {"dc-0": 2}


def test_a_sick_node_fails_no_rebuild(cluster: Cluster) -> None:
    """A replica that fails for reasons of its node is waited for; the same version serves once it has it."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan())
    cluster.seal(rebuild)
    full = {"state": ReplicaState.ERROR, "error": "the disk is full", "error_code": "storage_broken", "stuck_ms": 9_000}
    for _ in range(4):
        cluster.report("node-1", lambda replica: replica.model_copy(update=full if replica.version == 2 else {}))
        cluster.report("node-2")
        cluster.round()
    assert (cluster.client.rebuild(rebuild.id).status, cluster.status(2)) == ("running", "loading")
    cluster.settle(4)
    assert cluster.store().current == {"dc-0": 2}


def test_a_replica_that_does_not_get_on_is_placed_elsewhere(cluster: Cluster) -> None:
    """After the patience that a lost node has, another node gets it; the sick one goes once that one has it (R25)."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    (mine,) = [p for p, nodes in cluster.there(1).assignment.items() if nodes == ("node-1",)]

    def sick(stuck_ms: int) -> None:
        update = {"state": ReplicaState.ERROR, "error": "a bad block", "error_code": "storage_broken"}
        cluster.report("node-1", lambda replica: replica.model_copy(update=update | {"stuck_ms": stuck_ms}))

    sick(1_000)
    cluster.report("node-2")
    cluster.round()
    assert cluster.there(1).assignment[mine] == ("node-1",)
    sick(61_000)
    cluster.round()
    assert cluster.there(1).assignment[mine] == ("node-1", "node-2")
    cluster.report("node-2")
    sick(62_000)
    cluster.round()
    assert cluster.there(1).assignment[mine] == ("node-2",)
