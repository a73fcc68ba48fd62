"""The node's HTTP server: what clients may send at once, late, in parts or not at all."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from anew.api.security import RequestLimits, ServerSecurity
from anew.core.errors import Failed, InvalidRequest
from anew.node.exchange import Answer, Request
from anew.node.server import NodeServer
from tests.cluster.commands import wait_until
from tests.component.security.servers import heard

_LIMITS = RequestLimits(body_bytes=1_000, connections=4, body_seconds=1.0, head_seconds=1.0)
_LARGE_BYTES = 32 << 20


@dataclass(slots=True)
class _Echo:
    """Answers with what it was asked; below /later/ only once it is told to."""

    go_on: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)

    def check(self, request: Request) -> None:
        """Only what is not asked for at /no may go on."""
        if request.path == "/no":
            raise InvalidRequest("no", "not here")

    def answer(self, request: Request) -> Answer | Coroutine[Any, Any, Answer]:
        """Method, path, query and body."""
        match request.path:
            case "/later":
                return self._later(request)
            case "/large":
                return Answer(200, [], bytes(_LARGE_BYTES))
            case "/error":
                raise Failed("broken", "it does not work")
            case "/crash":
                raise ZeroDivisionError
        said = f"{request.method} {request.path} {dict(request.query)} {request.header('x-one')}".encode()
        return Answer(200, [("content-type", "text/plain")], said + b" " + request.body)

    async def _later(self, request: Request) -> Answer:
        self.begun.set()
        await asyncio.to_thread(self.go_on.wait, 10)
        return Answer(200, [], b"late " + request.body)


@contextmanager
def _listening(app: _Echo) -> Iterator[tuple[NodeServer, int]]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    server = NodeServer(app, "127.0.0.1", port, ServerSecurity(limits=_LIMITS))
    server.start()
    try:
        yield server, port
    finally:
        app.go_on.set()
        server.stop()


@pytest.fixture
def echo() -> _Echo:
    """What answers."""
    return _Echo()


@pytest.fixture
def port(echo: _Echo) -> Iterator[int]:
    """A server that listens."""
    with _listening(echo) as (_, port):
        yield port


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def _said(port: int, *parts: bytes) -> bytes:
    with _connected(port) as connection:
        for part in parts:
            connection.sendall(part)
        return heard(connection)


def _request(path: str, *lines: str, method: str = "GET", body: bytes = b"", last: bool = True) -> bytes:
    end = ["connection: close"] if last else []
    head = [f"{method} {path} HTTP/1.1", "host: localhost", *lines, *end]
    if body:
        head.append(f"content-length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body


def test_requests_that_are_sent_at_once_are_answered_in_their_order(port: int, echo: _Echo) -> None:
    """One that takes its time holds up those behind it, and none of them is lost or answered before it."""
    at_once = b"".join(
        [
            _request("/a?x=1&y=", "x-one: first", "X-One: second", last=False),
            _request("/later", method="POST", body=b"body", last=False),
            _request("/b", last=False),
            _request("/c"),
        ]
    )
    with _connected(port) as connection:
        connection.sendall(at_once)
        assert echo.begun.wait(10)
        echo.go_on.set()
        came = heard(connection)
    bodies = [part.partition(b"\r\n\r\n")[2] for part in came.split(b"HTTP/1.1 ")[1:]]
    assert bodies == [
        b"GET /a {'x': '1', 'y': ''} first ",
        b"late body",
        b"GET /b {} None ",
        b"GET /c {} None ",
    ]


def test_a_request_may_come_byte_by_byte(port: int) -> None:
    """Heads and chunked bodies are put together from whatever parts they come in."""
    chunked = _request("/a", "transfer-encoding: chunked", method="POST") + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    assert _said(port, *(bytes([byte]) for byte in chunked)).endswith(b"POST /a {} None abcde")


def test_an_answer_to_head_has_no_body(port: int) -> None:
    """Its length is that of the body that a get has."""
    said = _said(port, _request("/a", method="HEAD"))
    assert said.endswith(b"content-length: 16\r\n\r\n")


def test_a_client_that_asks_whether_it_may_send_is_told_so(port: int) -> None:
    """Before the body it hears 100, and where that would be refused, the refusal."""
    with _connected(port) as connection:
        connection.sendall(b"PUT /a HTTP/1.1\r\ncontent-length: 2\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"ab")
        assert heard(connection).endswith(b"PUT /a {} None ab")
    assert _said(port, b"PUT /no HTTP/1.1\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n").startswith(
        b"HTTP/1.1 422"
    )


def test_errors_are_answers_and_the_connection_goes_on(port: int) -> None:
    """A refusal, an error and a crash each have their answer, and the next request is served."""
    asked = [_request(path, last=False) for path in ("/no", "/error", "/crash")]
    said = _said(port, *asked, _request("/a"))
    statuses = [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [422, Failed.http_status, Failed.http_status, 200]
    assert b'"code":"internal_error"' in said


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01\x02\x00\x01", b"HELLO\r\n\r\n", b"GET /a HTTP/1.1\nhost x\r\n\r\n", b"\r\n\x00"]
)
def test_what_is_no_request_is_refused(port: int, junk: bytes) -> None:
    """Another protocol, or garbage, is answered 400 and the connection ends."""
    said = _said(port, junk + b"\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 400")
    assert b"connection: close" in said


def test_another_protocol_is_not_spoken(port: int) -> None:
    """Whoever would like to change it gets the answer in this one."""
    said = _said(port, _request("/a", "connection: upgrade", "upgrade: websocket", last=False))
    assert said.startswith(b"HTTP/1.1 200")
    assert said.endswith(b"GET /a {} None ")


def test_a_client_that_does_not_fetch_its_answers_is_let_go(port: int) -> None:
    """After so long as for a body; what it would not read does not stay in memory."""
    with _connected(port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        # So many answers at once would be gigabytes.
        connection.sendall(_request("/large", last=False) * 500)
        connection.settimeout(20)
        # Until the server ends the connection nothing is read; then what is on its way ends in an error.
        ended = threading.Event()
        while not ended.wait(0.1):
            try:
                connection.sendall(b"GET /a HTTP/1.1\r\n\r\n" * 1_000)
            except OSError:
                ended.set()
    assert _said(port, _request("/a")).startswith(b"HTTP/1.1 200")


def test_an_end_waits_for_the_answers_that_are_under_way(echo: _Echo) -> None:
    """A stopped server answers what it was asked before, and takes nothing more."""
    with _listening(echo) as (server, port), _connected(port) as connection:
        connection.sendall(_request("/later", method="POST", body=b"x", last=False))
        assert echo.begun.wait(10)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        wait_until(lambda: _is_refused(port), "the server to take nothing more")
        echo.go_on.set()
        assert heard(connection).endswith(b"late x")
        stopping.join(10)
        assert not stopping.is_alive()


def _is_refused(port: int) -> bool:
    try:
        _connected(port).close()
    except (ConnectionRefusedError, ConnectionResetError):
        # Refused; or reset, by a listener that closed in the moment between the handshake and its acceptance.
        return True
    return False
