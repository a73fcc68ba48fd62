"""The PostgreSQL server that tests use leaves nothing behind, and is not missed in silence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests import postgresql as postgresql_module
from tests.needs import COMPLETE
from tests.postgresql import PostgresServer, running_server

_ROOT = Path(__file__).parents[3]
_STARTER = """
import sys
from tests.postgresql import running_server
with running_server() as server:
    print(server.directory, server.pid, server.guard_pid, flush=True)
    sys.stdin.read()
"""


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline, pause = time.monotonic() + 30, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        pause.wait(0.05)


def _gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("victim", ["starter", "guard"])
def test_a_server_never_outlives_its_test_run(postgresql: PostgresServer, victim: str) -> None:
    """When the test run, or the guard between them, is ended by SIGKILL, the server ends; its directory goes too."""
    assert postgresql.pid
    command = [sys.executable, "-c", _STARTER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=_ROOT, text=True, stdin=pipe, stdout=pipe) as starter:
        assert starter.stdout is not None
        directory, *pids = starter.stdout.readline().split()
        server, guard = (int(pid) for pid in pids)
        os.kill(starter.pid if victim == "starter" else guard, signal.SIGKILL)
        _until(lambda: _gone(server), "the end of the server")
        starter.kill()
    _until(lambda: victim == "guard" or not Path(directory).exists(), "the end of the directory")
    if victim == "guard":
        PostgresServer.discard(Path(directory))


def test_the_server_does_not_run_as_root(postgresql: PostgresServer) -> None:
    """Started by root or not, the server's user is another one, and nobody else may look into its data."""
    process = psutil.Process(postgresql.pid)
    assert process.uids().real != 0
    assert (postgresql.directory / "data").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("variable", [COMPLETE, "CI"])
def test_a_missing_server_is_skipped_here_and_fails_where_all_must_run(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Without the server's programs the tests are skipped with one line that says what to install; in CI they fail."""
    monkeypatch.setattr(postgresql_module, "find_binaries", lambda: None)
    for name in (COMPLETE, "CI"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install postgresql") as skipped, running_server():
        pass
    assert "\n" not in str(skipped.value)
    monkeypatch.setenv(variable, "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install postgresql"), running_server():
        pass
