"""Taking a rebuild over from a driver that is gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from anew.api.models import EndRebuild, ResumeRebuild
from anew.api.rebuilds import StoreStart
from anew.catalog.change import Change
from anew.core.errors import Failed, NotFound, Refused
from anew.core.rebuild import Stage
from anew.core.stores.rebuild import StoreRebuild
from tests.component.controller.harness import Cluster, plain, refused

_SILENT_SECONDS = 10
"""Half of the harness's lease: from then on a driver may be replaced."""


def _resume(cluster: Cluster, rebuild: StoreRebuild, driver: str = "second") -> StoreRebuild:
    return cluster.client.resume_rebuild(rebuild.id, ResumeRebuild(driver=driver), StoreStart).rebuild


def _building(cluster: Cluster) -> StoreRebuild:
    """Version 1 serves; the driver of version 2 builds."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan())
    cluster.beat(rebuild, Stage.BUILD)
    return rebuild


@pytest.mark.case("stores:H11")
def test_a_living_driver_is_not_replaced(cluster: Cluster) -> None:
    """As long as it gives signs of life a take-over is refused and changes nothing; after the silence it is not."""
    rebuild = _building(cluster)
    cluster.pass_seconds(_SILENT_SECONDS - 1)
    cluster.beat(rebuild)
    cluster.pass_seconds(_SILENT_SECONDS - 0.001)
    before = cluster.store()
    error = refused(Refused, lambda: _resume(cluster, rebuild))
    assert (error.code, error.found) == ("driver_alive", "test gave a sign of life 9999 ms ago")
    assert (error.expected, f"anew rebuild kill {rebuild.id}" in str(error.hint)) == ("none for 10000 ms", True)
    assert (cluster.store(), cluster.client.rebuild(rebuild.id).epoch) == (before, 1)
    cluster.pass_seconds(0.001)
    assert _resume(cluster, rebuild).epoch == 2


@pytest.mark.case("stores:H11", "rules:R22")
def test_the_new_driver_has_an_epoch_and_a_directory(cluster: Cluster) -> None:
    """Plan, id and version stay; epoch, directory and lease are new, and the build begins with its first stage."""
    rebuild = _building(cluster)
    cluster.pass_seconds(_SILENT_SECONDS)
    old, taken = cluster.version(2), _resume(cluster, rebuild)
    new = cluster.version(2)
    assert (taken.id, taken.version, taken.plan, taken.driver) == (rebuild.id, 2, rebuild.plan, "second")
    assert (old.epoch, new.epoch, taken.epoch, new.number, new.status) == (1, 2, 2, 2, old.status)
    assert (old.path, new.path) == (f"{old.path[:-1]}1", f"{old.path[:-1]}2")
    assert not cluster.beat(taken, Stage.BEGIN), "its first signs of life come from the first stage"
    cluster.pass_seconds(_SILENT_SECONDS)
    assert not cluster.beat(taken, Stage.BUILD)
    cluster.seal(taken)
    cluster.settle()
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, plain(view)["ledger"]["read"], cluster.store().current) == ("succeeded", 1, {"dc-0": 2})
    manifest = cluster.version(2).manifest
    assert manifest is not None
    assert manifest.path.startswith(f"{new.path}/")


@pytest.mark.case("stores:H11", "rules:R22")
def test_the_driver_before_is_turned_away_wherever_it_knocks(cluster: Cluster) -> None:
    """Sign of life, seal and failure of the old epoch are refused and change nothing for the new driver."""
    rebuild = _building(cluster)
    seal = cluster.seal_of(rebuild)
    cluster.pass_seconds(_SILENT_SECONDS)
    taken = _resume(cluster, rebuild)
    before = cluster.store()
    for act in (
        lambda: cluster.beat(rebuild),
        lambda: cluster.client.seal(rebuild.id, seal),
        lambda: cluster.client.fail_rebuild(rebuild.id, EndRebuild(epoch=1, error="zombie")),
    ):
        assert refused(Refused, act).code == "epoch_outdated"
    assert cluster.store() == before
    assert not cluster.beat(taken)
    cluster.seal(taken)
    assert refused(Refused, lambda: cluster.client.seal(rebuild.id, seal)).code == "epoch_outdated"


@pytest.mark.case("rules:R22")
def test_a_failure_that_crosses_a_take_over_fails_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old driver gives up at the very moment in which another one takes over: the rebuild goes on."""
    rebuild = _building(cluster)
    cluster.pass_seconds(_SILENT_SECONDS)
    catalog, taken = cluster.context.catalog, list[StoreRebuild]()
    commit = catalog.commit

    def crossed(change: Change) -> bool:
        if change.operation.what == "rebuild failed" and not taken:
            taken.append(_resume(cluster, rebuild))
        return commit(change)

    monkeypatch.setattr(catalog, "commit", crossed)
    act = lambda: cluster.client.fail_rebuild(rebuild.id, EndRebuild(epoch=1, error="zombie"))  # noqa: E731
    assert refused(Refused, act).code == "epoch_outdated"
    assert (cluster.client.rebuild(rebuild.id).status, cluster.status(2)) == ("running", "building")
    assert not cluster.beat(taken[0])


@pytest.mark.case("stores:H11", "rules:R15")
def test_what_the_old_driver_left_goes_after_the_grace(cluster: Cluster) -> None:
    """Its directory is noted at the take-over, and goes, zombie's later files and all; the new one's stays."""
    rebuild = _building(cluster)
    old = cluster.version(2).path
    cluster.manifest_of(rebuild)
    cluster.pass_seconds(_SILENT_SECONDS)
    taken = _resume(cluster, rebuild)
    noted = [row for row in cluster.client.reclaims() if old in row.id]
    assert [(row.kind, row.reason) for row in noted] == [("tree", "its driver is gone")]
    cluster.deep.put(f"{old}/base/p00001-s00-zombie.parquet", b"late")
    cluster.seal(taken)
    cluster.settle()
    assert len(cluster.files(old)) == 3
    cluster.pass_seconds(601)
    cluster.settle(1)
    assert (cluster.files(old), len(cluster.files(cluster.version(2).path))) == ([], 2)


@pytest.mark.case("stores:H11")
@pytest.mark.parametrize("end", ["killed", "failed", "succeeded"])
def test_an_ended_rebuild_is_not_resumed(cluster: Cluster, end: str) -> None:
    """What was killed, has failed or is done is refused, with how it ended and what to do instead."""
    rebuild = _building(cluster)
    if end == "killed":
        cluster.client.kill_rebuild(rebuild.id)
    elif end == "failed":
        cluster.pass_seconds(21)
        cluster.round()
    else:
        cluster.seal(rebuild)
        cluster.settle()
    before = cluster.store()
    error = refused(Refused, lambda: _resume(cluster, rebuild))
    assert (error.code, str(error.found).startswith(end)) == ("rebuild_ended", True)
    assert error.hint == "start a new one for flights"
    assert cluster.store() == before
    unknown = refused(NotFound, lambda: cluster.client.resume_rebuild("nope", ResumeRebuild(), StoreStart))
    assert unknown.code == "unknown_rebuild"


@pytest.mark.case("stores:H11")
def test_after_the_seal_nobody_is_needed(cluster: Cluster) -> None:
    """A rebuild that is sealed is given back as it is, however fresh its driver; no epoch or directory changes."""
    rebuild = _building(cluster)
    cluster.seal(rebuild)
    before = cluster.store()
    taken = _resume(cluster, rebuild)
    assert (taken.epoch, taken.stage, taken.driver) == (1, Stage.LOAD, "test")
    assert cluster.store() == before
    cluster.settle()
    assert cluster.store().current == {"dc-0": 2}


@pytest.mark.case("stores:H11", "rules:R22")
@pytest.mark.parametrize("drivers", [("second", "third"), ("same", "same")])
def test_of_two_resumers_one_wins(cluster: Cluster, drivers: tuple[str, str]) -> None:
    """Both ask at once, under two names or one: one gets the next epoch, the other is told that there is a driver."""
    rebuild = _building(cluster)
    cluster.pass_seconds(_SILENT_SECONDS)

    def attempt(driver: str) -> int | str:
        try:
            return _resume(cluster, rebuild, driver).epoch
        except Refused as error:
            return error.code

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(attempt, drivers))
    assert sorted(outcomes, key=str) == [2, "driver_alive"]
    assert cluster.version(2).epoch == 2


@pytest.mark.case("rules:R22")
def test_a_take_over_that_crosses_another_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second resumer looked while the driver was silent still, and commits after the first: it is turned away."""
    rebuild = _building(cluster)
    cluster.pass_seconds(_SILENT_SECONDS)
    catalog, first = cluster.context.catalog, list[StoreRebuild]()
    commit = catalog.commit

    def crossed(change: Change) -> bool:
        if change.operation.what == "resume rebuild" and not first:
            first.append(rebuild)
            first.append(_resume(cluster, rebuild, "same"))
        return commit(change)

    monkeypatch.setattr(catalog, "commit", crossed)
    assert refused(Refused, lambda: _resume(cluster, rebuild, "same")).code == "driver_alive"
    assert (cluster.version(2).epoch, first[-1].epoch) == (2, 2)


@pytest.mark.case("stores:H11")
def test_a_resumed_rebuild_can_be_resumed(cluster: Cluster) -> None:
    """The second driver dies as well: a third one takes over; when nobody does, the lease ends and all is cleaned."""
    rebuild = _building(cluster)
    cluster.pass_seconds(_SILENT_SECONDS)
    _resume(cluster, rebuild)
    cluster.pass_seconds(_SILENT_SECONDS)
    third = _resume(cluster, rebuild, "third")
    assert (third.epoch, cluster.version(2).path[-3:]) == (3, "-e3")
    cluster.manifest_of(third)
    cluster.pass_seconds(20.001)
    cluster.round()
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, "no sign of life" in str(view.error)) == ("failed", True)
    cluster.settle(2)
    cluster.pass_seconds(601)
    cluster.settle(1)
    assert cluster.files(f"stores/{cluster.store().uid}/v2") == []
    assert cluster.store().current == {"dc-0": 1}


@pytest.mark.case("stores:H11", "stores:J1")
def test_the_ledger_of_a_resumed_rebuild_must_balance(cluster: Cluster) -> None:
    """A second driver's account is judged like a first one's."""
    rebuild = _building(cluster)
    cluster.pass_seconds(_SILENT_SECONDS)
    taken = _resume(cluster, rebuild)
    good = cluster.seal_of(taken)
    lost = good.ledger.model_copy(update={"read": good.ledger.read.model_copy(update={"count": 2})})
    bad = good.model_copy(update={"ledger": lost})
    assert refused(Failed, lambda: cluster.client.seal(taken.id, bad)).code == "ledger_imbalance"
    assert cluster.client.seal(taken.id, good).stage == "load"
