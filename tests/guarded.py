"""Servers of a test run: processes in directories of their own, under a guard that none of them outlives."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests import server_guard

_START_SECONDS = 60.0
_END_SECONDS = 60.0
_PORT_ATTEMPTS = 5


class Guarded:
    """A process and its guard (`tests.server_guard`). `launch` and `stop` it as often as a test likes."""

    def __init__(self, name: str, user: str = "") -> None:
        """Make the directory.

        Args:
            name: A part of the directory's name.
            user: Who is to run the process; empty: whoever runs the tests.
        """
        # Not below pytest's directory: that is closed to other users.
        self.directory = Path(tempfile.mkdtemp(prefix=f"anew-{name}-"))
        self.user = user
        self._guard: subprocess.Popen[bytes] | None = None

    def launch(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start the process."""
        guard = [sys.executable, "-I", server_guard.__file__, str(self.directory), self.user, *command]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, cwd=self.directory, env=environment)

    @property
    def runs(self) -> bool:
        """Whether the guard, and so the process, is there."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def guard_pid(self) -> int:
        """The process id of the guard."""
        return 0 if self._guard is None else self._guard.pid

    @property
    def log(self) -> str:
        """What the process said so far."""
        with suppress(FileNotFoundError):
            return (self.directory / "server.log").read_text(encoding="utf-8", errors="replace")
        return ""

    def stop(self) -> None:
        """End the process in order; its directory stays."""
        self._end(b"stop\n")

    def remove(self) -> None:
        """End the process, which writes nothing more, and remove the directory; nothing when both are gone."""
        self._end(b"")
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, word: bytes) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended by itself, or was killed
                self._guard.stdin.write(word)
                self._guard.stdin.close()
            self._guard.wait(_END_SECONDS)
        self._guard = None


class PortServer(Guarded, ABC):
    """A server that listens on a free port of this machine, and keeps it when it starts again."""

    port = 0

    @property
    def pid(self) -> int:
        """The process id of the server."""
        (server,) = psutil.Process(self.guard_pid).children()
        return int(server.pid)

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            RuntimeError: It does not start; with the end of its log.
        """
        for _ in range(_PORT_ATTEMPTS):
            self.port = self.port if self.port else _free_port()
            self.launch(self._command(), self._environment())
            if self._comes_to_answer():
                return
            self.stop()
            self.port = 0
        raise RuntimeError(f"{type(self).__name__} did not start: {self.log[-2_000:]}")

    @abstractmethod
    def _command(self) -> list[str]:
        """The server's command line."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it does."""

    def _environment(self) -> Mapping[str, str] | None:
        """The server's environment; None: that of the tests."""
        return None

    def _comes_to_answer(self) -> bool:
        deadline, pause = time.monotonic() + _START_SECONDS, threading.Event()
        while time.monotonic() < deadline and self.runs:
            if self._answers():
                return True
            pause.wait(0.05)
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
