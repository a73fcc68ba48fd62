"""What people are told who pause a store or the cluster, and let it go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from anew.api.models import RollBack
from anew.cli import upkeep
from anew.cli.main import run_command
from tests.component.controller.harness import Cluster

Told = Callable[..., list[str]]


@pytest.fixture
def told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """What a command prints, asked of this cluster."""

    @contextmanager
    def connected() -> Iterator[Any]:
        yield SimpleNamespace(controller=cluster.client)

    def run(*arguments: str) -> list[str]:
        assert run_command(list(arguments)) == 0
        return capsys.readouterr().out.splitlines()

    monkeypatch.setattr(upkeep, "cluster", connected)
    return run


def test_the_way_back_is_that_of_what_was_paused(cluster: Cluster, told: Told) -> None:
    """Whoever pauses one store is told how that store goes on, and who pauses all, how all does."""
    cluster.create()
    assert told("pause", "--store", "flights") == ["flights is paused; to go on: anew unpause --store flights"]
    assert told("pause") == ["everything is paused; to go on: anew unpause"]
    assert told("unpause", "--store", "flights")[0] == "flights goes on"
    assert told("unpause") == ["everything goes on"]


def test_what_does_not_go_on_with_the_cluster_is_named(cluster: Cluster, told: Told) -> None:
    """Stores that are paused by themselves, or whose schedules a rollback holds, are named with their own way back."""
    for name in ("flights", "trips", "users"):
        cluster.create(name)
    cluster.serve(cluster.push_plan("trips"))
    cluster.serve(cluster.push_plan("trips"))
    cluster.client.roll_back("trips", RollBack())
    told("pause", "--store", "users")
    told("pause")
    assert told("unpause") == [
        "all else goes on",
        "trips does not (its scheduled repushes are held: rolled back from version 2 to 1 in dc-0); to let it go on: "
        "anew unpause --store trips",
        "users does not (paused by tester); to let it go on: anew unpause --store users",
    ]
