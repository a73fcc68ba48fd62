"""A real PostgreSQL server for tests: its own directory, user, port and password, and never left behind."""

from __future__ import annotations

import itertools
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import server_guard
from tests.guarded import PortServer
from tests.needs import missing
from tests.processes import kill_family

PASSWORD = "s3cret/of:the@tests"
"""With characters that have a meaning in URLs."""

_USER = "anew"
_ENCODED = "s3cret%2Fof%3Athe%40tests"
_FAST = {"fsync": "off", "full_page_writes": "off"}


class PostgresServer(PortServer):
    """A server in a directory of its own. `start`, `stop` and `kill` as often as a test likes."""

    def __init__(self, binaries: Path, *, durable: bool) -> None:
        """Make the server's data (initdb).

        Args:
            binaries: Where ``initdb``, ``postgres`` and ``psql`` lie.
            durable: Whether it forces commits to the disk; otherwise they survive the server, not the machine.
        """
        super().__init__("postgresql", _unprivileged() if os.geteuid() == 0 else "")
        self._binaries = binaries
        self._settings = {} if durable else _FAST
        self._names = itertools.count(1)
        self._make()

    def kill(self) -> None:
        """End the server and all its processes with SIGKILL, in the middle of whatever they do."""
        kill_family(self.pid)
        self._end(b"")

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return int((self.directory / "data" / "postmaster.pid").read_text(encoding="ascii").split("\n", 1)[0])

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
        if self.user:
            account = pwd.getpwnam(self.user)
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
            user=self.user or None,
            group=server_guard.user_group(self.user) if self.user else None,
            extra_groups=[] if self.user else None,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stderr}")

    def _command(self) -> list[str]:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "shared_buffers": "32MB",
            "max_connections": "60",
            **self._settings,
        }
        asked = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self._binaries / "postgres"), "-D", str(self.directory / "data"), *asked]

    def _answers(self) -> bool:
        try:
            self.sql("postgres", "SELECT 1")
        except RuntimeError:
            return False
        return True


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
