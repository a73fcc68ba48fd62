"""A way between clients and a server of this machine: what passes is up to those who build on it."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 1 << 20


class Relay(ABC):
    """Listens on a free port, and connects each client to the server; a context manager that ends it all.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, server_port: int) -> None:
        """Listen on a free port of this machine."""
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def __enter__(self) -> Self:
        """The relay itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End all connections and threads."""
        for held in list(self._sockets):
            end(held)
        for thread in list(self._threads):
            thread.join(10)
        for held in self._sockets:
            held.close()

    @property
    def closed(self) -> bool:
        """Whether clients are turned away now."""
        return False

    @abstractmethod
    def ways(self, client: socket.socket, server: socket.socket) -> tuple[Callable[[], None], Callable[[], None]]:
        """What passes to the server, and what passes to the client; each runs in a thread of its own."""

    def _run(self, way: Callable[[], None]) -> None:
        thread = threading.Thread(target=way, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = None if self.closed else socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                server = None
            if server is None:
                client.close()
                continue
            self._sockets += [client, server]
            for way in self.ways(client, server):
                self._run(way)


def chunks(source: socket.socket) -> Iterator[bytes]:
    """What comes, until the end of the connection, whoever ended it."""
    with suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            yield chunk


def end(connection: socket.socket) -> None:
    """End a connection in both directions."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def ending(*connections: socket.socket) -> Iterator[None]:
    """End connections after the block, which may find either of them ended."""
    with suppress(OSError):
        yield
    for connection in connections:
        end(connection)
