"""A round's steps are kept apart: whatever one of them meets, all others are taken, and it is told."""

from __future__ import annotations

from typing import Any

import pytest

from anew.api.stores.replicas import DeadLetter, ReplicaReport, ReplicaState
from anew.core.errors import Unreachable
from anew.segments.record import parse_record
from tests.component.controller.harness import Cluster, node_report

_WEEK_SECONDS = 7 * 86_400
_STEPS = {
    "a store": "anew.controller.stores.step.step_schedule",
    "a reclaim": "anew.controller.upkeep.reclaim._remove",
    "dead letters": "anew.controller.stores.deadletters._copy",
    "low water": "anew.controller.reconcile.move_low_water",
    "records": "anew.controller.restore.records.record_path",
}


@pytest.mark.parametrize("error", [ZeroDivisionError("nobody foresaw this"), OSError(5, "Input/output error")], ids=str)
@pytest.mark.parametrize("broken", list(_STEPS))
def test_what_one_step_meets_is_told_and_holds_up_no_other(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, broken: str, error: Exception
) -> None:
    """Every kind of step is broken for one store; the other store is served, reclaimed, set aside and remembered."""
    for name in ("flights", "trains"):
        cluster.create(name)
        cluster.serve(cluster.push_plan(name))
        cluster.serve(cluster.repush_plan(name))
    first, second = cluster.store("flights"), cluster.store("trains")
    module, _, function = _STEPS[broken].rpartition(".")
    monkeypatch.setattr(_STEPS[broken], _breaking(_found(module, function), first.uid, error))
    for store in (first, second):
        (at, offset), *_ = cluster.write(store.feeds[0], 1)
        letter = DeadLetter(
            store_uid=store.uid, feed=at.feed, partition=at.partition, offset=offset, reason="its time is bad"
        )
        cluster.client.report(node_report("node-1", dead_letters=(letter,)))
    cluster.pass_seconds(_WEEK_SECONDS)
    crashed = _rounds(cluster)
    cluster.pass_seconds(600)
    crashed += _rounds(cluster)
    assert set(crashed) == {str(error)}
    assert cluster.status(1, "trains") == "reclaimed"
    assert cluster.log.topic("trains_dead_letters") is not None
    newest = cluster.files(f"catalog/stores/{second.uid}")[-1]
    assert parse_record(cluster.deep.get(newest), newest).store.has_left(1)


def _rounds(cluster: Cluster) -> list[str]:
    """What three rounds crashed with."""
    crashed = []
    for _ in range(3):
        try:
            cluster.settle(1)
        except ExceptionGroup as group:
            crashed += [str(one) for one in group.exceptions]
    return crashed


def _found(module: str, function: str) -> Any:
    return getattr(__import__(module, fromlist=[function]), function)


def _breaking(function: Any, uid: str, error: Exception) -> Any:
    """The function, which fails where it is given something of a store."""

    def broken(*given: Any, **named: Any) -> Any:
        if uid in str([repr(one) for one in given if not hasattr(one, "catalog")]):
            raise type(error)(*error.args)
        return function(*given, **named)

    return broken


def test_a_step_that_is_refused_round_after_round_is_a_problem(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deep store that lets nothing be deleted: after a minute the status names the step and why, until it works."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.serve(cluster.repush_plan())
    cluster.pass_seconds(_WEEK_SECONDS)
    cluster.settle(1)

    def refused(_prefix: str) -> int:
        raise Unreachable("deep_store_denied", "nobody may delete here")

    monkeypatch.setattr(cluster.deep, "delete_tree", refused)
    cluster.pass_seconds(600)
    cluster.round()
    assert cluster.client.status().healthy
    cluster.pass_seconds(61)
    cluster.round()
    (problem,) = cluster.client.status().problems
    assert "the controller does not get on with reclaim" in problem.what
    assert "nobody may delete here" in problem.what
    monkeypatch.undo()
    cluster.round()
    assert cluster.client.status().healthy


def test_crashes_of_two_steps_are_told_with_their_causes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's trouble names each step and what it met, and another crash is news."""
    for name in ("flights", "trains"):
        cluster.create(name)

    def crashes(_context: Any, store: Any) -> None:
        raise ZeroDivisionError(f"by {store.name}")

    monkeypatch.setattr("anew.controller.reconcile.move_low_water", crashes)
    loop = cluster.context.loops.loop("reconciler")
    loop.turn(cluster.round)
    (trouble,) = cluster.context.loops.troubles()
    assert trouble.error == (
        "ZeroDivisionError: in the step of low water of flights: by flights; "
        "ZeroDivisionError: in the step of low water of trains: by trains"
    )


def test_replicas_that_wait_and_partitions_that_nobody_has_are_problems(cluster: Cluster) -> None:
    """What keeps a whole store from its writes or its readers is no error of any replica, and is told all the same."""
    cluster.create()
    cluster.serve(cluster.push_plan())

    def waits(replica: ReplicaReport) -> ReplicaReport:
        return replica.model_copy(update={"error": "the log does not answer", "stuck_ms": 4 * 3_600_000})

    for node in cluster.nodes:
        cluster.report(node, waits)
    (problem,) = cluster.client.status().problems
    assert "has not got on for 14400 s: the log does not answer (1 more)" in problem.what

    def loads(replica: ReplicaReport) -> ReplicaReport:
        return replica.model_copy(update={"state": ReplicaState.LOADING})

    for node in cluster.nodes:
        cluster.report(node, loads)
    (problem,) = cluster.client.status().problems
    assert "flights_v1: no node has loaded what can be read of partition 0, 1" in problem.what


def test_a_record_that_cannot_be_written_is_a_problem(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a lost catalog would bring back an old store: after a minute the status names it and why."""
    cluster.create()
    cluster.settle(1)

    def full(_path: str, _content: bytes) -> None:
        raise Unreachable("deep_store_unreachable", "no space left on the device")

    monkeypatch.setattr(cluster.deep, "put", full)
    cluster.create("trains")
    cluster.round()
    cluster.pass_seconds(61)
    cluster.round()
    problems = [problem.what for problem in cluster.client.status().problems]
    assert any("the record of trains in dc-0: no space left" in what for what in problems), problems
    monkeypatch.undo()
    cluster.round()
    assert cluster.client.status().healthy
    assert cluster.files(f"catalog/stores/{cluster.store('trains').uid}")


def test_a_catalog_that_goes_away_ends_the_round(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked a few times, and not for each step: each would wait for as long. One step may be too much for it."""
    for name in ("flights", "trains", "ships", "trams", "ferries"):
        cluster.create(name)
    cluster.settle(1)
    asked = []

    def away(_context: Any, store: Any) -> None:
        asked.append(store.name)
        raise Unreachable("catalog_unreachable", "the database does not answer")

    monkeypatch.setattr("anew.controller.stores.step.collect", away)
    with pytest.raises(Unreachable, match="does not answer"):
        cluster.round()
    assert len(asked) == 3


@pytest.mark.parametrize("away", ["the deep store", "the log"])
def test_what_is_away_is_waited_for_once_in_a_round(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    """Files of many versions are due, or many stores' low water: a round is there for swaps and lost nodes too."""
    for name in ("flights", "trains", "ships"):
        cluster.create(name)
        cluster.serve(cluster.push_plan(name))
        # So that there is something to forget once the first version has gone.
        cluster.write(cluster.store(name).feeds[0], 4)
        cluster.serve(cluster.repush_plan(name))
    cluster.pass_seconds(_WEEK_SECONDS)
    if away == "the deep store":
        cluster.settle(1)
        cluster.pass_seconds(600)
    asked = []

    def silent(*given: Any) -> Any:
        asked.append(given)
        raise Unreachable("gone", f"{away} does not answer")

    if away == "the log":
        monkeypatch.setattr(cluster.log, "offset_for_time", silent)
    else:
        monkeypatch.setattr(cluster.deep, "delete_tree", silent)
    cluster.round()
    assert len(asked) == 1
    cluster.pass_seconds(61)
    cluster.round()
    assert any(f"{away} does not answer" in problem.what for problem in cluster.client.status().problems)
