"""A run of the tests that is killed leaves no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from tests import run_guard
from tests.processes import gone

pytestmark = pytest.mark.processes

_SLEEPER = "import sys; print('here', flush=True); sys.stdin.read()"
_STARTER = """
import os, subprocess, sys
guard = subprocess.Popen([sys.executable, "-I", sys.argv[1], str(os.getpid()), sys.argv[2]], env={})
print(guard.pid, flush=True)
if sys.stdin.readline():
    guard.terminate()
guard.wait()
"""


@pytest.fixture
def mark() -> str:
    """A run of its own."""
    return uuid.uuid4().hex


@pytest.fixture
def starter(mark: str) -> Iterator[subprocess.Popen[str]]:
    """A run of the tests, as far as its guard is concerned."""
    command = [sys.executable, "-c", _STARTER, run_guard.__file__, mark]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        yield started
        started.kill()


@pytest.fixture
def outliving(mark: str) -> Iterator[subprocess.Popen[str]]:
    """A process of the run, in a session of its own like a cluster that was detached."""
    environment = {**os.environ, run_guard.VARIABLE: mark}
    command, pipe = [sys.executable, "-c", _SLEEPER], subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, env=environment, start_new_session=True
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "here\n"
        yield started
        started.kill()


def test_what_a_killed_run_leaves_is_ended(starter: subprocess.Popen[str], outliving: subprocess.Popen[str]) -> None:
    """The guard ends, once the run was killed, all that carries its mark."""
    assert starter.stdout is not None
    starter.stdout.readline()
    starter.kill()
    assert outliving.wait(30) < 0


def test_a_run_that_ends_in_order_has_nothing_ended(
    starter: subprocess.Popen[str], outliving: subprocess.Popen[str]
) -> None:
    """Told to end, the guard goes and touches nothing: what a test leaves is that test's fault, and shows."""
    assert starter.stdout is not None
    guard = int(starter.stdout.readline())
    assert starter.communicate("\n") is not None
    assert gone(guard)
    assert outliving.poll() is None
