"""A swap that waits until somebody asks for it."""

from __future__ import annotations

import pytest

from anew.api.stores.replicas import ReplicaReport
from anew.api.stores.requests import RollBack
from anew.core.errors import NotFound, Refused
from anew.core.stores.planning import PushOptions, RepushRequest
from anew.core.stores.properties import RepushProperties
from anew.core.stores.rebuild import StoreRebuild
from tests.component.controller.conftest import Told
from tests.component.controller.harness import Cluster, plain, refused

_DEFER = RepushRequest(defer_swap=True)


def _deferred(cluster: Cluster) -> StoreRebuild:
    """Version 1 serves, version 2 is ready and waits."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan(request=_DEFER))
    cluster.seal(rebuild)
    cluster.settle()
    return rebuild


@pytest.mark.case("stores:H10")
def test_nothing_changes_for_readers(cluster: Cluster) -> None:
    """When the version is ready the rebuild has succeeded, and the one that served goes on serving."""
    rebuild = _deferred(cluster)
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, view.stage, view.error) == ("succeeded", "done", None)
    assert (cluster.status(1), cluster.status(2), cluster.store().current) == ("current", "deferred", {"dc-0": 1})
    assert cluster.client.routing("flights").current == 1
    assert "defer swap" in [row.what for row in cluster.client.history("flights")]
    assert "swap" not in [row.what for row in cluster.client.history("flights") if row.detail.get("version") == 2]
    cluster.pass_seconds(30 * 86_400)
    cluster.settle(3)
    assert (cluster.status(1), cluster.status(2)) == ("current", "deferred")


@pytest.mark.case("stores:H10")
def test_it_goes_on_applying_and_shows_its_lag(cluster: Cluster) -> None:
    """Nodes are still told to hold the version with its feeds, and the store's view has its lag beside the other's."""
    _deferred(cluster)
    feed = cluster.store().feeds[0]
    cluster.write(feed, 10)
    held = {
        version.number: version.feeds
        for node in cluster.nodes
        for store in cluster.client.desired(node, "dc-0").stores  # type: ignore[union-attr]  # asked for at once
        for version in store.versions
    }
    assert held == {1: (feed.id,), 2: (feed.id,)}

    def behind(replica: ReplicaReport) -> ReplicaReport:
        lag = {1: (3, 30), 2: (7, 1_500)}[replica.version]
        return replica.model_copy(update={"lag_records": lag[0], "lag_ms": lag[1]})

    for node in cluster.nodes:
        cluster.report(node, behind)
    fabric = cluster.client.store("flights").fabrics["dc-0"]
    lags = {v.number: (v.lag_records, v.lag_seconds) for v in fabric.versions}
    assert lags == {1: (3, 0.03), 2: (7, 1.5)}
    assert (fabric.lag_records, fabric.lag_seconds) == (3, 0.03)


@pytest.mark.case("stores:H10")
def test_others_wait_for_it(cluster: Cluster) -> None:
    """While it waits every push and repush is refused with what to do, and nothing is begun."""
    rebuild = _deferred(cluster)
    before = cluster.store()
    ttl = RepushRequest(RepushProperties(ttl=True, ttl_seconds=100))
    for plan in (cluster.push_plan(), cluster.repush_plan(), cluster.repush_plan(request=ttl)):
        error = refused(Refused, lambda plan=plan: cluster.begin(plan))  # type: ignore[misc]  # bound in the loop
        assert error.code == "swap_deferred"
        assert error.hint == f"anew swap flights 2, or give it up: anew rebuild kill {rebuild.id}"
    assert (cluster.store(), cluster.client.rebuilds(running=True)) == (before, [])


@pytest.mark.case("stores:A4")
def test_the_source_is_what_serves(cluster: Cluster) -> None:
    """A repush that is planned meanwhile reads the version that serves; the other one only when it is named."""
    _deferred(cluster)
    assert cluster.repush_plan().source.version == 1
    named = RepushProperties(input_topic="flights_v2")
    assert refused(Refused, lambda: cluster.repush_plan(request=RepushRequest(named))).code == "not_serving"
    assert cluster.repush_plan(request=RepushRequest(named, allow_not_serving=True)).source.version == 2


@pytest.mark.case("stores:H10")
def test_a_swap_brings_it_in(cluster: Cluster) -> None:
    """Somebody swaps: it serves, the one before is a backup, and pushes go on."""
    _deferred(cluster)
    assert plain(cluster.swap(2))["done"] == {"dc-0": {"before": 1, "after": 2}}
    assert (cluster.status(1), cluster.status(2), cluster.version(2).error) == ("backup", "current", None)
    assert cluster.serve(cluster.push_plan()) == 3
    cluster.client.roll_back("flights", RollBack())
    assert cluster.store().current == {"dc-0": 2}


@pytest.mark.case("stores:H10", "stores:H3")
def test_it_can_be_given_up(cluster: Cluster) -> None:
    """A kill of its ended rebuild gives the version up: killed, retired, its files gone after the grace; once only."""
    rebuild = _deferred(cluster)
    directory = cluster.version(2).path
    cluster.client.kill_rebuild(rebuild.id)
    assert (cluster.status(2), cluster.version(2).error) == ("killed", "given up by tester")
    assert cluster.client.history("flights")[0].what == "give up version"
    assert refused(Refused, lambda: cluster.client.kill_rebuild(rebuild.id)).code == "rebuild_ended"
    assert refused(Refused, lambda: cluster.swap(2)).code == "bad_transition"
    cluster.settle(2)
    assert (cluster.status(2), cluster.files(directory) != []) == ("retired", True)
    assert cluster.begin(cluster.push_plan()).version == 3
    cluster.pass_seconds(601)
    cluster.round()
    assert (cluster.status(2), cluster.files(directory), cluster.store().current) == ("reclaimed", [], {"dc-0": 1})


def test_who_kills_is_told_what_became_of_the_version(cluster: Cluster, told: Told) -> None:
    """Of a deferred version that it is given up, though its rebuild succeeded; of one in the making the same."""
    fate = "never becomes current, its files are reclaimed"
    rebuild = _deferred(cluster)
    given_up = f"its deferred version is given up: version 2 of flights {fate}"
    assert told("rebuild", "kill", rebuild.id) == [f"{rebuild.id} had succeeded; {given_up}"]
    making = cluster.begin(cluster.push_plan())
    assert told("rebuild", "kill", making.id) == [f"{making.id} is killed: version 3 of flights {fate}"]


@pytest.mark.case("stores:H10", "rules:R14")
def test_what_serves_may_have_moved_meanwhile(cluster: Cluster) -> None:
    """Deferred as asked for and overtaken by a rollback: it waits all the same, says why, and a swap brings it in."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.serve(cluster.repush_plan())
    rebuild = cluster.begin(cluster.repush_plan(request=_DEFER))
    cluster.client.roll_back("flights", RollBack())
    cluster.seal(rebuild)
    cluster.settle()
    assert (cluster.status(3), cluster.store().current) == ("deferred", {"dc-0": 1})
    assert "planned from version 2, but 1 is current" in str(cluster.version(3).error)
    assert refused(Refused, lambda: cluster.begin(cluster.push_plan())).code == "swap_deferred"
    cluster.swap(3)
    assert cluster.store().current == {"dc-0": 3}


@pytest.mark.case("stores:H10")
def test_a_push_may_be_deferred_before_anything_serves(cluster: Cluster) -> None:
    """The first version of a store may wait as well; until then nothing serves, and writes are taken."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan(options=PushOptions(defer_swap=True)))
    cluster.seal(rebuild)
    cluster.settle()
    assert (cluster.status(1), cluster.store().current) == ("deferred", {"dc-0": 0})
    assert cluster.client.routing("flights").feed is not None
    cluster.swap(1)
    assert cluster.store().current == {"dc-0": 1}


@pytest.mark.case("stores:H10", "rules:R10")
def test_the_end_of_nearline_writes_cannot_wait(cluster: Cluster) -> None:
    """A version that ends nearline writes is not deferred: these would stay closed; once they ended, one may be."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.update(hybrid=False)
    before = cluster.store()
    for plan in (
        lambda: cluster.repush_plan(request=_DEFER),
        lambda: cluster.push_plan(options=PushOptions(defer_swap=True)),
    ):
        error = refused(Refused, plan)
        assert (error.code, "--defer-swap" in str(error.hint)) == ("cannot_defer", True)
    assert cluster.store() == before
    cluster.serve(cluster.repush_plan())
    for plan in (
        lambda: cluster.repush_plan(request=_DEFER),
        lambda: cluster.push_plan(options=PushOptions(defer_swap=True)),
    ):
        number = cluster.serve(plan())
        assert cluster.status(number) == "deferred"
        cluster.swap(number)


def test_a_swap_of_no_version_is_refused(cluster: Cluster) -> None:
    """A number that the store never had is not found, with what there is; the deferred one stays."""
    _deferred(cluster)
    error = refused(NotFound, lambda: cluster.swap(9))
    assert (error.code, error.expected, cluster.status(2)) == ("unknown_version", "1, 2", "deferred")
