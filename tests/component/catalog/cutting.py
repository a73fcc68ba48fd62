"""A connection to PostgreSQL that is cut at the commit, before or after the server has it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_COMMIT = b"COMMIT\0"
"""As it travels; not the word in READ COMMITTED, with which a transaction begins."""


class Cutter:
    """Passes bytes between clients and a server on this machine until it is told to cut.

    Attributes:
        cut: ``""``: pass everything; ``before``: end the connection instead of passing the next COMMIT on; ``after``:
            pass it on, wait until the server has answered, and end the connection without the answer.
        closed: Whether clients are turned away after the cut.
    """

    def __init__(self, server_port: int) -> None:
        """Listen on a free port of this machine."""
        self.cut = ""
        self.closed = False
        self.answered = threading.Event()
        self._closes = False
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def cut_next(self, when: str, *, close: bool) -> None:
        """Cut at the next commit; from then on turn clients away, or not."""
        self.answered.clear()
        self._closes, self.cut = close, when

    def end(self) -> None:
        """End all connections and threads."""
        for held in list(self._sockets):
            _end(held)
        for thread in list(self._threads):
            thread.join(10)
        for held in self._sockets:
            held.close()

    def _run(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.closed:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._sockets += [client, server]
            silent = threading.Event()
            self._run(self._to_server, client, server, silent)
            self._run(self._to_client, client, server, silent)

    def _to_server(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        for chunk in _chunks(client):
            if _COMMIT in chunk and self.cut:
                after, self.cut = self.cut == "after", ""
                self.closed = self._closes
                if after:
                    silent.set()
                    server.sendall(chunk)
                    self.answered.wait(10)
                break
            server.sendall(chunk)
        _end(client)
        _end(server)

    def _to_client(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        for chunk in _chunks(server):
            if silent.is_set():
                self.answered.set()
                return
            client.sendall(chunk)
        _end(client)


def _chunks(source: socket.socket) -> Iterator[bytes]:
    try:
        while chunk := source.recv(65_536):
            yield chunk
    except OSError:
        return


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def cutter(server_port: int) -> Iterator[Cutter]:
    """A cutter in front of a server."""
    made = Cutter(server_port)
    try:
        yield made
    finally:
        made.end()
