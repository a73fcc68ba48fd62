"""What every server of the tests promises: it never outlives the test run that started it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import psutil

Victim = Literal["starter", "guard"]

_ROOT = Path(__file__).parents[2]
_STARTER = """
import sys
from {module} import {running}
with {running}() as server:
    print(server.directory, server.pid, server.guard_pid, flush=True)
    sys.stdin.read()
"""


def check_ends_with(module: str, running: str, victim: Victim) -> None:
    """Start a server in a process of its own, SIGKILL that or the guard in between, and see the server end."""
    command, pipe = [sys.executable, "-c", _STARTER.format(module=module, running=running)], subprocess.PIPE
    with subprocess.Popen(command, cwd=_ROOT, text=True, stdin=pipe, stdout=pipe) as starter:
        assert starter.stdout is not None
        directory, *pids = starter.stdout.readline().split()
        server, guard = (int(pid) for pid in pids)
        os.kill(starter.pid if victim == "starter" else guard, signal.SIGKILL)
        _until(lambda: _gone(server), "the end of the server")
        starter.kill()
    _until(lambda: victim == "guard" or not Path(directory).exists(), "the end of the directory")
    shutil.rmtree(directory, ignore_errors=True)


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline, pause = time.monotonic() + 30, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        pause.wait(0.05)


def _gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
