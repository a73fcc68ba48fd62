"""The controller's loops: swaps wait neither for upkeep nor until all other stores have been looked at."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from anew.controller.process import ControllerServer
from anew.controller.stores.versiontopics import make_version_topics
from tests.component.controller.harness import Cluster
from tests.component.node.harness import wait_for
from tests.component.node.test_node import free_port


def _hurry(cluster: Cluster) -> None:
    for _ in range(5):
        for node in cluster.nodes:
            cluster.report(node)
        cluster.reconciler.hurry()


def test_what_is_ready_is_swapped_and_nothing_else_is_done(cluster: Cluster) -> None:
    """A version that its nodes have loaded becomes current, its rebuild ends; what is due otherwise waits."""
    cluster.create()
    cluster.create("idle")
    cluster.serve(cluster.push_plan())
    cluster.pass_seconds(1)
    before = cluster.store("idle")
    rebuild = cluster.begin(cluster.push_plan())
    cluster.seal(rebuild)
    _hurry(cluster)
    assert (cluster.store().current, cluster.client.rebuild(rebuild.id).status) == ({"dc-0": 2}, "succeeded")
    assert cluster.store("idle") == before


def test_what_crashes_in_one_store_holds_up_no_other(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left to the round that follows, which tells it; the other store's version is swapped meanwhile."""

    def crashing(context: Any, store: Any) -> None:
        if store.name == "a":
            raise ZeroDivisionError("of a")
        make_version_topics(context, store)

    for name in ("a", "b"):
        cluster.create(name)
        cluster.seal(cluster.begin(cluster.push_plan(name)))
    monkeypatch.setattr("anew.controller.stores.step.make_version_topics", crashing)
    _hurry(cluster)
    assert cluster.status(1, "b") == "current"
    with pytest.raises(ExceptionGroup, match="steps crashed"):
        cluster.reconciler.advance()


def test_upkeep_that_hangs_keeps_nothing_from_being_swapped(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a log that is asked for marks does not answer, a sealed version becomes current."""
    cluster.create()
    asked, answered = threading.Event(), threading.Event()

    def hangs(*_: Any) -> None:
        asked.set()
        answered.wait(60)

    monkeypatch.setattr("anew.controller.reconcile.set_aside", hangs)
    server = ControllerServer(cluster.context, "127.0.0.1", free_port())
    serving = threading.Thread(target=server.run, name="controller", daemon=True)
    serving.start()
    try:
        wait_for("upkeep to hang", asked.is_set)
        cluster.seal(cluster.begin(cluster.push_plan()))

        def is_current() -> bool:
            for node in cluster.nodes:
                cluster.report(node)
            return cluster.store().current == {"dc-0": 1}

        wait_for("the swap", is_current)
        assert not answered.is_set()
    finally:
        answered.set()
        server.stop()
        serving.join(20)
