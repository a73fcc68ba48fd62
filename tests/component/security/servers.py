"""A real controller and a real node that listen, and sockets to them that say exactly what a test wants."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from anew.api.security import OPEN_SERVER, ServerSecurity
from anew.controller.process import ControllerServer
from tests.component.controller.harness import opened_cluster
from tests.component.node.harness import caught_up, wait_for, world
from tests.component.node.test_node import PlayedController, free_port, running, settings_in

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Listening:
    """A server that listens on a port of this machine."""

    port: int
    path: str
    """Of something that takes a body."""

    def connect(self, tls: ssl.SSLContext | None = None) -> socket.socket:
        """A connection to it that waits 20 s at most."""
        raw = socket.create_connection((LOOPBACK, self.port), timeout=20)
        return raw if tls is None else tls.wrap_socket(raw, server_hostname="localhost")

    def say(self, *parts: bytes) -> bytes:
        """All that comes back until the server closes; what it no longer takes is not sent."""
        with self.connect() as connection:
            try:
                for part in parts:
                    connection.sendall(part)
            except OSError:
                pass
            return heard(connection)


def heard(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    came = b""
    while True:
        try:
            chunk = connection.recv(65_536)
        except ConnectionError:
            return came
        if not chunk:
            return came
        came += chunk


@contextmanager
def controller(folder: Path, security: ServerSecurity = OPEN_SERVER, address: str = LOOPBACK) -> Iterator[Listening]:
    """A controller that listens."""
    folder.mkdir(exist_ok=True)
    with opened_cluster(folder) as cluster:
        port = free_port()
        server = ControllerServer(cluster.context, address, port, security)
        thread = threading.Thread(target=server.run, name="controller", daemon=True)
        thread.start()
        wait_for("the controller", lambda: server.started or not thread.is_alive())
        try:
            yield Listening(port, "/v1/pause")
        finally:
            server.stop()
            thread.join(20)
            assert not thread.is_alive()


@contextmanager
def node(folder: Path, security: ServerSecurity = OPEN_SERVER, address: str = LOOPBACK) -> Iterator[Listening]:
    """A node that serves ``words``: the keys ``k00`` to ``k09``."""
    folder.mkdir(exist_ok=True)
    with world(folder) as words:
        words.version(1, {f"k{n:02}": f"v{n:02}" for n in range(10)})
        played = PlayedController()
        played.state = words.desired()
        settings = replace(settings_in(folder), security=security, address=address)
        with running(settings, played) as (made, _):
            wait_for("the load", lambda: caught_up(made.engine))
            yield Listening(settings.port, "/v1/stores/words/versions/1/keys:batch")


def seconds_of(act: object) -> float:
    """How long an act takes."""
    assert callable(act)
    began = time.monotonic()
    act()
    return time.monotonic() - began
