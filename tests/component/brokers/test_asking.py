"""Asking a broker: whatever comes back, there is an answer or there is none, and in time."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from anew.brokers.asking import ClusterView, ask

_TWO = (
    struct.pack(">ibihb", 1, 0, 0, 0, 0)
    + b"\x05main"
    + struct.pack(">ib", 2, 3)
    + b"".join(struct.pack(">i", id) + b"\x02h" + struct.pack(">i", 9092) + b"\x00\x00" for id in (1, 2))
    + struct.pack(">ib", -2147483648, 0)
)
"""An answer of a cluster ``main`` with two brokers."""


@contextmanager
def _server(answer: bytes | None) -> Iterator[int]:
    """A port where a client is answered so; None: it is kept waiting."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as idle:
        held = [idle]

        def serve() -> None:
            connection, _ = listener.accept()
            held.append(connection)
            asked = struct.unpack(">i", connection.recv(4))[0]
            connection.recv(asked)
            if answer is not None:
                connection.sendall(answer)
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        thread.join(10)
        for connection in held:
            connection.close()


def _framed(answer: bytes) -> bytes:
    return struct.pack(">i", len(answer)) + answer


def test_an_answer_is_understood() -> None:
    """The cluster's id, and the ids of its brokers."""
    with _server(_framed(_TWO)) as port:
        assert ask(port, 5) == ClusterView("main", frozenset({1, 2}))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        _framed(_TWO)[:-20],
        _framed(_TWO[:20]),
        _framed(b""),
        struct.pack(">i", -1),
        struct.pack(">i", 1 << 30),
        _framed(struct.pack(">i", 7) + _TWO[4:]),
        _framed(_TWO[:9] + struct.pack(">h", 35) + _TWO[11:]),
        _framed(_TWO.replace(b"\x05main", b"\x05\xff\xff\xff\xff")),
        _framed(_TWO[:12] + b"\xff" * 8),
    ],
    ids=["nothing", "HTTP", "cut", "short", "empty", "negative", "huge", "to another", "error", "no text", "no number"],
)
def test_whoever_is_no_broker_has_not_answered(answer: bytes) -> None:
    """Nothing that another program may send is an error, or taken for an answer."""
    with _server(answer) as port:
        assert ask(port, 5) is None


def test_who_keeps_silent_has_not_answered() -> None:
    """At the deadline; and nobody at all at once."""
    with _server(None) as port:
        begun = time.monotonic()
        assert ask(port, 0.2) is None
        assert time.monotonic() - begun < 5
    assert ask(port, 5) is None
