"""What a seal is judged by besides its ledger: the store's quota, and from where the version applies its feeds."""

from __future__ import annotations

import pytest

from anew.api.models import EndRebuild
from anew.core.errors import Failed, Refused
from anew.core.feed import PositionMap
from anew.core.stores.planning import RepushRequest
from anew.core.stores.properties import RepushProperties
from anew.core.stores.rebuild import StoreRebuild
from tests.component.controller.harness import Cluster, refused

_TTL = RepushRequest(RepushProperties(ttl=True, ttl_seconds=100))


@pytest.mark.case("stores:A14", "stores:J7")
def test_a_push_over_the_quota_is_not_sealed(cluster: Cluster) -> None:
    """A full push larger than the quota fails at the seal with both sizes, and the version that served goes on."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.push_plan())
    seal = cluster.seal_of(rebuild)
    size = seal.manifest.bytes
    cluster.update(quota_bytes=size - 1)
    error = refused(Failed, lambda: cluster.client.seal(rebuild.id, seal))
    assert (error.code, error.found) == ("quota_exceeded", f"{size} bytes")
    assert error.expected == f"at most quota_bytes = {size - 1}"
    assert (cluster.status(2), cluster.version(2).manifest) == ("building", None)
    cluster.client.fail_rebuild(rebuild.id, EndRebuild(epoch=1, error=str(error)))
    cluster.settle()
    assert (cluster.store().current, cluster.client.rebuild(rebuild.id).error) == ({"dc-0": 1}, str(error))


@pytest.mark.case("stores:A14")
def test_the_quota_is_a_live_setting(cluster: Cluster) -> None:
    """Exactly the quota fits; raised while the push runs it is judged by what it is at the seal."""
    cluster.create(quota_bytes=1)
    rebuild = cluster.begin(cluster.push_plan())
    seal = cluster.seal_of(rebuild)
    assert refused(Failed, lambda: cluster.client.seal(rebuild.id, seal)).code == "quota_exceeded"
    cluster.update(quota_bytes=seal.manifest.bytes)
    assert cluster.client.seal(rebuild.id, seal).stage == "load"


@pytest.mark.case("stores:A14")
@pytest.mark.parametrize("upkeep", [RepushRequest(), _TTL], ids=["repush", "ttl_repush"])
def test_a_repush_is_not_judged_by_the_quota(cluster: Cluster, upkeep: RepushRequest) -> None:
    """What is there already may be larger than the quota: it is made anew all the same."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.update(quota_bytes=1)
    rebuild = cluster.begin(cluster.repush_plan(request=upkeep))
    assert cluster.seal(rebuild).stage == "load"
    cluster.settle()
    assert cluster.store().current == {"dc-0": 2}


# -- from where ------------------------------------------------------------------------------------------------------


def _moved(rebuild: StoreRebuild, by: int, partitions: int = 4) -> PositionMap:
    start = rebuild.plan.target.start
    return PositionMap({at: start[at] + by if at.partition < partitions else start[at] for at in start})


def _pushed(cluster: Cluster, rewind_from: str) -> StoreRebuild:
    """A push into a hybrid store that serves, some time after some writes."""
    cluster.create(rewind_seconds=0, rewind_from=rewind_from)
    cluster.serve(cluster.push_plan())
    cluster.write(cluster.store().feeds[0], 40)
    cluster.pass_seconds(60)
    return cluster.begin(cluster.push_plan(as_of_ms=cluster.clock() - 30_000))


@pytest.mark.case("rules:R13")
def test_a_push_that_counts_from_its_end_may_start_later(cluster: Cluster) -> None:
    """With rewind_from = eop the seal freezes a start at or past the one that was begun with."""
    rebuild = _pushed(cluster, "eop")
    cluster.write(cluster.store().feeds[0], 40, "during")
    later = _moved(rebuild, 2, partitions=2)
    cluster.client.seal(rebuild.id, cluster.seal_of(rebuild, start=later))
    assert cluster.there(2).start == later
    cluster.settle()
    assert (cluster.status(2), cluster.there(2).start) == ("current", later)


@pytest.mark.case("rules:R13")
def test_a_start_below_the_one_begun_with_is_refused(cluster: Cluster) -> None:
    """What the low-water mark was checked for at begin is the least: an earlier start, or none, is no seal."""
    rebuild = _pushed(cluster, "eop")
    begun = rebuild.plan.target.start
    assert min(begun.values()) > 0
    lacking = PositionMap({at: offset for at, offset in begun.items() if at.partition})
    for start in (_moved(rebuild, -1, partitions=1), lacking, PositionMap()):
        seal = cluster.seal_of(rebuild, start=start)
        error = refused(Failed, lambda seal=seal: cluster.client.seal(rebuild.id, seal))  # type: ignore[misc]  # bound
        assert (error.code, error.expected) == ("start_moved", begun.to_json())
    assert (cluster.status(2), cluster.version(2).manifest) == ("building", None)


@pytest.mark.case("rules:R13")
def test_a_push_that_counts_from_its_start_keeps_it(cluster: Cluster) -> None:
    """With rewind_from = sop a later start would forget writes: it is refused; the very same start is not."""
    rebuild = _pushed(cluster, "sop")
    later = cluster.seal_of(rebuild, start=_moved(rebuild, 1))
    assert refused(Failed, lambda: cluster.client.seal(rebuild.id, later)).code == "start_moved"
    cluster.client.seal(rebuild.id, cluster.seal_of(rebuild, start=rebuild.plan.target.start))
    assert cluster.there(2).start == rebuild.plan.target.start


@pytest.mark.case("rules:R13")
def test_a_repush_starts_where_its_scan_ended(cluster: Cluster) -> None:
    """Whatever the store's rewind counts from, a repush with a later start would lose what lies between."""
    cluster.create(rewind_from="eop")
    cluster.serve(cluster.push_plan())
    cluster.write(cluster.store().feeds[0], 40)
    rebuild = cluster.begin(cluster.repush_plan())
    seal = cluster.seal_of(rebuild, start=_moved(rebuild, 1))
    assert refused(Failed, lambda: cluster.client.seal(rebuild.id, seal)).code == "start_moved"
    assert cluster.seal(rebuild).stage == "load"
    assert cluster.there(2).start == rebuild.plan.source.end


def test_a_seal_takes_the_rebuilds_own_manifest_alone(cluster: Cluster) -> None:
    """The manifest of another store, another rebuild, or a path that leads out of the directory: refused, unchanged."""
    cluster.create("people")
    cluster.create()
    others = cluster.begin(cluster.push_plan("people"))
    foreign = f"{cluster.version(others.version, 'people').path}/manifest.json"
    rebuild = cluster.begin(cluster.push_plan())
    seal = cluster.seal_of(rebuild)
    own = cluster.version(rebuild.version).path
    for path in (foreign, f"{own}/../../../../{foreign}", f"{own}/base/manifest.json", "manifest.json"):
        manifest = seal.manifest.model_copy(update={"path": path})
        forged = seal.model_copy(update={"manifest": manifest})
        error = refused(Refused, lambda forged=forged: cluster.client.seal(rebuild.id, forged))  # type: ignore[misc]  # bound now
        assert error.code == "foreign_manifest", path
    assert cluster.version(rebuild.version).manifest is None
    cluster.client.seal(rebuild.id, seal)
