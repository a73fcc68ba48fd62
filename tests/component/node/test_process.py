"""The node as a process of its own: how it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx
import psutil
import pytest

from anew.node.keeping import save_desired
from anew.node.process import NodeSettings, run_node
from tests.component.node.harness import clock, key_of, wait_for, world
from tests.component.node.test_node import free_port, path_of

pytestmark = pytest.mark.processes

NOBODY = "http://127.0.0.1:9"


@contextmanager
def node_process(settings: NodeSettings) -> Iterator[tuple[BaseProcess, httpx.Client]]:
    """A node in a process, killed at the end if it still runs."""
    process = multiprocessing.get_context("spawn").Process(target=run_node, args=(settings,))
    process.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{settings.port}") as client:
            yield process, client
    finally:
        process.kill()
        process.join()


def value_at(client: httpx.Client, text: str) -> bytes | None:
    """What the node answers for a key; None while it does not."""
    try:
        answer = client.get(path_of(text))
    except httpx.TransportError:
        return None
    return answer.content if answer.status_code == 200 else None


@pytest.mark.case("stores:G4", "rules:R5", "rules:R4")
def test_a_killed_node_goes_on_from_its_position(tmp_path: Path) -> None:
    """After SIGKILL in the middle of applying, the node serves every record and has loaded nothing again."""
    with world(tmp_path) as words:
        words.version(1, {"a": "base-a"})
        settings = NodeSettings("n1", "dc-0", tmp_path / "node", NOBODY, "127.0.0.1", free_port(), clock)
        settings.directory.mkdir()
        save_desired(settings.directory / "desired.json", words.desired())
        with node_process(settings) as (process, client):
            wait_for("the load", lambda: value_at(client, "a") == key_of("base-a"))
            for number in range(300):
                words.write(f"k{number}", f"v{number}")
            wait_for("some records", lambda: value_at(client, "k100") == key_of("v100"))
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join(10)
        for path in (tmp_path / "deep").rglob("*.parquet"):
            path.unlink()
        with node_process(settings) as (_, client):
            wait_for("all records", lambda: value_at(client, "k299") == key_of("v299"))
            for number in range(300):
                wait_for(f"record {number}", lambda n=number: value_at(client, f"k{n}") == key_of(f"v{n}"))  # type: ignore[misc]  # bound now
            assert value_at(client, "a") == key_of("base-a")


def test_sigterm_ends_node_and_loader(tmp_path: Path) -> None:
    """SIGTERM ends the node cleanly within seconds and leaves no process behind."""
    with world(tmp_path) as words:
        words.version(1, {"a": "base-a"})
        settings = NodeSettings("n1", "dc-0", tmp_path / "node", NOBODY, "127.0.0.1", free_port(), clock)
        settings.directory.mkdir()
        save_desired(settings.directory / "desired.json", words.desired())
        with node_process(settings) as (process, client):
            wait_for("the load", lambda: value_at(client, "a") == key_of("base-a"))
            children = psutil.Process(process.pid).children(recursive=True)
            assert children
            process.terminate()
            process.join(8)
            assert process.exitcode == 0
            wait_for("the children's end", lambda: not any(child.is_running() for child in children))
