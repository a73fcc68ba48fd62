"""Driving, sealing and ending rebuilds: who may, who is turned away, and what each end leaves."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from anew.api.models import BeginRebuild, EndRebuild, Heartbeat, HeartbeatAnswer
from anew.api.rebuilds import StoreRebuildView, StoreStart, view_as
from anew.controller.engine.records import find
from anew.core.errors import Failed, InvalidRequest, NotFound, OutcomeUnknown, Refused, Unreachable
from anew.core.feed import PositionMap
from anew.core.ledger import Entry, Ledger
from anew.core.rebuild import Progress, Stage
from anew.core.stores.planning import RepushRequest
from anew.core.stores.properties import RepushProperties
from anew.core.stores.rebuild import Fingerprints, StoreRebuild
from anew.rebuild.lease import Lease
from tests.cluster.commands import wait_until
from tests.component.controller.harness import Cluster, node_report, refused

_PATIENCE_SECONDS = 30.0

# -- driving ---------------------------------------------------------------------------------------------------------


def _beat(cluster: Cluster, rebuild: StoreRebuild, stage: Stage = Stage.BUILD, **changes: Any) -> bool:
    beat = Heartbeat(**{"epoch": rebuild.epoch, "stage": stage, "progress": Progress(done=3, total=9), **changes})
    return cluster.client.heartbeat(rebuild.id, beat).kill_asked


def test_signs_of_life_keep_a_rebuild_alive(cluster: Cluster) -> None:
    """As long as its driver beats, a rebuild may take longer than the lease; the progress is shown."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    for _ in range(5):
        cluster.pass_seconds(15)
        assert not _beat(cluster, rebuild)
        cluster.round()
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, view.stage, view.progress.done) == ("running", "build", 3)


def test_a_driver_whose_spark_does_not_answer_is_alive(cluster: Cluster) -> None:
    """How far its job is may take long to say: its signs of life go on meanwhile, and the lease is renewed."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    asked, answered = threading.Event(), threading.Event()

    def measure() -> Progress:
        asked.set()
        answered.wait(_PATIENCE_SECONDS)
        return Progress(done=5, total=9, unit="tasks")

    def renewed(at_ms: int) -> bool:
        return find(cluster.context, rebuild.id).lease_until_ms > at_ms + 15_000

    with Lease(cluster.client, rebuild.id, rebuild.epoch, interval_seconds=0.01) as lease:
        lease.enter(Stage.BUILD, measure, lambda: None)
        assert asked.wait(_PATIENCE_SECONDS)
        for _ in range(3):
            cluster.pass_seconds(15)
            wait_until(partial(renewed, cluster.clock()), "the lease to be renewed")
        answered.set()
        wait_until(lambda: cluster.client.rebuild(rebuild.id).progress.done == 5, "the progress to be told")


@pytest.mark.parametrize(
    "failure",
    [
        Refused("revision_conflict", "the rebuild is changed by others all the time"),
        Failed("unexpected_answer", "this is not the answer of a controller"),
        Unreachable("controller_unreachable", "the controller does not answer"),
        OutcomeUnknown("answer_lost", "the answer was lost"),
        RuntimeError("what nobody thought of"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_one_sign_of_life_that_goes_wrong_stops_no_driver(
    cluster: Cluster, failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only who is told that the rebuild has ended, or is another's, leaves its job; else the next sign is given."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    cluster.pass_seconds(15)
    failures, beat = [failure, failure], cluster.client.heartbeat

    def heartbeat(rebuild_id: str, request: Heartbeat) -> HeartbeatAnswer:
        if failures:
            raise failures.pop()
        return beat(rebuild_id, request)

    monkeypatch.setattr(cluster.client, "heartbeat", heartbeat)
    with Lease(cluster.client, rebuild.id, rebuild.epoch, interval_seconds=0.01) as lease:
        until_ms = cluster.clock() + 15_000
        wait_until(lambda: find(cluster.context, rebuild.id).lease_until_ms > until_ms, "the lease to be renewed")
        assert not lease.lost


def test_a_driver_that_is_turned_away_stops(cluster: Cluster) -> None:
    """Another one took over: its job is cancelled."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    cancelled = threading.Event()
    with Lease(cluster.client, rebuild.id, rebuild.epoch + 1, interval_seconds=0.01) as lease:
        lease.enter(Stage.BUILD, Progress, cancelled.set)
        assert cancelled.wait(_PATIENCE_SECONDS)
        assert lease.lost


@pytest.mark.case("rules:R22")
def test_a_driver_without_a_sign_of_life_has_failed(cluster: Cluster) -> None:
    """When the lease ends the version is failed, the old one serves on, a zombie is told to stop and cannot seal."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan())
    seal = cluster.seal_of(rebuild)
    cluster.pass_seconds(20)
    cluster.round()
    assert cluster.client.rebuild(rebuild.id).status == "running"
    cluster.pass_seconds(0.001)
    cluster.round()
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, "no sign of life" in str(view.error)) == ("failed", True)
    assert _beat(cluster, rebuild)
    assert refused(Refused, lambda: cluster.client.seal(rebuild.id, seal)).code == "rebuild_ended"
    assert (cluster.status(1), cluster.status(2)) == ("current", "failed")
    cluster.serve(cluster.repush_plan())
    assert (cluster.store().current, cluster.status(2)) == ({"dc-0": 3}, "retired")


def test_a_sign_of_life_at_the_last_moment_counts(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that beats between the reconciler's look and its decision is not failed."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    cluster.pass_seconds(21)
    catalog = cluster.context.catalog
    listed = catalog.rebuilds(subject_uid=None, running_only=True)
    assert not _beat(cluster, rebuild)
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "rebuilds", lambda **_: listed)
        cluster.round()
    assert cluster.client.rebuild(rebuild.id).status == "running"
    assert cluster.status(1) == "building"


@pytest.mark.case("rules:R22")
def test_a_driver_of_another_epoch_is_turned_away(cluster: Cluster) -> None:
    """Beat, seal and failure of a driver that was replaced change nothing."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    seal = cluster.seal_of(rebuild, epoch=0)
    before = cluster.store()
    for act in (
        lambda: _beat(cluster, rebuild, epoch=0),
        lambda: cluster.client.seal(rebuild.id, seal),
        lambda: cluster.client.fail_rebuild(rebuild.id, EndRebuild(epoch=0, error="zombie")),
    ):
        assert refused(Refused, act).code == "epoch_outdated"
    assert cluster.store() == before
    assert cluster.client.rebuild(rebuild.id).status == "running"


def test_a_driver_cannot_claim_the_controller_s_stages(cluster: Cluster) -> None:
    """A sign of life from a stage that only the controller enters is refused; going back is too."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    for stage in (Stage.LOAD, Stage.SWAP, Stage.DONE):
        assert refused(InvalidRequest, partial(_beat, cluster, rebuild, stage)).code == "bad_stage"
    assert not _beat(cluster, rebuild)
    assert refused(Refused, lambda: _beat(cluster, rebuild, Stage.BEGIN)).code == "stage_backwards"
    assert cluster.client.rebuild(rebuild.id).stage == "build"


def test_an_unknown_rebuild_is_not_found(cluster: Cluster) -> None:
    """Whatever is asked of a rebuild that is not there is refused with where to look."""
    for act in (
        lambda: cluster.client.rebuild("nope"),
        lambda: cluster.client.kill_rebuild("nope"),
        lambda: cluster.client.fail_rebuild("nope", EndRebuild()),
        lambda: cluster.client.heartbeat("nope", Heartbeat(epoch=1, stage=Stage.BUILD)),
    ):
        error = refused(NotFound, act)
        assert (error.code, error.hint) == ("unknown_rebuild", "anew rebuild list")


# -- sealing ---------------------------------------------------------------------------------------------------------

_ONE = Entry(count=1, hash=77)
_BAD_SEALS: list[tuple[dict[str, Any], str]] = [
    ({"ledger": Ledger(read=Entry(count=2, hash=77), written=_ONE)}, "ledger_imbalance"),
    ({"ledger": Ledger(read=Entry(count=1, hash=78), written=_ONE)}, "ledger_imbalance"),
    ({"ledger": Ledger(read=Entry(count=2, hash=77), written=Entry(count=2, hash=77))}, "fingerprint_mismatch"),
    ({"ledger": Ledger(read=Entry(count=1, hash=5), written=Entry(count=1, hash=5))}, "fingerprint_mismatch"),
    ({"fingerprint": Fingerprints(source=76, target=77)}, "fingerprint_mismatch"),
]


@pytest.mark.case("stores:J1", "rules:R19")
@pytest.mark.parametrize(("change", "code"), _BAD_SEALS)
def test_an_account_that_does_not_balance_never_swaps(cluster: Cluster, change: dict[str, Any], code: str) -> None:
    """A ledger that lost rows, or files that hold others, is not sealed; the old version serves on."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan())
    error = refused(Failed, lambda: cluster.client.seal(rebuild.id, cluster.seal_of(rebuild, **change)))
    assert error.code == code
    assert (cluster.status(2), cluster.version(2).manifest) == ("building", None)
    cluster.client.fail_rebuild(rebuild.id, EndRebuild(epoch=rebuild.epoch, error=str(error)))
    cluster.settle()
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, view.error) == ("failed", str(error))
    assert (cluster.store().current, cluster.status(1)) == ({"dc-0": 1}, "current")


def test_a_manifest_that_is_not_there_is_not_sealed(cluster: Cluster) -> None:
    """The controller looks at the deep store itself before it commits a manifest."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    seal = cluster.seal_of(rebuild)
    cluster.deep.delete(seal.manifest.path)
    assert refused(Failed, lambda: cluster.client.seal(rebuild.id, seal)).code == "file_missing"
    assert cluster.status(1) == "building"


@pytest.mark.case("rules:R22")
def test_a_repeated_seal_is_the_same_seal(cluster: Cluster) -> None:
    """A driver whose answer was lost asks again and is told the same, even after the swap."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    seal = cluster.seal_of(rebuild)
    first, again = cluster.client.seal(rebuild.id, seal), cluster.client.seal(rebuild.id, seal)
    assert first == again
    cluster.settle()
    assert cluster.client.seal(rebuild.id, seal).status == "succeeded"
    assert len(cluster.store().versions) == 1


def test_a_beat_during_the_seal_does_not_stop_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life come from another thread of the driver: one in the middle of the seal is no conflict."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    seal = cluster.seal_of(rebuild)
    stat = type(cluster.deep).stat
    beats: list[bool] = []

    def beating(store: Any, path: str) -> Any:
        if not beats:
            beats.append(_beat(cluster, rebuild))
        return stat(store, path)

    monkeypatch.setattr(type(cluster.deep), "stat", beating)
    assert cluster.client.seal(rebuild.id, seal).stage == "load"
    assert beats == [False]


# -- ending ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("stores:H3")
def test_a_killed_rebuild_never_serves(cluster: Cluster) -> None:
    """Killed while building: the driver is told at its next beat, nothing is sealed, and the files go later."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan())
    seal = cluster.seal_of(rebuild)
    directory = cluster.version(2).path
    killed = cluster.client.kill_rebuild(rebuild.id)
    assert (killed.status, killed.error, cluster.status(2)) == ("killed", "killed by tester", "killed")
    assert _beat(cluster, rebuild)
    assert refused(Refused, lambda: cluster.client.seal(rebuild.id, seal)).code == "rebuild_ended"
    assert refused(Refused, lambda: cluster.client.kill_rebuild(rebuild.id)).code == "rebuild_ended"
    cluster.settle()
    assert cluster.files(directory) != []
    cluster.pass_seconds(601)
    cluster.round()
    assert (cluster.files(directory), cluster.status(2)) == ([], "reclaimed")
    assert (cluster.status(1), cluster.store().current) == ("current", {"dc-0": 1})


@pytest.mark.case("stores:H3")
def test_a_rebuild_may_be_killed_while_it_loads(cluster: Cluster) -> None:
    """After the seal, before the swap: killed all the same, and the version never becomes current."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan())
    cluster.seal(rebuild)
    cluster.client.kill_rebuild(rebuild.id)
    cluster.settle()
    assert (cluster.status(2), cluster.store().current) == ("retired", {"dc-0": 1})
    assert refused(Refused, lambda: cluster.swap(2)).code == "bad_transition"


def test_what_serves_cannot_be_killed(cluster: Cluster) -> None:
    """Between swap and the rebuild's end a kill is refused: the version serves, and rollback is the way back."""
    cluster.create()
    rebuild = cluster.begin(cluster.push_plan())
    cluster.seal(rebuild)
    while cluster.status(1) != "ready":
        cluster.report("node-1")
        cluster.report("node-2")
        cluster.round()
    cluster.swap(1)
    error = refused(Refused, lambda: cluster.client.kill_rebuild(rebuild.id))
    assert (error.code, error.hint) == ("swapped_already", "to go back: anew rollback flights")
    cluster.settle(1)
    assert cluster.client.rebuild(rebuild.id).status == "succeeded"


def test_an_operation_is_on_record(cluster: Cluster) -> None:
    """Who did what is in the history: begin, seal, swap with their rebuild, newest first."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rows = [row for row in cluster.client.history("flights") if row.what != "low water"]
    done = [row.what for row in reversed(rows)]
    assert done.index("begin full_push") < done.index("seal version") < done.index("swap")
    assert next(row for row in rows if row.what == "begin full_push").actor == "tester"


@pytest.mark.case("stores:A5")
def test_a_source_that_does_not_serve_is_on_record(cluster: Cluster) -> None:
    """A repush of a named backup, allowed, records in the rebuild what it read and that it was allowed."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.serve(cluster.repush_plan())
    properties = RepushProperties(input_topic="flights_v1")
    refused(Refused, lambda: cluster.repush_plan(request=RepushRequest(properties)))
    rebuild = cluster.begin(cluster.repush_plan(request=RepushRequest(properties, allow_not_serving=True)))
    view = view_as(cluster.client.rebuild(rebuild.id), StoreRebuildView)
    assert (view.plan.source.version, view.plan.allow_not_serving) == (1, True)
    assert cluster.version(3).source_version == 1


def test_a_begin_request_names_its_node_reports(cluster: Cluster) -> None:
    """Only nodes that are alive when the rebuild begins are assigned replicas, balanced among them."""
    cluster.create(partitions=4)
    cluster.clock.advance(7_000)
    cluster.client.report(node_report("node-2"))
    cluster.client.begin_rebuild(BeginRebuild(plan=cluster.push_plan(), request_id="r"), StoreStart)
    assert cluster.there(1).assignment == dict.fromkeys(range(4), ("node-2",))
    assert cluster.there(1).start == PositionMap(dict.fromkeys(cluster.store().feeds[0].feed_partitions(), 0))
