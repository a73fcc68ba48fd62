"""Many processes over one catalog: one winner per revision, and nothing acknowledged is lost, also in a crash."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import pytest

from anew.catalog.change import PutStore
from anew.catalog.database import DatabaseCatalog
from anew.testing.builders import a_store
from anew.testing.catalog_contract import a_change
from anew.testing.catalog_racer import STORE
from tests.postgresql import running_server

pytestmark = pytest.mark.processes

_PROCESSES = 8
_CHANGES = 15
_CRASHES = 2
_BETWEEN = 25


def _racers(url: str, changes: int, timeout_seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "anew.testing.catalog_racer", url]
    return subprocess.Popen(
        [*command, str(_PROCESSES), str(changes), str(timeout_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _reports(racers: subprocess.Popen[str], *, stop: bool) -> list[dict[str, Any]]:
    """What the racers said, once they have ended by themselves or were told to."""
    assert racers.stdin is not None
    assert racers.stdout is not None
    if stop:
        racers.stdin.close()
    with racers, racers.stdout as lines:
        found = [json.loads(line) for line in lines]
    assert racers.returncode == 0
    return found


def _check(url: str, reports: list[dict[str, Any]]) -> list[str]:
    """Each revision has one winner, the store counts them all, and the history has what was acknowledged."""
    catalog = DatabaseCatalog(url)
    store, history = catalog.store(STORE), [operation.id for operation in catalog.history(STORE, 100_000)]
    catalog.close()
    done = [report for report in reports if report["outcome"] == "done"]
    fences = [report["fence"] for report in done]
    assert len(fences) == len(set(fences))
    assert len(history) == len(set(history))
    assert {report["operation"] for report in done} <= set(history)
    changes = len(history) - 1
    assert store is not None
    assert (store.revision, store.next_version) == (1 + changes, 1 + changes)
    return history


@pytest.mark.case("rules:R15")
def test_eight_processes_change_one_store(catalog_url: str) -> None:
    """Of all changes from one revision exactly one wins; in the end each process has all of its own."""
    catalog = DatabaseCatalog(catalog_url)
    catalog.commit(a_change("made", PutStore(a_store(next_version=1), None)))
    catalog.close()
    reports = _reports(_racers(catalog_url, _CHANGES, 30.0), stop=False)
    history = _check(catalog_url, reports)
    assert sorted(report["fence"] for report in reports) == list(range(1, _PROCESSES * _CHANGES + 1))
    assert {report["operation"] for report in reports} | {"made"} == set(history)


@pytest.mark.case("rules:R22")
def test_no_acknowledged_change_is_lost_when_the_server_is_killed() -> None:
    """SIGKILL of the whole server in the middle of commits, twice: the history has every change that was said to be
    done, and beyond those only changes whose outcome was unknown.
    """
    pause = threading.Event()
    with running_server(durable=True) as server:
        url = server.new_database()
        catalog = DatabaseCatalog(url)
        catalog.commit(a_change("made", PutStore(a_store(next_version=1), None)))
        racers = _racers(url, 100_000, 1.0)
        for _ in range(_CRASHES):
            target = catalog.revision() + _BETWEEN
            while catalog.revision() < target:
                assert racers.poll() is None, "the racers ended"
                pause.wait(0.02)
            server.kill()
            server.start()
        reports = _reports(racers, stop=True)
        catalog.close()
        history = set(_check(url, reports))
        unknown = {report["operation"] for report in reports if report["outcome"] == "unknown"}
        done = {report["operation"] for report in reports if report["outcome"] == "done"}
        assert len(done) >= _CRASHES * (_BETWEEN - _PROCESSES)
        assert history - done - {"made"} <= unknown
