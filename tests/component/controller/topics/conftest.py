"""Topics of a controller, as programs and the command line reach them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anew.cli import topics
from anew.cli.main import run_command
from anew.client.topics import Topic
from anew.log.embedded import EmbeddedLog
from anew.log.interface import Log
from tests.component.controller.harness import Cluster

Opened = Callable[[str], Topic]
Ran = Callable[..., Any]


@pytest.fixture
def opened(cluster: Cluster) -> Opened:
    """Gives a topic by its name, over a handle of its own on the fabric's log."""

    def open_log(fabric: str) -> Log:
        directory = Path(cluster.context.fabrics[fabric].log_location.address)
        return EmbeddedLog(directory, clock=cluster.clock, durable=False)

    return lambda name: Topic(cluster.client, name, open_log)


@pytest.fixture
def ran(cluster: Cluster, opened: Opened, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    """Runs ``anew topic …`` with ``--json`` against this cluster; its document, after the exit code was checked."""

    @contextmanager
    def connected() -> Iterator[Any]:
        yield SimpleNamespace(controller=cluster.client, topic=opened)

    monkeypatch.setattr(topics, "cluster", connected)

    def run(*arguments: str, code: int = 0, stdin: str = "", as_json: bool = True) -> Any:
        capsys.readouterr()
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        assert run_command(["topic", *arguments, *(["--json"] if as_json else [])]) == code
        shown = capsys.readouterr()
        return json.loads(shown.out) if as_json else shown.out + shown.err

    return run
