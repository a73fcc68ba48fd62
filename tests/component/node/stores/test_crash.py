"""A node process killed at moments of a load and of applying: afterwards its replicas are proved equal."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx
import pytest

from anew.client.verdict import Verification
from anew.core.errors import AnewError
from anew.node.keeping import save_desired
from anew.node.process import NodeSettings
from tests.component.node.harness import World, clock, config, wait_for, world
from tests.component.node.stores.fleet import verified
from tests.component.node.test_node import free_port
from tests.component.node.test_process import NOBODY, node_process

pytestmark = pytest.mark.processes

_BASE: dict[str, str | None] = {f"k{number:05}": f"base {number}" for number in range(20_000)}
Moment = Callable[[Path], bool]


def _exists(pattern: str) -> Moment:
    return lambda node: next(node.glob(pattern), None) is not None


def _settings(folder: Path) -> NodeSettings:
    return NodeSettings("n1", "dc-0", folder / "n1", NOBODY, "127.0.0.1", free_port(), clock)


def _kill(process: BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(10)


def _equal(words: World, settings: NodeSettings) -> Verification:
    """The first verification that reached every replica."""

    def attempt() -> Verification | None:
        try:
            found = verified(words, {"n1": f"http://127.0.0.1:{settings.port}"})
        except AnewError:
            return None
        return None if any(replica.equal is None for replica in found.replicas) else found

    found: Verification = wait_for("a verification of all replicas", attempt, 60.0)
    return found


@pytest.mark.parametrize(
    "moment",
    # What a restart sweeps lies in either folder, and is not looked into; the points between are those of tests/crash.
    [_exists("loading/**/*.sst"), _exists("replicas/**/*.sst")],
    ids=["sorted file", "ingested file"],
)
@pytest.mark.case("stores:G3", "rules:R4")
def test_a_node_killed_in_a_load_ends_up_equal(tmp_path: Path, moment: Moment) -> None:
    """Whatever the kill left, the restarted node loads it again, and its replicas are base ⊕ feeds."""
    with world(tmp_path) as words:
        words.version(1, _BASE, config=config(amplification_factor=2))
        for number in range(200):
            words.write(f"k{number * 7:05}", None if number % 3 else f"new {number}")
        settings = _settings(tmp_path)
        settings.directory.mkdir()
        save_desired(settings.directory / "desired.json", words.desired())
        with node_process(settings) as (process, _):
            wait_for("the moment", lambda: moment(settings.directory))
            _kill(process)
        with node_process(settings):
            found = _equal(words, settings)
        assert found.equal, found.to_json()
        assert sum(expected.rows + expected.tombstones for expected in found.expected) == len(_BASE)
        assert not list((settings.directory / "loading").rglob("*.*"))


@pytest.mark.case("stores:G3", "stores:G4", "rules:R5")
def test_a_node_killed_while_it_applies_ends_up_equal(tmp_path: Path) -> None:
    """Killed again and again in the middle of applying, the replicas are base ⊕ feeds in the end."""
    with world(tmp_path) as words:
        words.version(1, dict(list(_BASE.items())[:500]), config=config(amplification_factor=2))
        settings = _settings(tmp_path)
        settings.directory.mkdir()
        save_desired(settings.directory / "desired.json", words.desired())
        written = 0
        for _ in range(3):
            with node_process(settings) as (process, client):
                wait_for("the node", lambda client=client: _applied(client) >= 0)  # type: ignore[misc]  # bound now
                for number in range(written, written + 400):
                    words.write(f"k{number % 700:05}", None if number % 5 == 0 else f"new {number}")
                written += 400
                wait_for("some of it", lambda client=client: _applied(client) > 50)  # type: ignore[misc]  # bound now
                _kill(process)
        with node_process(settings):
            found = _equal(words, settings)
        assert found.equal, found.to_json()
        assert sum(found.position.values()) == written


@pytest.mark.case("stores:G3")
def test_a_node_killed_in_a_verification_can_be_verified_again(tmp_path: Path) -> None:
    """A kill while checkpoints lie there leaves replicas that go on, and the checkpoints are swept."""
    with world(tmp_path) as words:
        words.version(1, _BASE)
        settings = _settings(tmp_path)
        settings.directory.mkdir()
        save_desired(settings.directory / "desired.json", words.desired())
        root = "/v1/stores/words/versions/1/verify"
        with node_process(settings) as (process, client):
            assert _equal(words, settings).equal
            job = client.post(root).json()["job"]
            client.put(f"{root}/{job}", json={"position": words.ends().to_json()})
            wait_for("a checkpoint", lambda: _exists("verifying/*/*/CURRENT")(settings.directory))
            _kill(process)
        assert _exists("verifying/*/*/CURRENT")(settings.directory)
        words.write("k00001", "after it")
        with node_process(settings):
            found = _equal(words, settings)
            assert found.equal, found.to_json()
            wait_for("the end", lambda: not _exists("verifying/*/*/CURRENT")(settings.directory))


def _applied(client: httpx.Client) -> float:
    """How many records the node has applied; -1 while it does not answer."""
    try:
        lines = client.get("/metrics").text.splitlines()
    except httpx.TransportError:
        return -1
    return next((float(line.split()[1]) for line in lines if line.startswith("anew_applied_records_total ")), -1)
