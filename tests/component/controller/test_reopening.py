"""Writes that were closed for a version that never served, or serves no more, are open again; none is lost (R10)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.api.stores.requests import RollBack
from anew.catalog.change import Change
from anew.controller.stores.feeds import open_and_close
from anew.core.errors import Refused, Unreachable
from anew.core.feed import FeedPartition
from anew.core.stores.planning import RepushRequest
from anew.core.stores.properties import RepushProperties
from anew.core.stores.rebuild import StoreRebuild
from anew.core.stores.store import Version
from anew.log.interface import TopicSpec
from tests.component.controller.harness import Cluster, refused


def _closing(cluster: Cluster) -> StoreRebuild:
    """Version 1 is hybrid and serves; version 2 is batch and about to close writes."""
    store = cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.write(store.feeds[0], 20)
    cluster.update(hybrid=False)
    return _sealed(cluster)


def _sealed(cluster: Cluster) -> StoreRebuild:
    rebuild = cluster.begin(cluster.repush_plan())
    cluster.seal(rebuild)
    return rebuild


def _is_closed(cluster: Cluster) -> bool:
    return cluster.store().feeds[0].closed


def _is_open(cluster: Cluster) -> None:
    """Catalog, routing and log agree that writes are taken."""
    feed = cluster.store().feeds[0]
    assert (feed.open, feed.moving, cluster.client.routing("flights").feed) == (True, False, feed)
    assert len(cluster.write(feed, 12, "open")) == 12


def _lost(version: Version, acknowledged: list[tuple[FeedPartition, int]]) -> list[tuple[FeedPartition, int]]:
    stop = version.stop
    return [] if stop is None else [(at, offset) for at, offset in acknowledged if offset >= stop[at]]


def _kill(cluster: Cluster, rebuild: StoreRebuild) -> None:
    cluster.client.kill_rebuild(rebuild.id)


def _fail(cluster: Cluster, _rebuild: StoreRebuild) -> None:
    def broken(replica: ReplicaReport) -> ReplicaReport:
        failed = {"state": ReplicaState.ERROR, "error": "a damaged base", "error_code": "checksum_mismatch"}
        return replica if replica.version == 1 else replica.model_copy(update=failed)

    for node in cluster.nodes:
        cluster.report(node, broken)
    cluster.round()


def _push(cluster: Cluster, _rebuild: StoreRebuild) -> None:
    cluster.begin(cluster.push_plan())


@pytest.mark.case("rules:R10", "stores:H3")
@pytest.mark.parametrize("ending", [_kill, _fail, _push], ids=["killed", "failed", "displaced"])
@pytest.mark.parametrize("moment", ["announced", "closed", "frozen"])
def test_a_version_that_ends_badly_gives_writes_back(
    cluster: Cluster, ending: Callable[[Cluster, StoreRebuild], None], moment: str
) -> None:
    """However it ends and however far the closing was, writes are open again, and what serves applies them."""
    rebuild = _closing(cluster)
    reached = {
        "announced": lambda: cluster.version(2).closing,
        "closed": lambda: _is_closed(cluster),
        "frozen": lambda: cluster.version(2).stop is not None,
    }
    cluster.until(reached[moment])
    ending(cluster, rebuild)
    cluster.settle(2)
    assert cluster.client.rebuild(rebuild.id).status in ("killed", "failed")
    assert cluster.store().current == {"dc-0": 1}
    _is_open(cluster)


@pytest.mark.case("rules:R10", "rules:R22")
def test_a_kill_while_the_logs_are_told_is_noticed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the log's closing and the catalog's knowing of it, the log is opened all the same."""
    rebuild = _closing(cluster)
    commit = cluster.context.catalog.commit

    def killed_meanwhile(change: Change) -> bool:
        if change.operation.what == "topics opened or closed":
            monkeypatch.undo()
            _kill(cluster, rebuild)
        return commit(change)

    monkeypatch.setattr(cluster.context.catalog, "commit", killed_meanwhile)
    cluster.until(lambda: cluster.status(2) == "retired")
    cluster.settle(2)
    _is_open(cluster)


@pytest.mark.case("rules:R10", "rules:R22")
def test_an_opening_that_nobody_knows_of_is_no_closed_log(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log was opened, the controller died before the catalog knew: the next closing closes it again."""
    rebuild = _closing(cluster)
    cluster.until(lambda: cluster.version(2).stop is not None)
    _kill(cluster, rebuild)
    commit = cluster.context.catalog.commit

    def dying(change: Change) -> bool:
        if change.operation.what == "topics opened or closed":
            raise Unreachable("catalog_unreachable", "the controller dies here")
        return commit(change)

    with monkeypatch.context() as patch:
        patch.setattr(cluster.context.catalog, "commit", dying)
        cluster.round()
    feed = cluster.store().feeds[0]
    assert (feed.open, feed.closed) == (False, False)
    acknowledged = cluster.write(feed, 9, "unknown")
    cluster.start_over()
    again = cluster.begin(cluster.repush_plan())
    cluster.seal(again)
    for _ in range(12):
        cluster.settle(1)
        try:
            acknowledged += cluster.write(feed, 1, "on")
        except Refused:
            continue
    assert cluster.status(3) == "current"
    assert cluster.version(3).stop == cluster.ends(feed)
    assert _lost(cluster.version(3), acknowledged) == []


@pytest.mark.case("rules:R10", "rules:R22")
def test_a_stale_controller_does_not_open(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is about to open a log, and sleeps while another closes it anew, changes nothing when it wakes up."""
    rebuild = _closing(cluster)
    cluster.until(lambda: cluster.version(2).stop is not None)
    _kill(cluster, rebuild)
    real, slept = cluster.log.set_open, list[bool]()

    def sleeping(spec: TopicSpec, *, is_open: bool, epoch: int) -> None:
        if not slept:
            slept.append(is_open)
            _sealed(cluster)
            cluster.start_over()
            cluster.until(lambda: cluster.version(3).stop is not None)
        real(spec, is_open=is_open, epoch=epoch)

    monkeypatch.setattr(cluster.log, "set_open", sleeping)
    open_and_close(cluster.context, cluster.store())
    assert slept == [True]
    feed = cluster.store().feeds[0]
    assert feed.closed
    assert refused(Refused, lambda: cluster.write(feed, 1, "zombie")).code == "topic_closed"
    cluster.settle()
    assert cluster.version(3).stop == cluster.ends(feed)
    assert cluster.status(3) == "current"


@pytest.mark.case("rules:R10", "rules:R22")
def test_a_stale_controller_does_not_close(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is about to close a log, and sleeps while the version is killed and writes go on, changes nothing."""
    rebuild = _closing(cluster)
    cluster.until(lambda: cluster.version(2).closing)
    real, slept = cluster.log.set_open, list[bool]()

    def sleeping(spec: TopicSpec, *, is_open: bool, epoch: int) -> None:
        if not slept:
            slept.append(is_open)
            _kill(cluster, rebuild)
            cluster.start_over()
            cluster.settle(2)
        real(spec, is_open=is_open, epoch=epoch)

    monkeypatch.setattr(cluster.log, "set_open", sleeping)
    open_and_close(cluster.context, cluster.store())
    assert slept == [False]
    _is_open(cluster)


@pytest.mark.case("rules:R10", "stores:H2")
@pytest.mark.parametrize("moment", ["announced", "frozen"])
def test_a_push_that_displaces_a_closing_version_closes_anew(cluster: Cluster, moment: str) -> None:
    """Writes that are accepted after the displaced version ended are below the push's own stop."""
    _closing(cluster)
    reached = {"announced": lambda: cluster.version(2).closing, "frozen": lambda: cluster.version(2).stop is not None}
    cluster.until(reached[moment])
    push = cluster.begin(cluster.push_plan())
    assert (cluster.status(2), cluster.version(3).stop) == ("killed", None)
    cluster.settle(2)
    feed = cluster.store().feeds[0]
    acknowledged = cluster.write(feed, 25, "after")
    cluster.seal(push)
    cluster.settle(8)
    assert cluster.status(3) == "current"
    assert _lost(cluster.version(3), acknowledged) == []
    assert cluster.version(3).stop == cluster.ends(feed)


@pytest.mark.case("rules:R10", "rules:R9")
def test_a_rollback_opens_writes_and_bars_the_way_forward(cluster: Cluster) -> None:
    """Back at the hybrid version writes are taken, so that the batch one lacks them and is not swapped in again."""
    _closing(cluster)
    cluster.until(lambda: cluster.status(2) == "current")
    cluster.client.roll_back("flights", RollBack())
    cluster.settle(2)
    _is_open(cluster)
    error = refused(Refused, lambda: cluster.swap(2))
    assert (error.code, "up to its stop" in str(error.found)) == ("feeds_missing", True)
    assert cluster.store().current == {"dc-0": 1}


@pytest.mark.case("rules:R10", "rules:R9")
def test_an_earlier_end_is_no_later_one(cluster: Cluster) -> None:
    """Of two batch versions the one whose writes ended earlier is not gone back to: it lacks what came between."""
    _closing(cluster)
    cluster.until(lambda: cluster.status(2) == "current")
    cluster.client.roll_back("flights", RollBack())
    cluster.settle(2)
    acknowledged = cluster.write(cluster.store().feeds[0], 30, "between")
    cluster.serve(cluster.repush_plan())
    assert (cluster.store().current, _lost(cluster.version(3), acknowledged)) == ({"dc-0": 3}, [])
    assert _lost(cluster.version(2), acknowledged) == acknowledged
    for act in (lambda: cluster.swap(2), lambda: cluster.client.roll_back("flights", RollBack(to=2))):
        assert refused(Refused, act).code == "feeds_missing"
    assert cluster.store().current == {"dc-0": 3}


@pytest.mark.case("rules:R10", "rules:R14")
def test_a_rollback_during_a_push_reopens_and_defers_it(cluster: Cluster) -> None:
    """A push onto a batch store knows the stop; when writes open again meanwhile it lacks them and is not swapped."""
    _closing(cluster)
    cluster.until(lambda: cluster.status(2) == "current")
    push = cluster.begin(cluster.push_plan())
    assert cluster.version(3).stop == cluster.version(2).stop
    cluster.seal(push)
    cluster.until(lambda: cluster.status(3) == "ready")
    cluster.client.roll_back("flights", RollBack())
    assert refused(Refused, lambda: cluster.swap(3)).code == "feeds_missing"
    cluster.settle(2)
    _is_open(cluster)
    assert (cluster.status(3), cluster.store().current) == ("deferred", {"dc-0": 1})
    assert refused(Refused, lambda: cluster.swap(3)).code == "feeds_missing"


@pytest.mark.case("rules:R10", "rules:R14")
def test_a_rollback_during_the_closing_gives_writes_back(cluster: Cluster) -> None:
    """The version that closes writes is not swapped over a rollback: it is deferred, and writes are open again."""
    store = cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.serve(cluster.repush_plan())
    cluster.write(store.feeds[0], 20)
    cluster.update(hybrid=False)
    _sealed(cluster)
    cluster.until(lambda: cluster.status(3) == "ready")
    cluster.client.roll_back("flights", RollBack())
    cluster.settle(3)
    assert (cluster.status(3), cluster.store().current) == ("deferred", {"dc-0": 1})
    _is_open(cluster)
    assert refused(Refused, lambda: cluster.swap(3)).code == "feeds_missing"
    (problem,) = [p for p in cluster.client.status().problems if "flights_v3" in p.what]
    assert problem.hint == f"it lacks writes that flights took since: anew rebuild kill {cluster.version(3).rebuild}"
    cluster.client.kill_rebuild(cluster.version(3).rebuild)
    cluster.settle(1)
    assert (cluster.status(3), cluster.client.status().healthy) == ("retired", True)


@pytest.mark.case("rules:R10")
def test_a_repush_of_an_earlier_end_goes_on_to_the_later_one(cluster: Cluster) -> None:
    """Made from a batch version that ended earlier, a new one applies the feed from there to where it ended at last."""
    _closing(cluster)
    cluster.until(lambda: cluster.status(2) == "current")
    earlier = cluster.version(2).stop
    cluster.client.roll_back("flights", RollBack())
    cluster.settle(2)
    acknowledged = cluster.write(cluster.store().feeds[0], 30, "between")
    cluster.serve(cluster.repush_plan())
    named = RepushRequest(RepushProperties(input_topic="flights_v2"), allow_not_serving=True)
    plan = cluster.repush_plan(request=named)
    assert (plan.source.end, plan.target.start, plan.target.stop) == (earlier, earlier, cluster.version(3).stop)
    cluster.serve(plan)
    version = cluster.version(4)
    assert (version.status.value, _lost(version, acknowledged)) == ("current", [])
    assert all(version.fabrics["dc-0"].start[at] <= offset for at, offset in acknowledged)


def _becoming_hybrid(cluster: Cluster) -> StoreRebuild:
    """Version 1 is batch and serves; version 2 takes nearline writes and is about to load."""
    cluster.create(hybrid=False)
    cluster.serve(cluster.push_plan())
    cluster.update(hybrid=True)
    return _sealed(cluster)


@pytest.mark.case("stores:H4", "stores:H5")
def test_a_rebuild_that_makes_a_store_hybrid_ends_when_writes_are_taken(cluster: Cluster) -> None:
    """Who waited for its end may write at once."""
    rebuild = _becoming_hybrid(cluster)
    cluster.until(lambda: cluster.client.rebuild(rebuild.id).status == "succeeded")
    _is_open(cluster)


@pytest.mark.case("stores:H4", "rules:R22")
def test_while_the_log_cannot_be_opened_the_rebuild_has_not_ended(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version serves readers meanwhile, and the rebuild ends when the log answers again."""
    rebuild = _becoming_hybrid(cluster)

    def away(_spec: TopicSpec, *, is_open: bool, epoch: int) -> None:
        raise Unreachable("log_unreachable", f"the log does not answer: open = {is_open}, epoch {epoch}")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.log, "set_open", away)
        cluster.until(lambda: cluster.status(2) == "current")
        cluster.settle(2)
        shown = cluster.client.rebuild(rebuild.id)
        assert (shown.status, shown.stage) == ("running", "swap")
    cluster.settle(1)
    assert cluster.client.rebuild(rebuild.id).status == "succeeded"
    _is_open(cluster)
