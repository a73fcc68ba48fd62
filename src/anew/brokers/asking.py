"""Asking a broker who is there: the one request of Kafka's protocol that says whether a cluster is whole.

DescribeCluster (api key 60, version 0), as https://kafka.apache.org/protocol describes it. No client library: each has
threads, retries and opinions on which broker to ask; here one broker is asked once, and its own answer is what counts.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass

_DESCRIBE_CLUSTER, _VERSION, _CORRELATION = 60, 0, 1
_CLIENT_ID = b"anew"
_LONGEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a broker knows: the id of its cluster, and which brokers serve, by their ids."""

    cluster_id: str
    brokers: frozenset[int]


def ask(port: int, timeout_seconds: float) -> ClusterView | None:
    """What the broker on a port of this machine says; None when it does not answer in time, or is no broker."""
    deadline = time.monotonic() + timeout_seconds
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds) as connection:
            connection.sendall(_request())
            (length,) = struct.unpack(">i", _read(connection, 4, deadline))
            return parse_answer(_read(connection, length, deadline)) if 0 < length <= _LONGEST_BYTES else None
    except (OSError, ValueError, struct.error):
        return None


def _request() -> bytes:
    header = struct.pack(
        f">hhih{len(_CLIENT_ID)}s", _DESCRIBE_CLUSTER, _VERSION, _CORRELATION, len(_CLIENT_ID), _CLIENT_ID
    )
    # Tagged fields of the header (none); whether to tell allowed operations (no); tagged fields of the body (none).
    body = header + b"\x00" + b"\x00" + b"\x00"
    return struct.pack(">i", len(body)) + body


def _read(connection: socket.socket, length: int, deadline: float) -> bytes:
    read = bytearray()
    while len(read) < length:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = connection.recv(length - len(read))
        if not chunk:
            raise ValueError("the connection ended within an answer")
        read += chunk
    return bytes(read)


class _Fields:
    """The fields of an answer, one after the other; raises ValueError or struct.error past its end."""

    def __init__(self, answer: bytes) -> None:
        self._answer, self._at = answer, 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._answer, self._at)
        self._at += struct.calcsize(f">{form}")
        return int(value)

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
        raise ValueError("a number is too long")

    def text(self) -> str:
        length = max(0, self.varint() - 1)
        found = self._answer[self._at : self._at + length]
        if len(found) < length:
            raise ValueError("a text is cut")
        self._at += length
        return found.decode("utf-8")

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self._at += self.varint()


def parse_answer(answer: bytes) -> ClusterView | None:
    """What an answer says; None when it tells of an error, or answers something else.

    Raises:
        ValueError, struct.error: It is no answer of this kind.
    """
    fields = _Fields(answer)
    if fields.number("i") != _CORRELATION:
        return None
    fields.skip_tags()
    fields.number("i")  # how long the broker held the answer back, in ms
    if fields.number("h") != 0:
        return None
    fields.text()  # an error's message
    cluster_id = fields.text()
    fields.number("i")  # the controller, as clients see it: any broker
    return ClusterView(cluster_id, frozenset(_broker(fields) for _ in range(fields.varint() - 1)))


def _broker(fields: _Fields) -> int:
    broker = fields.number("i")
    fields.text()  # host
    fields.number("i")  # port
    fields.text()  # rack
    fields.skip_tags()
    return broker
