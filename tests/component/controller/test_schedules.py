"""Scheduled repushes: started once when due, held back by what stands in the way, tried again after a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anew.api.models import EndRebuild, NodeReport
from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.api.stores.requests import RollBack
from anew.controller.engine.schedules import step
from anew.controller.reconcile import Reconciler
from anew.controller.stores import views
from anew.controller.stores.schedule import RepushSchedule, facts_of
from anew.core.errors import Failed
from anew.core.feed import PositionMap
from anew.core.moment import utc_text
from anew.core.schedule import request_id_of
from anew.core.stores.planning import RepushRequest
from anew.core.stores.rebuild import StoreRebuild
from tests.component.controller.harness import LIMITS, Cluster, node_report, opened_cluster, plain

_EVERY = "*/10 * * * *"
_PERIOD_SECONDS = 600


def _due_ms(cluster: Cluster) -> int:
    """The schedule's next time."""
    return (cluster.clock() // (_PERIOD_SECONDS * 1000) + 1) * _PERIOD_SECONDS * 1000


def _wait_until_due(cluster: Cluster) -> int:
    due_ms = _due_ms(cluster)
    cluster.pass_seconds((due_ms - cluster.clock()) / 1000)
    return due_ms


def _scheduled(cluster: Cluster, name: str = "flights", **settings: str) -> None:
    """A store that serves and has a schedule that was seen."""
    cluster.create(name)
    cluster.serve(cluster.push_plan(name))
    cluster.update(name, repush_schedule=_EVERY, **settings)
    cluster.settle(1)


def _begin(cluster: Cluster, name: str = "flights") -> StoreRebuild:
    """What the launched driver does first."""
    request_id = next(request_id for store, request_id in reversed(cluster.launched) if store == name)
    return cluster.begin(cluster.repush_plan(name), request_id)


def _schedule(cluster: Cluster, name: str = "flights") -> dict[str, Any]:
    found = cluster.client.store(name).schedule
    assert found is not None
    view: dict[str, Any] = plain(found)
    return view


def test_what_is_due_is_launched_once(cluster: Cluster) -> None:
    """At its time, and not before, one driver is started under the id that the time gives; rounds change nothing."""
    _scheduled(cluster)
    due_ms = _due_ms(cluster)
    cluster.pass_seconds((due_ms - 1 - cluster.clock()) / 1000)
    cluster.settle(3)
    assert cluster.launched == []
    cluster.pass_seconds(0.001)
    cluster.settle(4)
    request_id = request_id_of(cluster.store().uid, due_ms, 0)
    assert cluster.launched == [("flights", request_id)]
    rebuild = _begin(cluster)
    cluster.seal(rebuild)
    cluster.settle()
    assert cluster.client.rebuild(rebuild.id).status == "succeeded"
    assert (cluster.store().current, len(cluster.launched)) == ({"dc-0": 2}, 1)
    _wait_until_due(cluster)
    cluster.settle(2)
    assert cluster.launched[1:] == [("flights", request_id_of(cluster.store().uid, due_ms + 600_000, 0))]


@pytest.mark.case("rules:R22")
def test_two_controllers_launch_once(cluster: Cluster) -> None:
    """Both find it due in the same ms on the same store: one writes the start down and launches, the other does not."""
    _scheduled(cluster)
    _wait_until_due(cluster)
    seen = cluster.store()
    for _ in range(2):
        step(cluster.context, RepushSchedule(cluster.context, seen, []))
    assert len(cluster.launched) == 1
    cluster.start_over()
    cluster.settle(2)
    assert len(cluster.launched) == 1
    starts = [row for row in cluster.client.history("flights") if row.what == "scheduled repush"]
    assert [row.detail["reasons"] for row in starts] == [[f"due since {utc_text(cluster.clock())}"]]


def test_a_condition_that_does_not_hold_settles_the_time(cluster: Cluster) -> None:
    """Nothing starts, the view says with which value, and the next time is judged anew."""
    _scheduled(cluster, repush_when="stale or feed_records > 30")
    _wait_until_due(cluster)
    cluster.settle(2)
    assert cluster.launched == []
    state = cluster.store().schedule
    assert state is not None
    assert state.reasons == ("not stale", "feed_records is 0, not > 30")
    assert (_schedule(cluster)["due_ms"], _schedule(cluster)["next_ms"]) == (None, _due_ms(cluster))
    cluster.write(cluster.store().feeds[0], 31)
    cluster.settle(2)
    assert cluster.launched == []
    _wait_until_due(cluster)
    cluster.settle(2)
    assert len(cluster.launched) == 1
    state = cluster.store().schedule
    assert state is not None
    assert state.reasons[1:] == ("not stale", "feed_records is 31, > 30")


def _pause_all(cluster: Cluster) -> Callable[[], object]:
    cluster.client.pause(None)
    return lambda: cluster.client.unpause(None)


def _pause_store(cluster: Cluster) -> Callable[[], object]:
    cluster.client.pause("flights")
    return lambda: cluster.client.unpause("flights")


def _roll_back(cluster: Cluster) -> Callable[[], object]:
    cluster.serve(cluster.repush_plan())
    cluster.client.roll_back("flights", RollBack())
    return lambda: cluster.client.unpause("flights")


def _run_push(cluster: Cluster) -> Callable[[], object]:
    rebuild = cluster.begin(cluster.push_plan())
    cluster.seal(rebuild)

    def finish() -> None:
        cluster.until(lambda: cluster.client.rebuild(rebuild.id).status == "succeeded")

    return finish


def _defer(cluster: Cluster) -> Callable[[], object]:
    number = cluster.serve(cluster.repush_plan(request=RepushRequest(defer_swap=True)))
    return lambda: cluster.swap(number)


def _end_writes(cluster: Cluster) -> Callable[[], object]:
    cluster.update(writes=False)
    return lambda: cluster.update(writes=True)


_BLOCKS = [
    pytest.param(_pause_all, "paused: paused by tester", id="cluster paused"),
    pytest.param(_pause_store, "paused: paused by tester", id="store paused"),
    pytest.param(_roll_back, "paused: rolled back from version 2 to 1 in dc-0", id="rolled back"),
    pytest.param(_run_push, "flights_v2 is loading", id="push runs"),
    pytest.param(_defer, "flights_v2 is deferred", id="deferred"),
    pytest.param(_end_writes, "writes = false", id="no writes"),
]


@pytest.mark.case("stores:H9", "stores:H10", "stores:H2")
@pytest.mark.parametrize(("block", "why"), _BLOCKS)
def test_what_is_blocked_stays_due(
    cluster: Cluster, block: Callable[[Cluster], Callable[[], object]], why: str
) -> None:
    """Nothing starts and the view says why; as soon as the block goes, the repush that was due starts."""
    _scheduled(cluster)
    due_ms = _due_ms(cluster)
    release = block(cluster)
    cluster.pass_seconds((due_ms - cluster.clock()) / 1000)
    cluster.round()
    view = _schedule(cluster)
    assert (cluster.launched, view["due_ms"], view["reasons"]) == ([], due_ms, [why])
    state = cluster.store().schedule
    assert state is not None
    assert (state.reasons, state.request_id) == ((why,), None)
    release()
    cluster.settle(2)
    assert cluster.launched == [("flights", request_id_of(cluster.store().uid, due_ms, 0))]


@pytest.mark.case("stores:H9")
def test_a_rollback_holds_schedules_until_somebody_lets_go(cluster: Cluster) -> None:
    """No swap forward, no push, no unpausing of the cluster lets the schedule go on: unpausing the store does."""
    _scheduled(cluster)
    cluster.serve(cluster.repush_plan())
    cluster.client.roll_back("flights", RollBack())
    held = "rolled back from version 2 to 1 in dc-0"
    assert _schedule(cluster)["held"] == held
    note = f"scheduled repushes are held: {held}; to let them go on: anew unpause --store flights"
    assert cluster.client.store("flights").notes == (note,)
    cluster.swap(2)
    assert _schedule(cluster)["held"] == f"{held}; since then version 2 became current in dc-0"
    cluster.serve(cluster.push_plan())
    held = f"{held}; since then version 3 became current in dc-0"
    cluster.client.unpause(None)
    cluster.pass_seconds(3 * _PERIOD_SECONDS)
    cluster.settle(2)
    assert (cluster.launched, _schedule(cluster)["held"]) == ([], held)
    cluster.client.unpause("flights")
    cluster.settle(1)
    assert (len(cluster.launched), _schedule(cluster)["held"], cluster.client.store("flights").notes) == (
        1,
        None,
        (),
    )
    assert cluster.client.history("flights", 5)[1].what == "unpause"


@pytest.mark.parametrize("end", ["killed", "failed", "expired"])
def test_a_failure_is_tried_again_later(cluster: Cluster, end: str) -> None:
    """However it failed, the next try is a minute later, then two, under another id; a success forgets the failures."""
    _scheduled(cluster)
    uid = cluster.store().uid
    _wait_until_due(cluster)
    cluster.settle(1)
    for failures, wait_seconds in ((1, 60), (2, 120)):
        _end_badly(cluster, _begin(cluster), end)
        cluster.settle(2)
        retry_ms = cluster.clock() + wait_seconds * 1000
        view = _schedule(cluster)
        assert (view["failures"], view["next_ms"], view["under_way"]) == (failures, retry_ms, None)
        cluster.pass_seconds(wait_seconds - 0.001)
        cluster.settle(1)
        assert len(cluster.launched) == failures
        cluster.pass_seconds(0.001)
        cluster.settle(1)
        assert cluster.launched[failures:] == [("flights", request_id_of(uid, retry_ms, failures))]
    rebuild = _begin(cluster)
    cluster.seal(rebuild)
    cluster.settle()
    view = _schedule(cluster)
    assert (view["failures"], view["under_way"], view["next_ms"]) == (0, None, _due_ms(cluster))


def _end_badly(cluster: Cluster, rebuild: StoreRebuild, end: str) -> None:
    if end == "killed":
        cluster.client.kill_rebuild(rebuild.id)
    elif end == "expired":
        cluster.pass_seconds(21)
    else:
        cluster.client.fail_rebuild(rebuild.id, EndRebuild(epoch=rebuild.epoch, error="no space left"))


def test_a_launch_that_never_begins_has_failed(cluster: Cluster) -> None:
    """A driver that does not begin in time counts as failed; so does one that could not be started at all."""
    _scheduled(cluster)
    _wait_until_due(cluster)
    cluster.settle(1)
    cluster.pass_seconds(180)
    cluster.settle(2)
    assert (_schedule(cluster)["failures"], _schedule(cluster)["under_way"]) == (0, cluster.launched[0][1])
    cluster.pass_seconds(0.001)
    cluster.settle(1)
    assert (_schedule(cluster)["failures"], _schedule(cluster)["under_way"]) == (1, None)
    cluster.pass_seconds(60)
    cluster.settle(1)
    assert len({request_id for _, request_id in cluster.launched}) == 2


@pytest.mark.parametrize("error", [OSError("no process left"), Failed("no_launcher", "nothing starts drivers here")])
def test_a_launch_that_fails_does_not_hold_up_others(cluster: Cluster, error: Exception) -> None:
    """An error of the launcher is logged; other stores' rounds go on, and the start counts as failed after a while."""

    def failing(_kind: str, _store: str, _request_id: str) -> None:
        raise error

    cluster.reconciler = Reconciler(replace(cluster.context, launch=failing), cluster.clock.seconds)
    _scheduled(cluster)
    cluster.create("zebras")
    _wait_until_due(cluster)
    cluster.seal(cluster.begin(cluster.push_plan("zebras")))
    cluster.settle()
    assert cluster.status(1, "zebras") == "current"
    cluster.pass_seconds(181)
    cluster.settle(1)
    assert _schedule(cluster)["failures"] == 1


@pytest.fixture
def one_at_a_time(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster in which one scheduled repush may be under way, over all stores."""
    with opened_cluster(tmp_path, replace(LIMITS, scheduled_rebuilds=1)) as opened:
        yield opened


def test_a_limit_holds_over_all_stores(one_at_a_time: Cluster) -> None:
    """Two stores are due and one may start: the other waits, says so, and starts when the first has ended."""
    cluster = one_at_a_time
    for name in ("a", "b"):
        _scheduled(cluster, name)
    _wait_until_due(cluster)
    cluster.settle(3)
    assert [store for store, _ in cluster.launched] == ["a"]
    assert _schedule(cluster, "b")["reasons"] == ["1 scheduled repush(es) are under way, 1 may be"]
    rebuild = _begin(cluster, "a")
    cluster.settle(1)
    assert len(cluster.launched) == 1
    cluster.client.kill_rebuild(rebuild.id)
    cluster.settle(1)
    assert [store for store, _ in cluster.launched] == ["a", "b"]


def test_the_view_shows_the_schedule_and_why(cluster: Cluster) -> None:
    """When it comes next, under what condition, what is under way; nothing for a store without a schedule."""
    cluster.create("plain")
    assert cluster.client.store("plain").schedule is None
    _scheduled(cluster, repush_when="age > 1s")
    due_ms = _due_ms(cluster)
    assert _schedule(cluster) == {
        "schedule": _EVERY,
        "when": "age > 1s",
        "due_ms": None,
        "next_ms": due_ms,
        "reasons": [f"nothing is due before {utc_text(due_ms)}"],
        "failures": 0,
        "under_way": None,
        "held": None,
    }
    _wait_until_due(cluster)
    cluster.settle(1)
    view = _schedule(cluster)
    assert view["under_way"] == cluster.launched[0][1]
    assert view["reasons"] == [f"{view['under_way']} is under way since {utc_text(due_ms)}"]


def test_another_schedule_begins_anew(cluster: Cluster) -> None:
    """A changed schedule forgets what was due and what failed; the same one again, or another condition, does not."""
    _scheduled(cluster)
    cluster.client.pause("flights")
    _wait_until_due(cluster)
    cluster.settle(1)
    cluster.update(repush_schedule=_EVERY, owner="somebody", repush_when="age > 0s")
    cluster.settle(1)
    assert _schedule(cluster)["due_ms"] == cluster.clock()
    cluster.update(repush_schedule="5 * * * *")
    assert cluster.store().schedule is None
    cluster.client.unpause("flights")
    cluster.settle(2)
    assert (cluster.launched, _schedule(cluster)["due_ms"]) == ([], None)
    cluster.update(repush_schedule="", repush_when="")
    cluster.pass_seconds(2 * 3_600)
    cluster.settle(2)
    assert (cluster.launched, cluster.store().schedule) == ([], None)


def test_a_store_without_a_version_waits_for_its_first_push(cluster: Cluster) -> None:
    """There is nothing to repush: nothing starts, and the view says so."""
    cluster.create()
    cluster.update(repush_schedule=_EVERY)
    cluster.settle(1)
    _wait_until_due(cluster)
    cluster.settle(2)
    assert (cluster.launched, _schedule(cluster)["reasons"]) == ([], ["there is no version to repush"])


def test_facts_are_those_of_the_replica_that_is_furthest(cluster: Cluster) -> None:
    """Feed records count once each, however many replicas report and in whatever order they are listed."""
    cluster.create(replicas=2, partitions=1)
    cluster.serve(cluster.push_plan())
    feed = cluster.store().feeds[0]
    cluster.write(feed, 30)

    def told(node: str, position: PositionMap) -> NodeReport:
        replica = ReplicaReport(
            store_uid=cluster.store().uid, version=1, partition=0, state=ReplicaState.APPLYING, position=position
        )
        return node_report(node, replica)

    ahead, behind = cluster.ends(feed), PositionMap(dict.fromkeys(feed.feed_partitions(), 1))
    for reports in (
        [told("node-1", ahead), told("node-2", behind)],
        [told("node-1", behind), told("node-2", ahead)],
    ):
        facts = facts_of(cluster.store(), reports, cluster.clock() + 5)
        assert (facts.feed_records, facts.rows, facts.age_ms, facts.stale) == (30, 1, 5, False)
        assert facts.unsorted_share == 30 / 31
    cluster.update(partitions=8)
    assert facts_of(cluster.store(), [], cluster.clock()).stale


def test_a_store_says_when_a_repush_would_sort_much(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once most of what the current version was made of came through its feeds; a few records are worth nothing."""
    cluster.create(replicas=1, partitions=1)
    cluster.serve(cluster.push_plan())
    cluster.write(cluster.store().feeds[0], 30)
    cluster.settle(2)
    assert cluster.client.store("flights").notes == ()
    monkeypatch.setattr(views, "_MANY_UNSORTED", 30)
    (note,) = cluster.client.store("flights").notes
    assert note.startswith("97% of what was read for the current version came through its feeds (30 records)")
    assert note.endswith("to sort it: anew repush flights")


@pytest.mark.case("stores:H2")
def test_a_push_comes_before_a_scheduled_repush(cluster: Cluster) -> None:
    """A user's push ends the scheduled repush, which counts as failed and is tried again after the push."""
    _scheduled(cluster)
    _wait_until_due(cluster)
    cluster.settle(1)
    rebuild = _begin(cluster)
    push = cluster.begin(cluster.push_plan())
    cluster.settle(1)
    assert (cluster.client.rebuild(rebuild.id).status, _schedule(cluster)["failures"]) == ("killed", 1)
    cluster.seal(push)
    cluster.pass_seconds(60)
    cluster.round()
    assert _schedule(cluster)["reasons"] == ["flights_v3 is loading"]
    cluster.settle()
    assert (cluster.status(3), len(cluster.launched)) == ("current", 2)
