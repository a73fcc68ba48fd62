"""A real PostgreSQL server for tests: its own directory, user, port and password, and never left behind."""

from __future__ import annotations

import itertools
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests import postgresql_guard
from tests.needs import missing

PASSWORD = "s3cret/of:the@tests"
"""With characters that have a meaning in URLs."""

_USER = "anew"
_ENCODED = "s3cret%2Fof%3Athe%40tests"
_START_SECONDS = 60.0
_PORT_ATTEMPTS = 5
_FAST = {"fsync": "off", "full_page_writes": "off"}


class PostgresServer:
    """A server in a directory of its own. `start`, `stop` and `kill` as often as a test likes."""

    def __init__(self, binaries: Path, *, durable: bool) -> None:
        """Make the server's data (initdb).

        Args:
            binaries: Where ``initdb``, ``postgres`` and ``psql`` lie.
            durable: Whether it forces commits to the disk; otherwise they survive the server, not the machine.
        """
        self._binaries = binaries
        self._settings = {} if durable else _FAST
        self._user = _unprivileged() if os.geteuid() == 0 else ""
        # Not below pytest's directory: that is closed to other users.
        self.directory = Path(tempfile.mkdtemp(prefix="anew-postgresql-"))
        self._guard: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)
        self.port = 0
        self._make()

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            RuntimeError: It does not start; with the end of its log.
        """
        for _ in range(_PORT_ATTEMPTS):
            self.port = self.port if self.port else _free_port()
            if self._started():
                return
            self.port = 0
        raise RuntimeError(f"the server did not start: {self._last_words()}")

    def stop(self) -> None:
        """End the server in order."""
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.write(b"stop\n")
            self._guard.stdin.close()
            self._guard.wait(60)
        self._guard = None

    def kill(self) -> None:
        """End the server and all its processes with SIGKILL, in the middle of whatever they do."""
        postmaster = psutil.Process(self.pid)
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(processes, timeout=30)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.wait(30)
            self._guard.stdin.close()
        self._guard = None

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return int((self.directory / "data" / "postmaster.pid").read_text(encoding="ascii").split("\n", 1)[0])

    @property
    def guard_pid(self) -> int:
        """The process id of the guard."""
        return 0 if self._guard is None else self._guard.pid

    def remove(self) -> None:
        """End the server and remove all of it."""
        if self._guard is not None and self._guard.stdin is not None:
            # Without a word, so that the server writes nothing more: what it holds is thrown away.
            self._guard.stdin.close()
            self._guard.wait(60)
        self._guard = None
        self.discard(self.directory)

    @staticmethod
    def discard(directory: Path) -> None:
        """Remove the directory of a server that has ended."""
        shutil.rmtree(directory, ignore_errors=True)

    def new_database(self) -> str:
        """Make an empty database; its URL, with the password."""
        name = f"catalog_{next(self._names)}"
        self.sql("postgres", f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Drop a database, whoever is connected."""
        self.sql("postgres", f"DROP DATABASE {url.rsplit('/', 1)[1]} WITH (FORCE)")

    def url(self, database: str) -> str:
        """The URL of a database."""
        return f"postgresql://{_USER}:{_ENCODED}@127.0.0.1:{self.port}/{database}"

    def sql(self, database: str, *statements: str) -> str:
        """Run statements as the server's superuser; what they printed, bare."""
        commands = [part for statement in statements for part in ("-c", statement)]
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-U", _USER, "-d", database, "-X", "-q", "-t", "-A"]
        environment = {**os.environ, "PGPASSWORD": PASSWORD}
        done = subprocess.run(
            [str(self._binaries / "psql"), *options, "-v", "ON_ERROR_STOP=1", *commands],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def _make(self) -> None:
        password = self.directory / "password"
        password.write_text(PASSWORD, encoding="utf-8")
        if self._user:
            account = pwd.getpwnam(self._user)
            for path in (self.directory, password):
                os.chown(path, account.pw_uid, account.pw_gid)
        options = [
            "--username",
            _USER,
            "--pwfile",
            str(password),
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-sync",
        ]
        done = subprocess.run(
            [str(self._binaries / "initdb"), "-D", str(self.directory / "data"), *options],
            user=self._user or None,
            group=postgresql_guard.user_group(self._user) if self._user else None,
            extra_groups=[] if self._user else None,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stderr}")

    def _started(self) -> bool:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "shared_buffers": "32MB",
            "max_connections": "60",
            **self._settings,
        }
        asked = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = [str(self._binaries / "postgres"), "-D", str(self.directory / "data"), *asked]
        guard = [sys.executable, "-I", postgresql_guard.__file__, str(self.directory), self._user, *server]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, cwd=self.directory)
        deadline, pause = time.monotonic() + _START_SECONDS, threading.Event()
        while time.monotonic() < deadline and self._guard.poll() is None:
            try:
                self.sql("postgres", "SELECT 1")
            except RuntimeError:
                pause.wait(0.05)
            else:
                return True
        self.stop()
        return False

    def _last_words(self) -> str:
        log = self.directory / "server.log"
        return log.read_text(encoding="utf-8", errors="replace")[-2_000:] if log.is_file() else "no log"


def find_binaries() -> Path | None:
    """Where the server's programs lie: the newest of Debian's, or those on the PATH; None when there are none."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_major)
    if debian:
        return debian[-1].parent
    found = shutil.which("postgres")
    directory = None if found is None else Path(found).resolve().parent
    return directory if directory is not None and (directory / "initdb").exists() else None


@contextmanager
def running_server(*, durable: bool = False) -> Iterator[PostgresServer]:
    """A running server; the test is skipped, or fails where none may be, when the machine has no PostgreSQL."""
    binaries = find_binaries()
    if binaries is None:
        missing("PostgreSQL", "install the server (Debian, Ubuntu: apt-get install postgresql)")
    server = PostgresServer(binaries, durable=durable)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def _major(path: Path) -> int:
    matched = re.match(r"\d+", path.parent.parent.name)
    return int(matched[0]) if matched else 0


def _unprivileged() -> str:
    """A user that is not root: PostgreSQL refuses to run as root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise RuntimeError("there is neither a user postgres nor a user nobody to run PostgreSQL as")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
