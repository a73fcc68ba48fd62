"""A way to an S3 server that turns requests away, cuts them, or loses their answers."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tests.relay import Relay, chunks, ending

_BODY = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>'
)
_STATUS_BYTES = len("HTTP/1.1 200 OK\r\nAccept")
_METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")


class Fault(StrEnum):
    """What becomes of a request."""

    TURNED_AWAY = "answered with 503, not passed on"
    CUT_REQUEST = "cut after its first bytes of body"
    CUT_HEAD = "passed on and carried out; the head of its answer is cut after the status"
    CUT_ANSWER = "passed on; its answer is cut in the middle"
    LOST_ANSWER = "passed on and carried out; its answer is dropped"
    SILENCE = "taken, never answered, not passed on"


@dataclass(frozen=True, slots=True)
class Rule:
    """One fault for one request: the first whose line holds all of some texts."""

    fault: Fault
    texts: tuple[str, ...]


class FaultyProxy(Relay):
    """Passes requests on, except those that a rule is waiting for; each rule is used once.

    Attributes:
        requests: The first lines of all requests that came, in order.
    """

    def __init__(self, server_port: int) -> None:
        """Listen on a free port of this machine."""
        self.requests: list[str] = []
        self._rules: deque[Rule] = deque()
        self._lock = threading.Lock()
        super().__init__(server_port)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def ways(self, client: socket.socket, server: socket.socket) -> tuple[Callable[[], None], Callable[[], None]]:
        """See `Relay.ways`."""
        connection = _Connection(self, client, server)
        return connection.to_server, connection.to_client

    def expect(self, fault: Fault, *texts: str, times: int = 1) -> None:
        """Do something to the next requests whose first line holds all of some texts."""
        with self._lock:
            self._rules.extend([Rule(fault, texts)] * times)

    def count(self, *texts: str) -> int:
        """How many requests came whose first line holds all of some texts."""
        return sum(all(text in line for text in texts) for line in self.requests)

    @property
    def waiting(self) -> int:
        """How many rules were not used."""
        return len(self._rules)

    def rule_for(self, line: str) -> Fault | None:
        """Note a request; what is to become of it."""
        with self._lock:
            self.requests.append(line)
            for rule in self._rules:
                if all(text in line for text in rule.texts):
                    self._rules.remove(rule)
                    return rule.fault
        return None


class _Connection:
    """One client's connection. A client sends its next request when it has its answer."""

    def __init__(self, proxy: FaultyProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._fault: Fault | None = None

    def to_server(self) -> None:
        """Pass requests on."""
        with ending(self._client, self._server):
            for chunk in chunks(self._client):
                if chunk.startswith(_METHODS):
                    self._fault = self._proxy.rule_for(chunk.split(b"\r\n", 1)[0].decode())
                    if self._fault is Fault.TURNED_AWAY:
                        head = f"HTTP/1.1 503 Slow Down\r\nContent-Length: {len(_BODY)}\r\nConnection: close\r\n\r\n"
                        self._client.sendall(head.encode() + _BODY)
                        break
                elif self._fault is Fault.CUT_REQUEST:
                    self._server.sendall(chunk[: len(chunk) // 2])
                    break
                if self._fault is not Fault.SILENCE:
                    self._server.sendall(chunk)

    def to_client(self) -> None:
        """Pass answers back."""
        with ending(self._client, self._server):
            for chunk in chunks(self._server):
                if self._fault is Fault.LOST_ANSWER:
                    break
                if self._fault in (Fault.CUT_HEAD, Fault.CUT_ANSWER):
                    self._client.sendall(chunk[: _STATUS_BYTES if self._fault is Fault.CUT_HEAD else len(chunk) // 2])
                    break
                self._client.sendall(chunk)
