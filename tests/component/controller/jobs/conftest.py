"""A controller with a job for each test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from anew.cli.jobs import checkpoints, commands, rewinding, undoing
from anew.cli.main import run_command
from anew.runtime.jobs import JobHandle
from tests.component.controller.harness import Cluster
from tests.component.controller.jobs.jobs_harness import Jobs, Ran, Said


@pytest.fixture
def jobs(cluster: Cluster) -> Jobs:
    """Two topics of two partitions, and a job without a generation."""
    made = Jobs(cluster)
    made.topics()
    made.create()
    return made


@pytest.fixture
def said(jobs: Jobs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs ``anew job …`` against this cluster; what it prints, after the exit code was checked."""

    @contextmanager
    def connected() -> Iterator[Any]:
        client = jobs.cluster.client
        yield SimpleNamespace(controller=client, job=lambda name: JobHandle(client, name, "test"))

    for module in (commands, checkpoints, rewinding, undoing):
        monkeypatch.setattr(module, "cluster", connected)

    def run(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run_command(["job", *arguments]) == code
        return capsys.readouterr().out

    return run


@pytest.fixture
def ran(said: Said) -> Ran:
    """As `said`, with ``--json``: the document."""

    def run(*arguments: str, code: int = 0) -> Any:
        return json.loads(said(*arguments, "--json", code=code))

    return run
