"""What people are told who pause a store or the cluster, and let it go on."""

from __future__ import annotations

from anew.api.stores.requests import RollBack
from tests.component.controller.conftest import Told
from tests.component.controller.harness import Cluster


def test_the_way_back_is_that_of_what_was_paused(cluster: Cluster, told: Told) -> None:
    """Whoever pauses one store is told how that store goes on, and who pauses all, how all does."""
    cluster.create()
    assert told("pause", "--store", "flights") == ["flights is paused; to go on: anew unpause --store flights"]
    assert told("pause") == ["everything is paused; to go on: anew unpause"]
    assert told("unpause", "--store", "flights")[0] == "flights goes on"
    assert told("unpause") == ["everything goes on"]


def test_what_does_not_go_on_with_the_cluster_is_named(cluster: Cluster, told: Told) -> None:
    """Stores that are paused by themselves, or whose schedules a rollback holds, are named with their own way back."""
    for name in ("flights", "trips", "users"):
        cluster.create(name)
    cluster.serve(cluster.push_plan("trips"))
    cluster.serve(cluster.push_plan("trips"))
    cluster.client.roll_back("trips", RollBack())
    told("pause", "--store", "users")
    told("pause")
    assert told("unpause") == [
        "all else goes on",
        "trips does not (its scheduled repushes are held: rolled back from version 2 to 1 in dc-0); to let it go on: "
        "anew unpause --store trips",
        "users does not (paused by tester); to let it go on: anew unpause --store users",
    ]
