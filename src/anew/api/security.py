"""What servers and clients are told about safety, as values: tokens, certificates, limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from anew.api.gate import Tokens
from anew.core.errors import InvalidRequest

MIB = 1024 * 1024
HEAD_BYTES = 65_536
"""Of a request's line and headers together: a key of some 48 kB in base64url fits into a path."""
HEAD_SECONDS = 10.0
"""Until line and headers are there; each connection that is kept waiting costs a file descriptor."""
BODY_SECONDS = 60.0
"""Until the body is there: the greatest one at 1 MB/s."""
KEEP_ALIVE_SECONDS = 5.0
"""An idle connection is closed after it."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How much of a server one client may take.

    Attributes:
        body_bytes: The greatest body. The largest honest one is a plan of 100,000 partitions, some 20 MB.
        connections: Further ones wait (nodes), or are told to come back (controller).
        body_seconds: How long a body may take to arrive.
        head_seconds: How long line and headers may take to arrive.
    """

    body_bytes: int = 64 * MIB
    connections: int = 512
    body_seconds: float = BODY_SECONDS
    head_seconds: float = HEAD_SECONDS


class TooLarge(InvalidRequest):
    """The request is larger than the server takes; nothing was changed."""

    http_status = 413


class TooSlow(InvalidRequest):
    """The request did not arrive in time; nothing was changed."""

    http_status = 408


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """How a server is reached.

    Attributes:
        tokens: The tokens that it asks for; None: none.
        certificate: Its TLS certificate with the chain, PEM; None: plain HTTP.
        key: The certificate's private key, PEM.
        limits: How much of it one client may take.
        names: Names by which it is reached besides the address that it listens on, see `anew.api.reach.Reach`.
    """

    tokens: Tokens | None = None
    certificate: Path | None = None
    key: Path | None = None
    limits: RequestLimits = field(default_factory=RequestLimits)
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a client shows who it is, and knows who answers.

    Attributes:
        token: Sent as ``Authorization: Bearer``; None: nothing is.
        tls_ca: Certificates of the authorities that it trusts, PEM; None: the system's.
    """

    token: str | None = field(default=None, repr=False)
    tls_ca: Path | None = None


NOBODY = Credentials()
OPEN_SERVER = ServerSecurity()


def too_large(found: int, limits: RequestLimits) -> TooLarge:
    """The error of a body that is too large."""
    return TooLarge(
        "request_too_large",
        "the request is too large",
        found=f"{found} bytes or more",
        expected=f"at most {limits.body_bytes} bytes",
        hint="ask for less at once, or raise max_request_bytes of the server",
    )


def too_slow(limits: RequestLimits) -> TooSlow:
    """The error of a body that does not come."""
    return TooSlow(
        "request_too_slow",
        "the request did not arrive in time",
        expected=f"the whole body within {limits.body_seconds:g} s",
        hint="send it again",
    )
