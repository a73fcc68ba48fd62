"""Running ``anew`` as a user does, in a home of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anew.cli.main import run_command

PERSON: dict[str, Any] = {
    "type": "record",
    "name": "Person",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
}
_COMMAND_SECONDS = 300
_PATIENCE_SECONDS = 120
_LEAST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.03, 0.25


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error of the answer."""
        return self.json["error"]


@dataclass(frozen=True, slots=True)
class Anew:
    """The command line over one home."""

    home: Path
    extra: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its commands."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("ANEW_")}
        return {**plain, **self.extra, "ANEW_HOME": str(self.home)}

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command in the background."""
        command = [sys.executable, "-m", "anew.cli", *arguments]
        return subprocess.Popen(
            command,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=_interruptible,
            **options,
        )

    def run(self, *arguments: str, stdin: str | None = None, environment: dict[str, str] | None = None) -> Answer:
        """Run a command with ``--json`` and return what it did."""
        command = [sys.executable, "-m", "anew.cli", *arguments, "--json"]
        env = self.environment | ({} if environment is None else environment)
        done = subprocess.run(
            command, env=env, input=stdin, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def done(self, *arguments: str, stdin: str | None = None) -> Any:
        """Run a command that must end with 0; returns its JSON document."""
        answer = self.run(*arguments, stdin=stdin)
        assert answer.code == 0, (arguments, answer.code, answer.out[-2_000:], answer.err[-2_000:])
        return answer.json

    def create(self, name: str, *settings: str) -> Any:
        """Make a store of people: a string key, a record of name and age."""
        return self.here(*creation(name, *settings))

    def push(self, name: str, path: Path, *options: str) -> Any:
        """A full push of people, on this process's Spark session."""
        return self.here("push", name, str(path), "--key", "id", "--value", "name,age", *options)

    def here(self, *arguments: str, stdin: str | None = None) -> Any:
        """Run a command that must end with 0 inside this process, so that it finds the session that runs here."""
        answer = self.run_here(*arguments, stdin=stdin)
        assert answer.code == 0, (arguments, answer.code, answer.out[-2_000:])
        return answer.json

    def run_here(self, *arguments: str, stdin: str | None = None) -> Answer:
        """Run a command inside this process: the same entry point, without an interpreter and a JVM of its own."""
        printed, before, stdin_before = io.StringIO(), dict(os.environ), sys.stdin
        os.environ.update(self.environment)
        sys.stdin = io.StringIO("" if stdin is None else stdin)
        try:
            with contextlib.redirect_stdout(printed):
                code = run_command([*arguments, "--json"])
        finally:
            os.environ.clear()
            os.environ.update(before)
            sys.stdin = stdin_before
        return Answer(code, printed.getvalue(), "")

    def write(self, name: str, *rows: dict[str, Any]) -> Any:
        """Write rows and wait until the current version has them."""
        written = self.here("write", name, "-", stdin="".join(json.dumps(row) + "\n" for row in rows))
        self.here("store", "wait", name, "--position", json.dumps(written["position"]))
        return written

    def value(self, name: str, key: str) -> Any:
        """The value of one key, None when it is absent."""
        return self.here("get", name, key)[0]["value"]

    def scan(self, name: str, *options: str) -> dict[Any, Any]:
        """All keys and values."""
        answer = self.run_here("scan", name, *options)
        assert answer.code == 0, answer.out
        rows = [json.loads(line) for line in answer.out.splitlines()]
        return {json.dumps(row["key"]): row["value"] for row in rows}


def creation(name: str, *settings: str) -> list[str]:
    """The command that makes a store of people with some settings, ``name=value`` each."""
    options = [part for setting in settings for part in ("--set", setting)]
    return ["store", "create", name, "--key-schema", "string", "--value-schema", json.dumps(PERSON), *options]


def write_people(path: Path) -> Path:
    """Twenty people as CSV: id, name, age."""
    path.write_text("id,name,age\n" + "".join(f"p{n},name {n},{n + 20}\n" for n in range(20)), encoding="utf-8")
    return path


def _interruptible() -> None:
    """A test run in the background ignores Ctrl-C, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(condition: Callable[[], bool], what: str, patience_seconds: float = _PATIENCE_SECONDS) -> None:
    """Wait for a condition, named for the failure."""
    began, pause = time.monotonic(), threading.Event()
    while not condition():
        waited_seconds = time.monotonic() - began
        assert waited_seconds < patience_seconds, f"waited {patience_seconds} s for {what}"
        # Looking often would take the processors from what is waited for.
        pause.wait(min(_MOST_PAUSE_SECONDS, max(_LEAST_PAUSE_SECONDS, waited_seconds / 10)))
