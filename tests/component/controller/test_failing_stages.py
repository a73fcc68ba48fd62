"""Each stage of a rebuild fails in turn: what serves goes on, nothing half made becomes current, the reason is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from anew.api.models import EndRebuild
from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.api.stores.requests import Seal
from anew.catalog.change import Change
from anew.core.errors import AnewError, Failed, Refused, Unreachable
from anew.core.ledger import Entry, Ledger
from anew.core.stores.rebuild import Fingerprints, StoreRebuild
from tests.component.controller.harness import Cluster, refused

_Answer = TypeVar("_Answer")
Failure = Callable[[Cluster, StoreRebuild], str]
"""Lets a rebuild fail in a way of its own; gives what its record must say."""


def _build(cluster: Cluster, rebuild: StoreRebuild) -> str:
    cluster.beat(rebuild)
    cluster.client.fail_rebuild(rebuild.id, EndRebuild(epoch=1, error="bad_input: line 7 has no key"))
    return "bad_input: line 7 has no key"


def _silence(cluster: Cluster, rebuild: StoreRebuild) -> str:
    cluster.beat(rebuild)
    cluster.pass_seconds(20.001)
    return "the driver gave no sign of life"


def _kill(cluster: Cluster, rebuild: StoreRebuild) -> str:
    cluster.client.kill_rebuild(rebuild.id)
    return "killed by tester"


def _refused_seal(cluster: Cluster, rebuild: StoreRebuild, seal: Seal) -> str:
    """What a driver does whose seal is refused: it reports the refusal."""
    error = refused(Failed, lambda: cluster.client.seal(rebuild.id, seal))
    cluster.client.fail_rebuild(rebuild.id, EndRebuild(epoch=1, error=f"{error.code}: {error}"))
    return error.code


def _ledger(cluster: Cluster, rebuild: StoreRebuild) -> str:
    lost = Ledger(read=Entry(count=2, hash=77), written=Entry(count=1, hash=77))
    return _refused_seal(cluster, rebuild, cluster.seal_of(rebuild, ledger=lost))


def _fingerprint(cluster: Cluster, rebuild: StoreRebuild) -> str:
    return _refused_seal(cluster, rebuild, cluster.seal_of(rebuild, fingerprint=Fingerprints(source=1, target=2)))


def _quota(cluster: Cluster, rebuild: StoreRebuild) -> str:
    seal = cluster.seal_of(rebuild)
    cluster.update(quota_bytes=1)
    try:
        return _refused_seal(cluster, rebuild, seal)
    finally:
        cluster.update(quota_bytes=0)


def _manifest(cluster: Cluster, rebuild: StoreRebuild) -> str:
    seal = cluster.seal_of(rebuild)
    cluster.deep.delete(seal.manifest.path)
    return _refused_seal(cluster, rebuild, seal)


def _load(cluster: Cluster, rebuild: StoreRebuild) -> str:
    cluster.seal(rebuild)

    def broken(replica: ReplicaReport) -> ReplicaReport:
        if replica.version == 1:
            return replica
        return replica.model_copy(
            update={"state": ReplicaState.ERROR, "error": "checksum_mismatch: p1", "error_code": "checksum_mismatch"}
        )

    for node in cluster.nodes:
        cluster.report(node, broken)
    return "checksum_mismatch: p1"


def _deadline(cluster: Cluster, rebuild: StoreRebuild) -> str:
    cluster.seal(rebuild)
    cluster.clock.advance(300_001)
    for node in cluster.nodes:
        cluster.report(node, lambda r: r if r.version == 1 else r.model_copy(update={"state": ReplicaState.LOADING}))
    return "was not ready in time: 2 replicas not loaded"


_FAILURES = [_build, _silence, _kill, _ledger, _fingerprint, _quota, _manifest, _load, _deadline]


@pytest.mark.case("stores:J7", "stores:H3")
@pytest.mark.parametrize("failure", _FAILURES, ids=lambda failure: failure.__name__.strip("_"))
def test_a_stage_that_fails_leaves_what_serves(cluster: Cluster, failure: Failure) -> None:
    """The version is never current, its record says why, its files go, and the next push is taken."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.push_plan())
    directory = cluster.version(2).path
    why = failure(cluster, rebuild)
    for _ in range(3):
        assert (cluster.store().current, cluster.status(1)) == ({"dc-0": 1}, "current")
        cluster.round()
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status in ("failed", "killed"), why in str(view.error)) == (True, True)
    assert (view.ended_at_ms, cluster.client.rebuilds(running=True)) == (cluster.clock(), [])
    assert (cluster.status(2), why in str(cluster.version(2).error)) == ("retired", True)
    assert cluster.client.routing("flights").current == 1
    swaps = [row for row in cluster.client.history("flights") if row.what == "swap"]
    assert [row.detail["version"] for row in swaps] == [1]
    assert refused(Refused, lambda: cluster.swap(2)).code == "bad_transition"
    cluster.pass_seconds(601)
    cluster.settle(1)
    assert (cluster.files(directory), cluster.status(2)) == ([], "reclaimed")
    assert cluster.serve(cluster.push_plan()) == 3
    assert cluster.store().current == {"dc-0": 3}


@pytest.mark.case("stores:J7")
def test_a_begin_that_is_refused_makes_nothing(cluster: Cluster) -> None:
    """Refused before anything is made: no version, rebuild, file or line of history; the refusal has the reason."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    plan = cluster.push_plan()
    cluster.update(partitions=8)
    before, history, files = cluster.store(), cluster.client.history(), cluster.files()
    error = refused(Refused, lambda: cluster.begin(plan))
    assert (error.code, error.found != error.expected) == ("plan_outdated", True)
    assert (cluster.store(), cluster.client.history(), cluster.files()) == (before, history, files)
    assert len(cluster.client.rebuilds()) == 1


@pytest.mark.case("stores:J7")
@pytest.mark.parametrize("what", ["begin full_push", "seal version", "aim", "ready", "swap", "rebuild succeeded"])
def test_a_catalog_that_fails_at_a_stage_is_tried_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Whichever commit the catalog does not answer, what serves goes on, and once it answers the rebuild ends well."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    catalog, failures = cluster.context.catalog, list[str]()
    commit = catalog.commit

    def flaky(change: Change) -> bool:
        if change.operation.what == what and len(failures) < 2:
            failures.append(what)
            raise Unreachable("catalog_unreachable", "the catalog does not answer")
        return commit(change)

    monkeypatch.setattr(catalog, "commit", flaky)
    plan = cluster.push_plan()
    rebuild = _insist(lambda: cluster.begin(plan, "r-1"))
    seal = cluster.seal_of(rebuild)
    _insist(lambda: cluster.client.seal(rebuild.id, seal))
    for _ in range(9):
        assert cluster.store().current in ({"dc-0": 1}, {"dc-0": 2})
        cluster.settle(1)
    assert failures == [what, what]
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, view.error, cluster.store().current) == ("succeeded", None, {"dc-0": 2})
    assert len(cluster.store().versions) == 2


def test_a_rebuild_ends_well_when_its_store_is_deleted_in_between(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap is committed, the record's end is not, and the store is deleted: the next round ends the record."""
    cluster.create()
    catalog = cluster.context.catalog
    commit = catalog.commit

    def failing(change: Change) -> bool:
        if change.operation.what == "rebuild succeeded":
            raise Unreachable("catalog_unreachable", "the catalog does not answer")
        return commit(change)

    rebuild = cluster.begin(cluster.push_plan())
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit", failing)
        cluster.seal(rebuild)
        cluster.settle(9)
    assert (cluster.store().current, cluster.client.rebuild(rebuild.id).status) == ({"dc-0": 1}, "running")
    cluster.client.delete_store("flights")
    cluster.round()
    assert cluster.client.rebuild(rebuild.id).status == "succeeded"


def _insist(act: Callable[[], _Answer]) -> _Answer:
    """Do what a driver does whose controller answers 503: ask again."""
    for _ in range(5):
        try:
            return act()
        except AnewError as error:
            if error.code != "catalog_unreachable":
                raise
    raise AssertionError("it never answered")
