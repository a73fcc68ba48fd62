"""Where a demo plays: a home of its own, commands as a user types them, processes at their side."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anew.core.errors import AnewError, Failed
from anew.runtime.home import Home, using_home
from anew.runtime.settings import resolve
from anew.runtime.supervisor import child_environment

HOME = ".anew-demo"
FABRIC = "dc-0"
MARKER = "made-by-anew-demo"
"""A file by which a demo knows a home as one of its own."""

_PORT = 7760
_COMMAND_SECONDS = 240
_PATIENCE_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the demo plays."""

    home: Path
    environment: dict[str, str]
    say: Callable[[str], None]
    outlived_by: frozenset[str]
    """What does not lie in the home: ``catalog``, ``deep_store``, ``log``."""

    def anew(self, *arguments: str) -> Any:
        """Run a command as a user would, its progress shown; returns its JSON answer.

        Raises:
            Failed: ``demo_command_failed``.
        """
        self.say(f"$ anew {' '.join(_quoted(a) for a in arguments)}")
        return self.quietly(*arguments)

    def quietly(self, *arguments: str) -> Any:
        """The same without a word of it.

        Raises:
            Failed: ``demo_command_failed``.
        """
        command = [sys.executable, "-m", "anew.cli", *arguments, "--json"]
        done = subprocess.run(
            command, env=self.environment, stdout=subprocess.PIPE, timeout=_COMMAND_SECONDS, check=False, text=True
        )
        if done.returncode != 0:
            raise Failed(
                "demo_command_failed",
                f"anew {arguments[0]} ended with exit code {done.returncode}",
                found=done.stdout[-2_000:],
                expected=0,
                hint=f"look into {self.home / 'logs'}",
            )
        return json.loads(done.stdout)

    def end(self) -> None:
        """End whatever runs in the home."""
        self.anew("down")
        if (self.home / "kafka").exists():
            self.anew("kafka", "down")

    def start_brokers(self) -> None:
        """Start a Kafka broker of the demo's own, which is the log of all that follows."""
        self.say("\n0. A Kafka broker, through which all records go")
        self.environment["ANEW_LOG"] = f"kafka://{self.anew('kafka', 'up')['bootstrap']}"
        self.say(f"   ANEW_LOG={self.environment['ANEW_LOG']}")

    def start(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a process that works until its standard input closes."""
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.Popen(command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def stop(process: subprocess.Popen[str]) -> str:
    """Tell a process to stop and return what it printed.

    Raises:
        Failed: ``demo_process_failed``.
    """
    printed, _ = process.communicate(timeout=60)
    if process.returncode != 0:
        raise Failed("demo_process_failed", "a process of the demo failed", found=process.returncode, expected=0)
    return printed.strip()


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextmanager
def staged(say: Callable[[str], None], outliving: tuple[str, ...], *, keep: bool) -> Iterator[Stage]:
    """A home for a demo, empty; it goes afterwards unless it is kept.

    Args:
        say: Gets each line for people.
        outliving: What may lie outside of the home: ``catalog``, ``deep_store``, ``log``.
        keep: Whether home and processes stay.

    Raises:
        Failed: ``home_taken``.
    """
    settings = resolve({})
    home = settings.home if settings.was_given("home") else Path(HOME).absolute()
    port = settings.text("port") if settings.was_given("port") else str(_PORT)
    if home.exists() and not (home / MARKER).exists():
        raise Failed(
            "home_taken",
            f"{home} is not the demo's",
            found=str(home),
            expected="no such directory",
            hint="ANEW_HOME=DIR",
        )
    outlived_by = frozenset(name for name in outliving if settings.was_given(name))
    stage = Stage(home, child_environment(Home(home)) | {"ANEW_PORT": port}, say, outlived_by)
    if home.exists():
        stage.end()
        shutil.rmtree(home)
    with using_home(home):
        home.mkdir(parents=True)
        (home / MARKER).touch()
    try:
        yield stage
    except BaseException:
        if not keep:
            _tidy_up(stage)
        raise
    if not keep:
        shutil.rmtree(home)


def _tidy_up(stage: Stage) -> None:
    """After a failure the processes end, and the home stays to be looked into."""
    try:
        stage.end()
    except AnewError as error:
        stage.say(str(error))


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition.

    Raises:
        Failed: ``demo_timeout``.
    """
    deadline, pause = time.monotonic() + _PATIENCE_SECONDS, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise Failed("demo_timeout", f"waited too long for {what}", expected=f"within {_PATIENCE_SECONDS} s")
        pause.wait(0.1)


def _quoted(argument: str) -> str:
    return argument if len(argument) < 60 and " " not in argument else "'…'"
