"""Answers of the controller: its client loses nothing of them, so that the command line prints what was answered."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import BaseModel

from anew.api.http import ControllerClient
from anew.api.models import Collect, Pause, RestoreCatalog
from anew.api.stores.requests import RollBack, Swap
from anew.api.topics import CreateTopic
from anew.cli.output import shape
from tests.component.controller.harness import Cluster
from tests.component.controller.tables.tables_harness import Tables

_ASKED: dict[str, Callable[[ControllerClient], BaseModel]] = {
    "/v1/status": lambda client: client.status(),
    "/v1/stores/flights": lambda client: client.store("flights"),
    "/v1/stores/flights?version=1": lambda client: client.store("flights", 1),
    "/v1/stores/flights/snapshot": lambda client: client.snapshot("flights"),
    "/v1/stores/flights/routing": lambda client: client.routing("flights"),
    "/v1/tables/trips": lambda client: client.table("trips"),
    "/v1/tables/trips/snapshot?segments=true": lambda client: client.table_snapshot("trips", segments=True),
    "/v1/topics/clicks": lambda client: client.topic("clicks"),
    "/v1/cluster": lambda client: client.cluster(),
    "/healthz": lambda client: client.healthz(),
}
_DONE: dict[str, tuple[BaseModel, Callable[[ControllerClient], BaseModel]]] = {
    "/v1/stores/flights/swap": (
        Swap(version=1, dry_run=True, force=True),
        lambda client: client.swap("flights", Swap(version=1, dry_run=True, force=True)),
    ),
    "/v1/stores/flights/rollback": (
        RollBack(dry_run=True, force=True),
        lambda client: client.roll_back("flights", RollBack(dry_run=True, force=True)),
    ),
    "/v1/gc": (Collect(dry_run=True), lambda client: client.collect(Collect(dry_run=True))),
    "/v1/pause": (Pause(store="flights"), lambda client: client.pause("flights")),
    "/v1/unpause": (Pause(), lambda client: client.unpause(None)),
    "/v1/catalog/restore": (
        RestoreCatalog(dry_run=True),
        lambda client: client.restore_catalog(RestoreCatalog(dry_run=True)),
    ),
}


@pytest.fixture
def full(cluster: Cluster) -> Cluster:
    """Two versions, one in the making, a table with a refresh under way, something paused and a schedule."""
    cluster.create(repush_schedule="0 3 * * *")
    cluster.serve(cluster.push_plan())
    cluster.update(partitions=8)
    cluster.serve(cluster.repush_plan())
    tables = Tables(cluster)
    tables.create()
    tables.load("a", "b", "c")
    tables.update(sort="city")
    refresh = tables.begin(tables.plan(max_segments=2))
    tables.commit(refresh, tables.failed(refresh, refresh.plan.segments[0].segment))
    tables.settle(2)
    cluster.begin(cluster.repush_plan())
    cluster.client.create_topic(CreateTopic(name="clicks", partitions=2, retention_seconds=60))
    return cluster


def test_what_is_asked_comes_back_whole(full: Cluster) -> None:
    """Every member of what the controller shows is one of the client's answer, with the same value."""
    rebuilds: dict[str, Callable[[ControllerClient], BaseModel]] = {
        f"/v1/rebuilds/{view.id}": lambda client, view=view: client.rebuild(view.id)  # type: ignore[misc]  # mypy knows no type of a lambda's default
        for view in full.client.rebuilds()
    }
    assert {view.kind for view in full.client.rebuilds()} == {"full_push", "repush", "table_load", "refresh"}
    for route, ask in {**_ASKED, **rebuilds}.items():
        answered = full.http.get(route).json()
        assert shape(ask(full.client)) == answered, route
        assert list(answered) == list(shape(ask(full.client))), route


def test_what_is_done_comes_back_whole(full: Cluster) -> None:
    """So it is with the answers to what changes something, or would."""
    for route, (body, act) in _DONE.items():
        answered = full.http.post(route, json=body.model_dump(), headers={"anew-actor": "tester"}).json()
        assert shape(act(full.client)) == answered, route


def test_a_node_that_is_silent_has_copies_that_nobody_knows(full: Cluster) -> None:
    """They have no build and no hash, and say so; the copies of a node that reports have both."""
    heard = [copy for segment in full.client.segments("trips") for copy in segment.replicas]
    full.listen_on(20)
    answered = full.http.get("/v1/tables/trips/segments").json()["items"]
    silent = [copy for segment in answered for copy in segment["replicas"]]
    assert len(silent) == len(heard) > 0
    assert {copy.state for copy in heard} != {"unknown"}
    for copy in silent:
        unknown = {"build": None, "config_hash": None, "state": "unknown", "error": "it does not answer"}
        assert copy == {"node": copy["node"], **unknown}
    assert [shape(segment) for segment in full.client.segments("trips")] == answered
