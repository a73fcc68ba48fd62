"""Broker processes: they outlive whoever starts them, and are known by a lock that they alone hold.

Each broker's process inherits an open file that is locked, writes its pid there before it becomes Java, and holds the
lock until it ends, however it ends. So "does it live" is never a guess from a pid that another process may have by now,
and there is no moment at which a broker runs that nobody would find again: the lock is taken before it is started.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from anew.brokers.configuration import BrokerFolder
from anew.core.errors import Failed

# Descriptor 3 is the lock. The shell in the background has the pid that Java will have; the other one ends at once, so
# that a broker has no parent to be waited for by.
_LAUNCH = """exec 3<&0; umask 077; sh -c 'echo $$ >&3; exec "$@"' broker "$@" &"""
_NOT_FOR_SERVERS = ("-u", "ANEW_TOKEN", "-u", "ANEW_TOKEN_FILE")
_LOOKED_AT_SECONDS, _LAUNCH_SECONDS = 1.0, 10.0
_TICK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """The process of one broker, if it runs."""

    folder: BrokerFolder

    def launch(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Start it in a session of its own; False when it runs already.

        Args:
            command: Its program and arguments.
            environment: Variables over those of this process.
        """
        with _opened(self.folder.lock) as held, _opened(self.folder.printed) as printed:
            # Who only looks whether it runs holds the lock too, for a moment.
            if not until(lambda: locks(held, fcntl.LOCK_EX), _LOOKED_AT_SECONDS):
                return False
            os.ftruncate(held, 0)
            os.ftruncate(printed, 0)
            variables = [f"{name}={value}" for name, value in environment.items()]
            subprocess.run(
                ["sh", "-c", _LAUNCH, "launch", "env", *_NOT_FOR_SERVERS, *variables, *command],
                stdin=held,
                stdout=printed,
                stderr=printed,
                cwd=self.folder.home,
                start_new_session=True,
                check=True,
            )
        return True

    @property
    def lives(self) -> bool:
        """Whether it runs."""
        if not self.folder.lock.exists():
            return False
        with _opened(self.folder.lock) as probe:
            return not locks(probe, fcntl.LOCK_SH)

    @property
    def pid(self) -> int | None:
        """Its process id; None when it does not run.

        Raises:
            Failed: ``broker_unknown``: it is being started, for too long.
        """
        noted: list[int] = []

        def told() -> bool:
            if self.lives:
                text = self.folder.lock.read_text(encoding="ascii")
                noted.extend([int(text)] if text.endswith("\n") else [])
                return bool(noted)
            return True

        if until(told, _LAUNCH_SECONDS):
            return noted[0] if noted else None
        raise Failed(
            "broker_unknown",
            f"broker {self.folder.id} is being started, and does not say its pid",
            found=f"{self.folder.lock} is locked",
            expected="a pid in it",
            hint=f"see who has it: fuser -v {self.folder.lock}",
        )

    def send(self, number: signal.Signals) -> bool:
        """Send it a signal; False when it does not run. No other process can get it, whoever has its pid by then."""
        pid = self.pid
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            if sys.platform != "linux":
                os.kill(pid, number)
                return True
            with _closing(os.pidfd_open(pid)) as process:
                # It lives still, so that what was opened is no successor to its pid.
                if self.pid == pid:
                    signal.pidfd_send_signal(process, number)
                    return True
        return False

    def await_end(self, seconds: float) -> bool:
        """Wait for its end; False when it still runs then."""
        return until(lambda: not self.lives, seconds)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition; whether it came in time."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        if time.monotonic() >= deadline:
            return False
        pause.wait(_TICK_SECONDS)
    return True


def locks(descriptor: int, kind: int) -> bool:
    """Take a lock (``fcntl.LOCK_EX``, ``LOCK_SH``) on an open file; False when another holds it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    with _closing(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)) as descriptor:
        yield descriptor


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
