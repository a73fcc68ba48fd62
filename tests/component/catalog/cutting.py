"""A connection to PostgreSQL that is cut at the commit, before or after the server has it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from functools import partial

from tests.relay import Relay, chunks, ending

_COMMIT = b"COMMIT\0"
"""As it travels; not the word in READ COMMITTED, with which a transaction begins."""


class Cutter(Relay):
    """Passes bytes between clients and a server on this machine until it is told to cut.

    Attributes:
        cut: ``""``: pass everything; ``before``: end the connection instead of passing the next COMMIT on; ``after``:
            pass it on, wait until the server has answered, and end the connection without the answer.
    """

    def __init__(self, server_port: int) -> None:
        """Listen on a free port of this machine."""
        self.cut = ""
        self.answered = threading.Event()
        self._closes = False
        self._closed = False
        super().__init__(server_port)

    def cut_next(self, when: str, *, close: bool) -> None:
        """Cut at the next commit; from then on turn clients away, or not."""
        self.answered.clear()
        self._closes, self.cut = close, when

    @property
    def closed(self) -> bool:
        """Whether clients are turned away after the cut."""
        return self._closed

    def ways(self, client: socket.socket, server: socket.socket) -> tuple[Callable[[], None], Callable[[], None]]:
        """See `Relay.ways`."""
        silent = threading.Event()
        return partial(self._to_server, client, server, silent), partial(self._to_client, client, server, silent)

    def _to_server(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with ending(client, server):
            for chunk in chunks(client):
                if _COMMIT in chunk and self.cut:
                    after, self.cut = self.cut == "after", ""
                    self._closed = self._closes
                    if after:
                        silent.set()
                        server.sendall(chunk)
                        self.answered.wait(10)
                    break
                server.sendall(chunk)

    def _to_client(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with ending(client):
            for chunk in chunks(server):
                if silent.is_set():
                    self.answered.set()
                    break
                client.sendall(chunk)
