"""What one client can take of a server: sizes, times, connections; with sockets that break the rules on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from anew.api.security import HEAD_BYTES, RequestLimits, ServerSecurity
from anew.api.stores.node_wire import MAX_BATCH_KEYS, encode_keys
from tests.cluster.commands import wait_until
from tests.component.security.servers import Listening, controller, heard, node, seconds_of

pytestmark = pytest.mark.processes

Server = Callable[[Path, ServerSecurity], AbstractContextManager[Listening]]
BODY_BYTES = 200_000
LIMITS = RequestLimits(body_bytes=BODY_BYTES, connections=20, body_seconds=1.0, head_seconds=1.0)


@pytest.fixture(scope="module", params=[controller, node], ids=["controller", "node"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    """Each kind of server, with small limits; whatever one test does to it must not show in the next."""
    start: Server = request.param
    with start(tmp_path_factory.mktemp("server"), ServerSecurity(limits=LIMITS)) as listening:
        yield listening


def _post(server: Listening, *headers: str) -> bytes:
    lines = [
        f"POST {server.path} HTTP/1.1",
        "host: localhost",
        "connection: close",
        "content-type: application/json",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def _alive(server: Listening) -> bool:
    return _status(server.say(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")) == 200


def test_a_body_that_says_it_is_too_large_is_not_read(server: Listening) -> None:
    """The refusal comes before a single byte of the body; it is an error like any other."""
    answer = server.say(_post(server, f"content-length: {BODY_BYTES + 1}"))
    assert _status(answer) == 413
    assert b'"code":"request_too_large"' in answer
    assert _alive(server)


def test_a_body_in_chunks_is_too_large_when_it_becomes_so(server: Listening) -> None:
    """Without a length, what came is counted."""
    chunk = b"%x\r\n%s\r\n" % (50_000, b"x" * 50_000)
    answer = server.say(_post(server, "transfer-encoding: chunked"), *[chunk] * 5, b"0\r\n\r\n")
    assert _status(answer) == 413
    assert b'"code":"request_too_large"' in answer
    small = server.say(_post(server, "transfer-encoding: chunked"), chunk, b"0\r\n\r\n")
    assert _status(small) == 422, "it is read, and is no request"
    assert _alive(server)


def test_a_length_that_is_none_is_refused(server: Listening) -> None:
    """A length that is no number, or no possible one, is the client's error and harms nobody."""
    for length in ("-1", "1e9", "9" * 30, "0x10", "+5", "5, 6"):
        assert _status(server.say(_post(server, f"content-length: {length}"), b"12345")) in (400, 413), length
    assert _alive(server)


def test_a_length_beside_chunks_is_not_two_requests(server: Listening) -> None:
    """Where length and chunks contradict each other, no second request is read out of the first one's body.

    The connection stays open on this side, as a proxy's would: it is the server that must end it.
    """
    hidden = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
    head = _post(server, "content-length: 5", "transfer-encoding: chunked").replace(b"connection: close\r\n", b"")
    with server.connect() as connection:
        connection.sendall(head + b"0\r\n\r\n" + hidden)
        came = heard(connection)
    assert (_status(came), b"# HELP" in came) == (400, False)
    assert _alive(server)


def test_a_head_that_is_too_large_is_refused(server: Listening) -> None:
    """A path, one header, or many small ones beyond the limit end in a 4xx, never in memory without bounds."""
    beyond = HEAD_BYTES * 2
    for said in (
        b"GET /" + b"x" * beyond + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        _post(server, "x-big: " + "x" * beyond),
        _post(server, *(f"x-{n}: {n}" for n in range(20_000))),
    ):
        assert _status(server.say(said)) in (0, 400, 414, 431)
    assert _alive(server)


def test_a_head_that_does_not_come_ends_the_connection(server: Listening) -> None:
    """A client that connects and says nothing, or half a head, is let go after a second or so."""
    for said in (b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: 1"):
        assert seconds_of(lambda said=said: server.say(said)) < 8, said
    assert _alive(server)


def test_a_body_that_does_not_come_ends_in_an_error(server: Listening) -> None:
    """A client that promises a body and stops is answered 408 after the deadline."""
    answer = server.say(_post(server, "content-length: 100"), b"half")
    assert _status(answer) == 408
    assert b'"code":"request_too_slow"' in answer
    assert _alive(server)


def test_more_connections_than_allowed_do_not_end_the_server(server: Listening) -> None:
    """Three times as many idle connections as the limit; afterwards it serves as before."""
    with ExitStack() as stack:
        for _ in range(LIMITS.connections * 3):
            stack.enter_context(server.connect())
    # That the connections have ended it hears a moment later.
    wait_until(lambda: _alive(server), "the server to answer again", 20)


def test_a_second_request_on_a_connection_has_its_own_time(server: Listening) -> None:
    """A connection that is kept is not ended by the first head's deadline; a second head that stops is."""
    ask = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with server.connect() as connection:
        for _ in range(3):
            connection.sendall(ask)
            answer = b""
            while b"alive" not in answer:
                answer += connection.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 200")
        connection.sendall(ask[:12])
        assert seconds_of(lambda: heard(connection)) < 8


def test_a_batch_of_too_many_keys_is_refused(tmp_path: Path) -> None:
    """One key more than a batch may have is refused, in one block or in many; so is a body that claims too much."""
    with node(tmp_path) as server:
        for body, status in (
            (encode_keys([b"\x06k01"] * MAX_BATCH_KEYS), 200),
            (encode_keys([b"\x06k01"] * (MAX_BATCH_KEYS + 1)), 422),
            (b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" * 3, 422),
            (b"\x80\x80\x80\x80\x20" + b"\x00" * 10, 422),
            (b"\x02\x00" * 500_000 + b"\x00", 422),
            (b"\x01\x02\x00" * 500_000 + b"\x00", 422),
        ):
            answer = server.say(_post(server, f"content-length: {len(body)}"), body)
            assert _status(answer) == status, body[:20]
