"""Silence counts only while the controller listened: one that was away, or stood still, calls nobody lost at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anew.api.models import BeginRebuild
from anew.controller.engine.attention import Attention
from anew.controller.engine.begin import begin
from anew.controller.reconcile import Reconciler
from anew.core.errors import Unreachable
from anew.core.stores.rebuild import StoreRebuild
from tests.component.controller.harness import Cluster


def _started_again(cluster: Cluster) -> None:
    """Another controller process, which has heard nobody yet."""
    cluster.context = replace(cluster.context, attention=Attention())
    cluster.start_over()


@pytest.mark.case("rules:R22")
def test_a_controller_that_was_away_lets_a_driver_live_for_a_lease_more(cluster: Cluster) -> None:
    """The lease ended while nobody could renew it: the rebuild goes on, and fails only after a lease of silence."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    cluster.pass_seconds(100)
    _started_again(cluster)
    cluster.round()
    assert cluster.client.rebuild(rebuild.id).status == "running"
    cluster.pass_seconds(19)
    cluster.round()
    assert cluster.client.rebuild(rebuild.id).status == "running"
    cluster.pass_seconds(1)
    cluster.round()
    assert cluster.client.rebuild(rebuild.id).status == "failed"


def test_a_controller_that_stood_still_begins_to_listen_anew(cluster: Cluster) -> None:
    """Stopped as a process for longer than half a lease, it does not hold its own silence against a driver."""
    seconds = [0.0]
    cluster.reconciler = Reconciler(cluster.context, lambda: seconds[0])
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    cluster.pass_seconds(100)
    seconds[0] += 100
    cluster.round()
    assert cluster.client.rebuild(rebuild.id).status == "running"
    for _ in range(3):
        cluster.pass_seconds(7)
        seconds[0] += 7
        cluster.round()
    assert cluster.client.rebuild(rebuild.id).status == "failed"


def test_a_controller_that_was_away_takes_no_replica_from_a_node_at_once(cluster: Cluster) -> None:
    """The first node to report after an outage does not get what belongs to the others."""
    cluster.create(replicas=1, partitions=2)
    cluster.serve(cluster.push_plan())
    before = cluster.there(1).assignment
    cluster.clock.advance(1_000_000)
    _started_again(cluster)
    cluster.report(cluster.nodes[0])
    cluster.round()
    assert cluster.there(1).assignment == before


def test_a_controller_that_was_just_started_places_nothing_before_it_has_heard_of_all_nodes(cluster: Cluster) -> None:
    """Asked to begin too early it says so, and nothing is changed; when all have reported it begins."""
    cluster.create()
    cluster.clock.advance(1_000_000)
    plan = cluster.push_plan()
    _started_again(cluster)
    cluster.report(cluster.nodes[0])
    with pytest.raises(Unreachable) as caught:
        begin(cluster.context, BeginRebuild(plan=plan, request_id="r", driver="d"), "somebody")
    assert (caught.value.code, caught.value.found) == ("nodes_not_heard", [cluster.nodes[0]])
    assert cluster.store().versions == ()
    for node in cluster.nodes:
        cluster.report(node)
    rebuild = begin(cluster.context, BeginRebuild(plan=plan, request_id="r", driver="d"), "somebody")
    assert isinstance(rebuild, StoreRebuild)
    held = cluster.there(rebuild.version).assignment
    assert {node for nodes in held.values() for node in nodes} == set(cluster.nodes)


@pytest.mark.parametrize("hours", [1, -1], ids=["forward", "back"])
def test_a_clock_that_is_set_fails_no_rebuild(cluster: Cluster, hours: int) -> None:
    """Nor does a machine that slept: all drivers and nodes are heard of in the next moment."""
    seconds = [0.0]
    cluster.reconciler = Reconciler(cluster.context, lambda: seconds[0])
    cluster.create(replicas=1, partitions=2)
    cluster.serve(cluster.push_plan())
    for _ in range(10):
        cluster.pass_seconds(7)
        seconds[0] += 7
        cluster.round()
    rebuild = cluster.begin(cluster.repush_plan())
    before = cluster.there(1).assignment
    cluster.clock.advance(hours * 3_600_000)
    seconds[0] += 0.5
    cluster.report("node-1")
    cluster.round()
    assert cluster.client.rebuild(rebuild.id).status == "running"
    assert cluster.there(1).assignment == before
    for _ in range(4):
        cluster.pass_seconds(7)
        seconds[0] += 7
        cluster.round()
    assert cluster.client.rebuild(rebuild.id).status == ("failed" if hours > 0 else "running")
