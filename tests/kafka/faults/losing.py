"""A way to a broker that loses what producers send, or what they are answered, and lets everything else pass."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from tests.relay import Relay, chunks, ending

_PRODUCE, _FETCH = 0, 1
SIZE_BYTES = 4

Lost = Literal["requests", "answers", "answers and reads"]
_UNANSWERED = {"answers": {_PRODUCE}, "answers and reads": {_PRODUCE, _FETCH}}


class Losing(Relay):
    """Passes Kafka's protocol on; of what a producer sends it loses what it is told to, and counts it.

    Attributes:
        lost: How many requests or answers were lost.
    """

    def __init__(self, server_port: int) -> None:
        """Lose nothing yet."""
        self.lost = 0
        self._losing: Lost | None = None
        super().__init__(server_port)

    @contextmanager
    def losing(self, what: Lost) -> Iterator[None]:
        """Lose all of them meanwhile, of whatever connection."""
        self._losing, self.lost = what, 0
        try:
            yield
        finally:
            self._losing = None

    def ways(self, client: socket.socket, server: socket.socket) -> tuple[Callable[[], None], Callable[[], None]]:
        """Frame by frame; an answer is lost by the number of its request."""
        unanswered: set[int] = set()
        lock = threading.Lock()

        def to_server() -> None:
            with ending(client, server):
                for frame in frames(client):
                    kind, _, number = struct.unpack_from(">hhi", frame, SIZE_BYTES)
                    if kind == _PRODUCE and self._losing == "requests":
                        self.lost += 1
                        continue
                    if kind in _UNANSWERED.get(self._losing or "", ()):
                        with lock:
                            unanswered.add(number)
                    server.sendall(frame)

        def to_client() -> None:
            with ending(client, server):
                for frame in frames(server):
                    (number,) = struct.unpack_from(">i", frame, SIZE_BYTES)
                    with lock:
                        is_lost = number in unanswered
                        unanswered.discard(number)
                    if is_lost:
                        self.lost += 1
                    else:
                        client.sendall(frame)

        return to_server, to_client


def frames(source: socket.socket) -> Iterator[bytes]:
    """Whole requests or answers, with their sizes before them."""
    held = b""
    for chunk in chunks(source):
        held += chunk
        while len(held) >= SIZE_BYTES:
            (size,) = struct.unpack_from(">i", held)
            if len(held) < SIZE_BYTES + size:
                break
            yield held[: SIZE_BYTES + size]
            held = held[SIZE_BYTES + size :]
