"""Readiness, replicas and their nodes, dead letters, desired state, status: driven by reports, round by round."""

from __future__ import annotations

from typing import Any

import pytest

from anew.api.models import NodeFault
from anew.api.stores.replicas import DeadLetter, ReplicaReport, ReplicaState
from anew.api.stores.requests import UpdateStore
from anew.controller.engine.context import Context
from anew.controller.stores.versiontopics import make_version_topics
from anew.core.errors import InvalidRequest, Refused, Unreachable
from anew.core.feed import PositionMap
from anew.core.stores.rebuild import StoreRebuild
from anew.core.stores.store import Store
from tests.component.controller.harness import Change, Cluster, node_report, plain, refused


def _with(**changes: Any) -> Change:
    return lambda replica: replica.model_copy(update=changes)


def _report_all(cluster: Cluster, change: Change | None = None) -> None:
    for node in cluster.nodes:
        cluster.report(node, change)


def _sealed(cluster: Cluster, **settings: Any) -> StoreRebuild:
    cluster.create(**settings)
    rebuild = cluster.begin(cluster.push_plan())
    cluster.seal(rebuild)
    return rebuild


# -- readiness -------------------------------------------------------------------------------------------------------


@pytest.mark.case("rules:R17")
def test_the_target_is_taken_at_one_instant(cluster: Cluster) -> None:
    """The ends at the moment when all are loaded are the target; writes that come later do not move it away."""
    _sealed(cluster)
    feed = cluster.store().feeds[0]
    cluster.write(feed, 30)
    _report_all(cluster, _with(state=ReplicaState.LOADING))
    cluster.round()
    assert cluster.there(1).ready_target is None
    nowhere = _with(position=PositionMap(dict.fromkeys(feed.feed_partitions(), 0)))
    _report_all(cluster, nowhere)
    cluster.round()
    target = cluster.there(1).ready_target
    assert target == cluster.ends(feed)
    cluster.write(feed, 30, "later")
    _report_all(cluster, nowhere)
    cluster.round()
    assert (cluster.there(1).ready_target, cluster.status(1)) == (target, "loading")
    _report_all(cluster, _with(position=target, lag_records=30))
    cluster.settle(0)
    cluster.round()
    assert cluster.status(1) in ("ready", "current")
    cluster.settle(2)
    assert cluster.status(1) == "current"


@pytest.mark.case("rules:R17")
def test_one_replica_short_of_the_target_is_not_ready(cluster: Cluster) -> None:
    """Every replica must be at or past the target in each feed partition that it reads, but only in those."""
    _sealed(cluster)
    feed = cluster.store().feeds[0]
    cluster.write(feed, 40)
    _report_all(cluster)
    cluster.round()

    def one_short(replica: ReplicaReport) -> ReplicaReport:
        if replica.partition != 1:
            return replica
        at = max(replica.position)
        return replica.model_copy(update={"position": replica.position.with_offset(at, replica.position[at] - 1)})

    for _ in range(3):
        _report_all(cluster, one_short)
        cluster.round()
        assert cluster.status(1) == "loading"
    _report_all(cluster)
    cluster.round()
    assert cluster.status(1) == "ready"


@pytest.mark.case("stores:I3", "rules:R17")
@pytest.mark.parametrize("lag", [{"lag_records": 1_001}, {"lag_ms": 60_001}])
def test_a_replica_behind_its_limit_is_not_ready(cluster: Cluster, lag: dict[str, int]) -> None:
    """Past the target but behind by more than the limit: no swap; within the limit again: swap."""
    rebuild = _sealed(cluster)
    for _ in range(4):
        _report_all(cluster, _with(**lag))
        cluster.round()
    assert (cluster.status(1), cluster.client.rebuild(rebuild.id).status) == ("loading", "running")
    for _ in range(3):
        _report_all(cluster, _with(**{name: value - 1 for name, value in lag.items()}))
        cluster.round()
    assert (cluster.status(1), cluster.client.rebuild(rebuild.id).status) == ("current", "succeeded")


@pytest.mark.case("rules:R17")
def test_at_the_end_of_an_old_log_a_replica_is_ready(cluster: Cluster) -> None:
    """However old the last record is: at the log's end the lag is 0, and the version gets ready."""
    cluster.create()
    cluster.write(cluster.store().feeds[0], 10)
    cluster.pass_seconds(40 * 86_400)
    rebuild = cluster.begin(cluster.push_plan())
    cluster.seal(rebuild)
    cluster.settle()
    assert cluster.status(1) == "current"


@pytest.mark.case("rules:R17")
def test_never_ready_becomes_failed_with_the_rates(cluster: Cluster) -> None:
    """At the deadline a version that is still behind has failed, and the error says who is how far at which rate."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan())
    cluster.seal(rebuild)
    behind = _with(lag_records=5_000, records_per_s=12.0)
    cluster.clock.advance(300_000)
    _report_all(cluster, behind)
    cluster.round()
    cluster.round()
    assert cluster.client.rebuild(rebuild.id).status == "running"
    cluster.clock.advance(1)
    _report_all(cluster, behind)
    cluster.round()
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, "5000 records behind at 12 records/s" in str(view.error)) == ("failed", True)
    assert (cluster.status(2), cluster.store().current) == ("failed", {"dc-0": 1})


def test_a_replica_in_error_fails_the_version(cluster: Cluster) -> None:
    """A replica that gave up, such as on a checksum, fails the version with its reason; the old one serves on."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan())
    cluster.seal(rebuild)

    def broken(replica: ReplicaReport) -> ReplicaReport:
        if replica.version == 1 or replica.partition == 0:
            return replica
        return replica.model_copy(
            update={"state": ReplicaState.ERROR, "error": "checksum_mismatch: p1", "error_code": "checksum_mismatch"}
        )

    _report_all(cluster, broken)
    cluster.round()
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, "checksum_mismatch: p1" in str(view.error)) == ("failed", True)
    assert cluster.store().current == {"dc-0": 1}


def test_a_silent_node_holds_a_version_back(cluster: Cluster) -> None:
    """A replica that nobody reports is missing, not ready."""
    _sealed(cluster)
    for _ in range(4):
        cluster.report("node-1")
        cluster.clock.advance(4_000)
        cluster.round()
    assert cluster.status(1) == "loading"


def test_the_position_of_all_replicas_is_the_least(cluster: Cluster) -> None:
    """What clients wait for is where every replica is; while one does not report, nothing is known."""
    cluster.create(replicas=2)
    cluster.serve(cluster.push_plan())
    feed = cluster.store().feeds[0]
    cluster.write(feed, 20)
    cluster.report("node-1")
    assert sum(cluster.client.position("flights").values()) == 0
    cluster.report("node-2")
    assert cluster.client.position("flights") == cluster.ends(feed)
    cluster.clock.advance(7_000)
    cluster.report("node-1")
    assert cluster.client.position("flights") == PositionMap()


# -- replicas and nodes ----------------------------------------------------------------------------------------------


def _holders(cluster: Cluster, number: int = 1) -> set[str]:
    return {node for nodes in cluster.there(number).assignment.values() for node in nodes}


@pytest.mark.case("rules:R25")
def test_a_lost_node_s_replicas_are_given_to_others(cluster: Cluster) -> None:
    """Away for longer than the limit: others are assigned at once, and the lost one leaves when these are ready."""
    cluster.create(partitions=4)
    cluster.serve(cluster.push_plan())
    assert _holders(cluster) == {"node-1", "node-2"}
    cluster.listen_on(59)
    cluster.report("node-1")
    cluster.round()
    assert _holders(cluster) == {"node-1", "node-2"}
    cluster.listen_on(2)
    cluster.report("node-1")
    mine = [p for p, nodes in cluster.there(1).assignment.items() if "node-1" in nodes]
    others = [p for p in range(4) if p not in mine]
    cluster.round()
    after = cluster.there(1).assignment
    assert all(after[p] == ("node-1",) for p in mine)
    assert all(after[p] == ("node-2", "node-1") for p in others), "the predecessor stays until the successor is ready"
    cluster.report(
        "node-1", lambda r: r if r.partition in mine else r.model_copy(update={"state": ReplicaState.LOADING})
    )
    cluster.round()
    assert _holders(cluster) == {"node-1", "node-2"}
    cluster.report("node-1")
    cluster.round()
    assert _holders(cluster) == {"node-1"}
    settled = cluster.there(1).assignment
    cluster.report("node-1")
    cluster.round()
    assert cluster.there(1).assignment == settled


@pytest.mark.case("rules:R25")
def test_a_node_that_comes_back_in_time_keeps_its_replicas(cluster: Cluster) -> None:
    """A restart within the limit moves nothing, and a new node takes nothing from those that live."""
    cluster.create(partitions=4)
    cluster.serve(cluster.push_plan())
    before = cluster.there(1).assignment
    cluster.clock.advance(50_000)
    cluster.report("node-1")
    cluster.round()
    cluster.report("node-2")
    cluster.client.report(node_report("node-3"))
    cluster.round()
    assert cluster.there(1).assignment == before


def test_a_new_node_gets_the_replicas_that_were_missing(cluster: Cluster) -> None:
    """With fewer nodes than replicas each partition has all; another node fills up what was missing."""
    cluster.create(replicas=3)
    cluster.serve(cluster.push_plan())
    assert all(len(nodes) == 2 for nodes in cluster.there(1).assignment.values())
    cluster.client.report(node_report("node-3"))
    cluster.nodes = ("node-1", "node-2", "node-3")
    cluster.settle(2)
    assert all(set(nodes) == set(cluster.nodes) for nodes in cluster.there(1).assignment.values())


# -- dead letters ----------------------------------------------------------------------------------------------------


@pytest.mark.case("rules:R21", "stores:I6")
def test_a_dead_letter_is_recorded_once(cluster: Cluster) -> None:
    """The same record told by every replica, again and again, is one dead letter, counted at its store alone."""
    store, other = cluster.create(), cluster.create("other")

    def letter(offset: int, uid: str = store.uid, feed: str = store.feeds[0].id) -> DeadLetter:
        return DeadLetter(store_uid=uid, feed=feed, partition=0, offset=offset, reason="written_at")

    for node in cluster.nodes:
        cluster.client.report(node_report(node, dead_letters=(letter(5), letter(9))))
    cluster.client.report(node_report("node-1", dead_letters=(letter(9), letter(9, other.uid, other.feeds[0].id))))
    assert cluster.client.store("flights").dead_letters == 2
    assert cluster.client.store("other").dead_letters == 1
    assert [s.dead_letters for s in cluster.client.status().stores] == [2, 1]
    assert 'anew_dead_letters{store="flights"} 2.0' in cluster.http.get("/metrics").text


# -- desired state ---------------------------------------------------------------------------------------------------


def test_nodes_hold_sealed_versions_only(cluster: Cluster) -> None:
    """A version is loaded once it is sealed, by the nodes that it is assigned to, and let go once it is retired."""
    cluster.create(partitions=4)

    def versions(node: str) -> dict[int, tuple[int, ...]]:
        desired = cluster.client.desired(node, "dc-0")
        assert desired is not None
        return {v.number: v.partitions for store in desired.stores for v in store.versions}

    rebuild = cluster.begin(cluster.push_plan())
    assert (versions("node-1"), versions("node-2")) == ({}, {})
    cluster.seal(rebuild)
    held = [versions(node)[1] for node in cluster.nodes]
    assert sorted(p for partitions in held for p in partitions) == [0, 1, 2, 3]
    assert versions("node-9") == {}
    cluster.client.kill_rebuild(rebuild.id)
    assert versions("node-1") == {}


def test_a_long_poll_ends_without_news(cluster: Cluster) -> None:
    """Asked for something newer than it knows, a node gets 204 when nothing is, and the state when something is."""
    cluster.create()
    desired = cluster.client.desired("node-1", "dc-0")
    assert desired is not None
    path = f"/v1/nodes/node-1/desired?fabric=dc-0&after={desired.revision}"
    assert cluster.http.get(path).status_code == 204
    assert cluster.client.desired("node-1", "dc-0", after=desired.revision) is None
    cluster.client.update_store("flights", UpdateStore(settings={"reads": False}))
    newer = cluster.client.desired("node-1", "dc-0", after=desired.revision)
    assert newer is not None
    assert newer.revision > desired.revision
    _report_all(cluster)
    assert cluster.client.desired("node-1", "dc-0", after=newer.revision) is None, "reports are no news"
    elsewhere = refused(InvalidRequest, lambda: cluster.client.desired("node-1", "dc-9"))
    assert elsewhere.code == "unknown_fabric"
    stranger = node_report("node-1").model_copy(update={"fabric": "dc-9"})
    assert refused(InvalidRequest, lambda: cluster.client.report(stranger)).code == "unknown_fabric"


# -- status ----------------------------------------------------------------------------------------------------------


def test_the_status_names_what_is_wrong_and_what_comes_next(cluster: Cluster) -> None:
    """A silent node, its missing replicas and a broken one are each named with a command; when all is well, nothing."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    status = cluster.client.status()
    assert (status.healthy, status.problems) == (True, ())
    silent_since_ms = cluster.clock()
    cluster.clock.advance(7_000)
    error = {"state": ReplicaState.ERROR, "error": "disk is full"}
    cluster.report("node-1", _with(**error))
    status = cluster.client.status()
    found = {problem.what: (problem.since_ms, problem.hint) for problem in status.problems}
    (mine,) = [p for p, nodes in cluster.there(1).assignment.items() if nodes == ("node-1",)]
    assert found == {
        "node node-2 does not report": (silent_since_ms, "anew node list"),
        f"flights_v1/{mine} on node-1: disk is full": (None, "anew store show flights"),
        f"flights_v1/{1 - mine} has 0 of 1 replicas": (None, "anew node list"),
    }
    assert not status.healthy
    assert [(node.id, node.alive) for node in cluster.client.nodes()] == [("node-1", True), ("node-2", False)]
    cluster.clock.advance(7_000)
    assert "dc-0 has no live node" in {problem.what for problem in cluster.client.status().problems}


def test_lag_and_metrics_are_shown(cluster: Cluster) -> None:
    """The store's view has the largest lag of its current version, and the metrics say the same."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.report("node-1", _with(lag_records=7, lag_ms=1_500))
    fabric = cluster.client.store("flights").fabrics["dc-0"]
    assert (fabric.lag_records, fabric.lag_seconds) == (7, 1.5)
    metrics = cluster.http.get("/metrics").text
    for line in (
        "anew_healthy 1.0",
        'anew_node_alive{fabric="dc-0",node="node-1"} 1.0',
        'anew_feed_lag_records{fabric="dc-0",store="flights"} 7.0',
        'anew_current_version{fabric="dc-0",store="flights"} 1.0',
        "anew_rebuilds_running 0.0",
    ):
        assert line in metrics


def test_the_controller_says_that_it_is_there(cluster: Cluster) -> None:
    """Health and readiness answer, the cluster's parts are named, and the API describes itself."""
    assert plain(cluster.client.healthz()) == {"status": "alive"}
    assert cluster.http.get("/readyz").json()["revision"] == cluster.context.catalog.revision()
    assert cluster.client.cluster().deep_store == cluster.deep.root_uri
    assert "/v1/rebuilds/{rebuild_id}/seal" in cluster.http.get("/openapi.json").json()["paths"]


def test_an_error_in_one_store_does_not_hold_up_the_others(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store whose step is refused is passed over; the next ones take theirs in the same round."""
    for name in ("a", "b"):
        cluster.create(name)
        cluster.seal(cluster.begin(cluster.push_plan(name)))
    catalog, broken = cluster.context.catalog, cluster.store("a").uid
    commit = catalog.commit

    def refusing(change: Any) -> bool:
        if change.operation.subject == "a":
            raise Refused("some_code", "not now")
        return commit(change)

    monkeypatch.setattr(catalog, "commit", refusing)
    cluster.settle()
    assert (cluster.status(1, "a"), cluster.status(1, "b")) == ("loading", "current")
    monkeypatch.undo()
    cluster.settle()
    assert cluster.status(1, "a") == "current"
    assert cluster.store("a").uid == broken


def test_a_crash_in_one_store_does_not_hold_up_the_others(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw in one step of a store is told of when all others had theirs, its own other steps too."""
    for name in ("a", "b"):
        cluster.create(name)
        cluster.seal(cluster.begin(cluster.push_plan(name)))

    def crashing(context: Context, store: Store) -> None:
        if store.name == "a":
            raise ZeroDivisionError("of a")
        make_version_topics(context, store)

    monkeypatch.setattr("anew.controller.stores.step.make_version_topics", crashing)
    for _ in range(5):
        _report_all(cluster)
        with pytest.raises(ExceptionGroup, match="steps crashed") as crashed:
            cluster.round()
        assert [str(error) for error in crashed.value.exceptions] == ["of a"]
    assert (cluster.status(1, "a"), cluster.status(1, "b")) == ("current", "current")


def test_what_is_wrong_with_a_node_is_told_while_it_serves(cluster: Cluster) -> None:
    """A node that says that its disk is full is a problem at once, and the reason given once it is silent."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    fault = NodeFault(code="disk_full", what="the disk is full", since_ms=7, hint="free some space")
    report = cluster.context.node_reports.report(cluster.context.catalog.nodes()[0])
    cluster.client.report(report.model_copy(update={"faults": (fault,)}))
    (problem,) = cluster.client.status().problems
    assert (problem.what, problem.since_ms, problem.hint) == (f"{report.node}: the disk is full", 7, "free some space")
    cluster.clock.advance(7_000)
    expected = f"node {report.node} does not report; the last that it said: the disk is full"
    assert expected in {problem.what for problem in cluster.client.status().problems}


def test_what_a_full_catalog_cannot_keep_is_told_all_the_same(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node and catalog share a disk that is full: the status says so at once, and stops when the node is well."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    fault = NodeFault(code="disk_full", what="the disk is full", since_ms=7, hint="free some space")
    report = cluster.context.node_reports.report(cluster.context.catalog.nodes()[0])

    def full(_record: Any) -> None:
        raise Unreachable("catalog_unreachable", "the catalog cannot be written")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.context.catalog, "put_node", full)
        with pytest.raises(Unreachable):
            cluster.client.report(report.model_copy(update={"faults": (fault,)}))
        assert [problem.what for problem in cluster.client.status().problems] == [f"{report.node}: the disk is full"]
    cluster.client.report(report)
    assert not cluster.client.status().problems


@pytest.mark.parametrize("state", list(ReplicaState))
def test_a_replica_that_has_an_error_is_a_problem_in_whatever_state(cluster: Cluster, state: ReplicaState) -> None:
    """One that waits for its disk answers as little as one that gave up."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.report("node-2")
    cluster.report("node-1", _with(state=state, error="the node's disk is full", error_code="disk_full"))
    assert any("the node's disk is full" in problem.what for problem in cluster.client.status().problems)


def test_what_is_paused_or_waits_is_noted_with_the_command_that_ends_it(cluster: Cluster) -> None:
    """Notes name what is paused and the settings that wait for a new version; the cluster is healthy."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    assert cluster.client.status().notes == ()
    cluster.update(partitions=4)
    cluster.client.pause("flights")
    cluster.client.pause(None)
    status = cluster.client.status()
    hints = [note.hint for note in status.notes]
    assert (status.healthy, hints) == (True, ["anew unpause", "anew unpause --store flights", "anew repush flights"])
    cluster.client.unpause("flights")
    cluster.client.unpause(None)
    assert [note.hint for note in cluster.client.status().notes] == ["anew repush flights"]
