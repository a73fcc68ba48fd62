"""A way to a broker that seems to lead a partition no more when it is asked where the partition begins."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable

from tests.kafka.faults.losing import SIZE_BYTES, frames
from tests.relay import Relay, ending

_LIST_OFFSETS, _FLEXIBLE_SINCE = 2, 6
_EARLIEST = -2
_NOT_LEADER = 6
_BESIDE_SECONDS = 0.05


class Wavering(Relay):
    """Says of each second look for a begin that another broker leads, together with the next answer if one comes soon.

    So do brokers in the moment in which they become leaders: of two looks at once the first is refused.

    Attributes:
        refused: How many looks were refused.
        wavers: Whether looks are refused now.
    """

    def __init__(self, server_port: int) -> None:
        """Refuse nothing yet."""
        self.refused = 0
        self.wavers = False
        self._looks = 0
        super().__init__(server_port)

    def ways(self, client: socket.socket, server: socket.socket) -> tuple[Callable[[], None], Callable[[], None]]:
        """Frame by frame; a look is refused by the number of its request."""
        refused: dict[int, int] = {}
        lock = threading.Lock()

        def to_server() -> None:
            with ending(client, server):
                for frame in frames(client):
                    kind, api_version, number = struct.unpack_from(">hhi", frame, SIZE_BYTES)
                    if kind == _LIST_OFFSETS:
                        tags = 3 if api_version >= _FLEXIBLE_SINCE else 0
                        with lock:
                            if self._is_refused(frame, tags):
                                refused[number] = tags
                    server.sendall(frame)

        def to_client() -> None:
            held = b""
            with ending(client, server):
                for frame in frames(server):
                    (number,) = struct.unpack_from(">i", frame, SIZE_BYTES)
                    with lock:
                        tags = refused.pop(number, None)
                    if tags is not None:
                        held += _refusal(frame, tags)
                        if select.select([server], [], [], _BESIDE_SECONDS)[0]:
                            continue
                        frame = b""
                    client.sendall(held + frame)
                    held = b""

        return to_server, to_client

    def _is_refused(self, request: bytes, tags: int) -> bool:
        """Whether a look, of one partition, is for its begin, and one of those that are refused."""
        (timestamp,) = struct.unpack_from(">q", request, len(request) - tags - 8)
        if not self.wavers or timestamp != _EARLIEST:
            return False
        self._looks += 1
        self.refused += self._looks % 2
        return bool(self._looks % 2)


def _refusal(answer: bytes, tags: int) -> bytes:
    """An answer for one partition, with an error and neither time, offset nor epoch in their place."""
    end = len(answer) - tags
    return answer[: end - 22] + struct.pack(">hqqi", _NOT_LEADER, -1, -1, -1) + answer[end:]
