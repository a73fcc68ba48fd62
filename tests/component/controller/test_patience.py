"""A driver and a controller that is away for a while: what was not answered is asked again, and is done once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from anew.api.rebuilds import RebuildView
from anew.core.errors import AnewError, Failed, OutcomeUnknown, Unreachable
from anew.core.stores.plan import Plan
from anew.deepstore.arrow import ArrowDeepStore
from anew.rebuild.driving import run_plan
from anew.rebuild.observer import LogObserver
from anew.rebuild.stores.making import StoreRun, making
from tests.component.controller.harness import Cluster

_ASKED = ("begin_rebuild", "seal", "rebuild")


class _Away:
    """A controller whose answers to one method are lost, or that is not reached, a number of times."""

    def __init__(self, client: Any, method: str, times: int, *, done: bool) -> None:
        self._client, self._method, self._left, self._done = client, method, times, done

    def __getattr__(self, name: str) -> Any:
        act: Callable[..., Any] = getattr(self._client, name)
        if name != self._method or self._left == 0:
            return act

        def lost(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if self._done:
                act(*given, **named)
                raise OutcomeUnknown("answer_lost", "the answer was lost")
            raise Unreachable("controller_unreachable", "the controller does not answer")

        return lost


def a_run(cluster: Cluster, controller: Any, request_id: str = "r-1") -> StoreRun:
    """A driver on virtual time, in whose pauses nodes report and the controller goes on."""
    seconds = [0.0]

    def pause(for_seconds: float) -> None:
        seconds[0] += for_seconds
        cluster.settle(1)

    return StoreRun(
        controller=controller,
        build=lambda *_: pytest.fail("an empty push builds nothing"),
        observer=LogObserver(),
        request_id=request_id,
        driver="test",
        clock=cluster.clock,
        patience_seconds=15.0,
        clock_seconds=lambda: seconds[0],
        pause=pause,
        lease=lambda *_: nullcontext(_NoLease()),  # type: ignore[arg-type]  # signs of life are another's
    )


def run_to_end(plan: Plan, run: StoreRun) -> RebuildView:
    """Run a plan to its end; its view."""
    return run_plan(plan, run, making(run))


class _NoLease:
    lost = False


@pytest.mark.parametrize("method", _ASKED)
@pytest.mark.parametrize("done", [False, True], ids=["not reached", "answer lost"])
def test_what_was_not_answered_is_asked_again_and_done_once(cluster: Cluster, method: str, done: bool) -> None:  # noqa: FBT001 - a parameter
    """One version is made, however often the driver had to ask."""
    cluster.create()
    plan = cluster.empty_push_plan()
    view = run_to_end(plan, a_run(cluster, _Away(cluster.client, method, 3, done=done)))
    assert (view.status, cluster.status(1)) == ("succeeded", "current")
    assert [operation.what for operation in cluster.client.history("flights")].count("begin full_push") == 1


@pytest.mark.parametrize("method", _ASKED)
def test_a_driver_waits_only_so_long(cluster: Cluster, method: str) -> None:
    """Its patience at an end it ends, and says what is known; a seal that was done goes on without it."""
    cluster.create()
    plan = cluster.empty_push_plan()
    with pytest.raises(AnewError) as caught:
        run_to_end(plan, a_run(cluster, _Away(cluster.client, method, 1_000, done=method == "seal")))
    assert caught.value.code == {"seal": "seal_unknown"}.get(method, "controller_unreachable")
    if method == "begin_rebuild":
        assert cluster.store().versions == ()
    else:
        cluster.until(lambda: cluster.status(1) == "current")


class _Asleep:
    """A controller whose driver sleeps right before its seal, until what it made has been reclaimed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        if name == "seal":
            for seconds in (21, 601):
                self._cluster.pass_seconds(seconds)
                self._cluster.settle()
        return getattr(self._cluster.client, name)


def test_a_driver_that_slept_past_its_lease_says_why_its_rebuild_ended(cluster: Cluster) -> None:
    """Whether its sign of life or its seal is answered first: it is the lease, not the files that went since."""
    cluster.create()
    plan = cluster.empty_push_plan()
    with pytest.raises(Failed) as caught:
        run_to_end(plan, a_run(cluster, _Asleep(cluster)))
    assert (caught.value.code, "lease" in str(caught.value.found)) == ("rebuild_failed", True)
    assert cluster.status(1) == "reclaimed"


def test_a_manifest_that_may_be_there_is_written_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows whether the file arrived: the same again is the same; in the end the version fails at once."""
    cluster.create()
    plan, put, left = cluster.empty_push_plan(), ArrowDeepStore.put, [3]

    def lost(store: Any, path: str, content: bytes) -> None:
        put(store, path, content)
        left[0] -= 1
        if left[0] >= 0:
            raise OutcomeUnknown("deep_store_outcome_unknown", "the deep store did not say")

    monkeypatch.setattr(ArrowDeepStore, "put", lost)
    assert run_to_end(plan, a_run(cluster, cluster.client)).status == "succeeded"
    left[0], plan_again = 1_000, cluster.empty_push_plan()
    with pytest.raises((OutcomeUnknown, Failed)):
        run_to_end(plan_again, replace(a_run(cluster, cluster.client), request_id="r-2"))
    assert cluster.status(2) == "failed"


@pytest.mark.case("stores:H1", "rules:R22")
def test_a_repeated_request_follows_the_driver_that_is_at_work(cluster: Cluster) -> None:
    """It builds nothing, as two drivers of one epoch would meet in one directory, and ends as the other one does."""
    cluster.create()
    plan = cluster.push_plan()
    begun, pauses = cluster.begin(plan, "r-1"), [0]

    def pause(_seconds: float) -> None:
        pauses[0] += 1
        if pauses[0] == 3:
            cluster.seal(begun)
        cluster.settle(1)

    view = run_to_end(plan, replace(a_run(cluster, cluster.client), driver="another", pause=pause))
    assert (view.id, view.status, view.epoch, cluster.status(1)) == (begun.id, "succeeded", 1, "current")


@pytest.mark.case("stores:H1", "rules:R22")
def test_a_repeated_request_hears_that_the_driver_is_gone(cluster: Cluster) -> None:
    """The lease of the one that began it ends, and with it the rebuild: the answer says so."""
    cluster.create()
    plan = cluster.push_plan()
    cluster.begin(plan, "r-1")

    def pause(_seconds: float) -> None:
        cluster.pass_seconds(7)
        cluster.settle(1)

    with pytest.raises(Failed) as caught:
        run_to_end(plan, replace(a_run(cluster, cluster.client), driver="another", pause=pause))
    assert (caught.value.code, "no sign of life" in str(caught.value.found)) == ("rebuild_failed", True)
