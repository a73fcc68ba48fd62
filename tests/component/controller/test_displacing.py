"""A user's push goes before the upkeep of old data; upkeep waits for everybody."""

from __future__ import annotations

import pytest

from anew.api.models import EndRebuild
from anew.core.errors import Refused
from anew.core.stores.planning import RepushRequest
from anew.core.stores.properties import RepushProperties
from anew.core.stores.rebuild import StoreRebuild
from tests.component.controller.harness import Cluster, refused

_PLAIN = RepushRequest()
_TTL = RepushRequest(RepushProperties(ttl=True, ttl_seconds=100))
_UPKEEP = pytest.mark.parametrize("upkeep", [_PLAIN, _TTL], ids=["repush", "ttl_repush"])
_STAGE = pytest.mark.parametrize("stage", ["building", "loading", "ready"])


def _begun(cluster: Cluster, upkeep: RepushRequest, stage: str) -> StoreRebuild:
    """A running repush of a store that serves, at a stage."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan(request=upkeep))
    _bring(cluster, rebuild, stage)
    return rebuild


def _bring(cluster: Cluster, rebuild: StoreRebuild, stage: str) -> None:
    if stage != "building":
        cluster.seal(rebuild)
        cluster.until(lambda: cluster.status(rebuild.version) == stage)


@pytest.mark.case("stores:H2", "stores:H3")
@_UPKEEP
@_STAGE
def test_a_push_ends_upkeep_in_one_transaction(cluster: Cluster, upkeep: RepushRequest, stage: str) -> None:
    """The commit that begins the push kills version and record of the repush, which name what displaced them."""
    running = _begun(cluster, upkeep, stage)
    plan, before = cluster.push_plan(), cluster.context.catalog.revision()
    push = cluster.begin(plan)
    assert cluster.context.catalog.revision() == before + 1
    assert (cluster.status(2), cluster.status(3)) == ("killed", "building")
    why = "a full_push takes precedence: version 3"
    view = cluster.client.rebuild(running.id)
    assert (view.status, view.error, cluster.version(2).error) == ("killed", why, why)
    newest = cluster.client.history("flights")[0]
    assert (newest.what, newest.actor, newest.detail["killed"]) == ("begin full_push", "tester", running.id)
    cluster.seal(push)
    cluster.settle()
    assert (cluster.store().current, cluster.status(2)) == ({"dc-0": 3}, "retired")


@pytest.mark.case("stores:H2", "stores:H3", "rules:R22")
@_UPKEEP
def test_the_displaced_driver_is_turned_away(cluster: Cluster, upkeep: RepushRequest) -> None:
    """Its next sign of life says stop, seal and failure change nothing, and its files go after the grace."""
    running = _begun(cluster, upkeep, "building")
    seal = cluster.seal_of(running)
    push = cluster.begin(cluster.push_plan())
    assert cluster.beat(running)
    assert refused(Refused, lambda: cluster.client.seal(running.id, seal)).code == "rebuild_ended"
    late = cluster.client.fail_rebuild(running.id, EndRebuild(epoch=1, error="cancelled"))
    assert (late.status, "takes precedence" in str(late.error)) == ("killed", True)
    assert not cluster.beat(push)
    directory = cluster.version(2).path
    cluster.seal(push)
    cluster.settle()
    assert cluster.files(directory) != []
    cluster.pass_seconds(601)
    cluster.round()
    assert (cluster.files(directory), cluster.status(2)) == ([], "reclaimed")


@pytest.mark.case("stores:H2")
@pytest.mark.parametrize("running", ["full_push", "repush", "ttl_repush"])
@_UPKEEP
@_STAGE
def test_upkeep_never_ends_anything(cluster: Cluster, running: str, upkeep: RepushRequest, stage: str) -> None:
    """Whatever runs, at whatever stage, a repush is refused with what to do, and nothing at all is changed."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    repush = _TTL if running == "ttl_repush" else _PLAIN
    rebuild = cluster.begin(cluster.push_plan() if running == "full_push" else cluster.repush_plan(request=repush))
    _bring(cluster, rebuild, stage)
    late, before, revision = cluster.repush_plan(request=upkeep), cluster.store(), cluster.context.catalog.revision()
    error = refused(Refused, lambda: cluster.begin(late))
    assert (error.code, error.hint) == ("rebuild_running", f"wait for it, or: anew rebuild kill {rebuild.id}")
    assert running in str(error.found)
    assert (cluster.store(), cluster.context.catalog.revision()) == (before, revision)
    assert [row.id for row in cluster.client.rebuilds(store="flights", running=True)] == [rebuild.id]
    if stage == "building":
        assert not cluster.beat(rebuild)


@pytest.mark.case("stores:H2")
@_STAGE
def test_a_push_does_not_end_a_push(cluster: Cluster, stage: str) -> None:
    """Of two users' pushes the later one is refused, at every stage of the first, and nothing is changed."""
    cluster.create()
    first = cluster.begin(cluster.push_plan())
    _bring(cluster, first, stage)
    second, before = cluster.push_plan(), cluster.store()
    assert refused(Refused, lambda: cluster.begin(second)).code == "rebuild_running"
    assert (cluster.store(), cluster.client.rebuild(first.id).status) == (before, "running")


@pytest.mark.case("stores:H2")
def test_nearline_writes_do_not_notice(cluster: Cluster) -> None:
    """While one rebuild ends another, the topic takes writes all the time, and the new version applies every one."""
    running = _begun(cluster, _PLAIN, "loading")
    feed = cluster.store().feeds[0]
    acknowledged = cluster.write(feed, 10, "before")
    plan = cluster.push_plan()
    acknowledged += cluster.write(feed, 10, "between")
    push = cluster.begin(plan)
    acknowledged += cluster.write(feed, 10, "after")
    assert cluster.client.routing("flights").feed == feed
    cluster.seal(push)
    cluster.settle()
    acknowledged += cluster.write(feed, 10, "served")
    version = cluster.version(3)
    assert (version.status.value, version.feeds, version.stop) == ("current", (feed.id,), None)
    assert all(version.fabrics["dc-0"].start[at] <= offset for at, offset in acknowledged)
    assert cluster.client.rebuild(running.id).status == "killed"


@pytest.mark.case("stores:H2")
def test_a_push_that_is_refused_kills_nothing(cluster: Cluster) -> None:
    """A push whose plan does not hold any more leaves the running repush alone."""
    running = _begun(cluster, _PLAIN, "building")
    plan = cluster.push_plan()
    cluster.update(partitions=8)
    before = cluster.store()
    assert refused(Refused, lambda: cluster.begin(plan)).code == "plan_outdated"
    assert (cluster.store(), cluster.client.rebuild(running.id).status) == (before, "running")
    assert not cluster.beat(running)
