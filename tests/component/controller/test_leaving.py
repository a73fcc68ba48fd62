"""Reclaimed versions leave their store's document; what is shown and said of them stays."""

from __future__ import annotations

import pytest

from anew.api.rebuilds import StoreRebuildView, view_as
from anew.api.stores.requests import HoldVersion, RollBack
from anew.catalog.change import Change, PutStore
from anew.core.errors import NotFound, Refused
from anew.core.stores.store import VersionStatus
from anew.testing.builders import a_version
from tests.component.controller.harness import LIMITS, Cluster, refused


def _reclaimed(cluster: Cluster) -> None:
    """A store with two current versions after each other, the first of which has left."""
    cluster.create(backup_retention_seconds=0)
    for _ in range(2):
        cluster.serve(cluster.push_plan())
    cluster.settle(2)
    cluster.pass_seconds(LIMITS.reclaim_grace_seconds + 1)
    cluster.settle(2)
    assert [version.number for version in cluster.store().versions] == [2]


def test_a_reclaimed_version_is_shown_where_it_was(cluster: Cluster) -> None:
    """The store's face lists it, alone too; its rebuild is shown as before, and the next number goes on."""
    _reclaimed(cluster)
    (rebuild,) = [one["id"] for one in cluster.http.get("/v1/rebuilds").json()["items"] if one["version"] == 1]
    everything = cluster.http.get("/v1/stores/flights").json()["fabrics"]["dc-0"]
    assert [(v["number"], v["status"]) for v in everything["versions"]] == [(1, "reclaimed"), (2, "current")]
    (alone,) = cluster.http.get("/v1/stores/flights", params={"version": 1}).json()["fabrics"]["dc-0"]["versions"]
    assert (alone["number"], alone["rebuild"], alone["kind"]) == (1, rebuild, "full_push")
    assert view_as(cluster.client.rebuild(rebuild), StoreRebuildView).version == 1
    assert cluster.serve(cluster.repush_plan()) == 3


@pytest.mark.case("rules:R15")
def test_what_has_left_is_refused_as_reclaimed(cluster: Cluster) -> None:
    """A swap, a rollback and a hold say that the version was reclaimed; its rebuild says that it has ended."""
    _reclaimed(cluster)
    (rebuild,) = [one["id"] for one in cluster.http.get("/v1/rebuilds").json()["items"] if one["version"] == 1]
    for ask in (
        lambda: cluster.swap(1),
        lambda: cluster.client.roll_back("flights", RollBack(to=1)),
        lambda: cluster.client.hold_version("flights", HoldVersion(version=1, seconds=60)),
    ):
        error = refused(Refused, ask)
        assert (error.code, error.message) == ("version_gone", "version 1 of flights was reclaimed")
    assert refused(Refused, lambda: cluster.client.kill_rebuild(rebuild)).code == "rebuild_ended"
    assert refused(NotFound, lambda: cluster.swap(9)).code == "unknown_version"


def test_a_version_stays_until_its_rebuild_has_ended(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reconciler brings a rebuild's record in line with its version: the version is there until it has."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    gone = cluster.version(1).moved(("dc-0",), status=VersionStatus.RECLAIMED)
    store = cluster.store()
    changed = store.model_copy(update={"versions": (gone,)})
    cluster.context.catalog.commit(
        Change(cluster.context.operation("test", "flights", "test"), (PutStore(changed, store.revision),))
    )
    cluster.settle(1)
    assert [version.number for version in cluster.store().versions] == [1]
    monkeypatch.setattr("anew.controller.stores.subject._check_in_the_making", lambda _store, _rebuild: None)
    cluster.client.kill_rebuild(rebuild.id)
    cluster.settle(1)
    assert (cluster.store().versions, cluster.status(1)) == ((), "reclaimed")


def test_thousands_of_an_earlier_release_leave_in_a_few_commits(cluster: Cluster) -> None:
    """A document that holds all versions since the store was made is small after some rounds; none is lost."""
    store = cluster.create()
    versions = tuple(a_version(number, VersionStatus.RECLAIMED) for number in range(1, 1_201))
    full = store.model_copy(update={"versions": versions, "next_version": 1_201})
    operation = cluster.context.operation("test", "flights", "test")
    cluster.context.catalog.commit(Change(operation, (PutStore(full, store.revision),)))
    left = []
    for _ in range(4):
        cluster.round()
        left.append(len(cluster.store().versions))
    assert left == [700, 200, 0, 0]
    assert cluster.store().past_numbers == ((1, 1_200),)
    assert len(cluster.context.catalog.past_versions(store.uid, 2_000)) == 1_200
