"""The cluster of the controller's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anew.cli import local, rebuilds, upkeep
from anew.cli.main import run_command
from anew.cli.stores import commands as stores
from tests.component.controller.harness import Cluster, opened_cluster

Told = Callable[..., list[str]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two live nodes and no store."""
    with opened_cluster(tmp_path) as opened:
        yield opened


@pytest.fixture
def told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """What a command prints, asked of this cluster, on either stream."""

    @contextmanager
    def connected() -> Iterator[Any]:
        yield SimpleNamespace(controller=cluster.client)

    def run(*arguments: str, code: int = 0) -> list[str]:
        capsys.readouterr()
        assert run_command(list(arguments)) == code
        shown = capsys.readouterr()
        return [*shown.out.splitlines(), *shown.err.splitlines()]

    for module in (local, rebuilds, stores, upkeep):
        monkeypatch.setattr(module, "cluster", connected)
    return run
