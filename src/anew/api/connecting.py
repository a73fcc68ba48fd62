"""How clients connect: the token that they show, and whose certificates they trust."""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

import httpx

from anew.api.security import Credentials
from anew.core.errors import InvalidRequest, Unreachable

_TLS_HINT = "does tls_ca (ANEW_TLS_CA) name the authority of its certificate, and the URL the name in it?"


def headers_of(credentials: Credentials) -> dict[str, str]:
    """The headers that show who asks."""
    return {} if credentials.token is None else {"authorization": f"Bearer {credentials.token}"}


class _UsualTrust(ssl.SSLContext):
    """Verifies with the authorities that everybody trusts, and reads them for the first connection that needs them.

    Reading them takes longer (35 ms) than most requests, and whoever reaches servers by http alone never needs them.
    """

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return _usual_authorities().wrap_socket(*arguments, **options)

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return _usual_authorities().wrap_bio(*arguments, **options)


@cache
def _usual_authorities() -> ssl.SSLContext:
    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def trust_of(credentials: Credentials) -> ssl.SSLContext:
    """What a client verifies servers with: the authorities of ``tls_ca``, or those that everybody trusts.

    The latter are certifi's, or those of ``SSL_CERT_FILE`` or ``SSL_CERT_DIR``.

    Raises:
        InvalidRequest: ``bad_tls_ca``.
    """
    if credentials.tls_ca is None:
        return _UsualTrust(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return ssl.create_default_context(cafile=credentials.tls_ca)
    except OSError as error:  # an SSLError is one
        raise InvalidRequest(
            "bad_tls_ca",
            "the certificates to trust cannot be read",
            found=f"{credentials.tls_ca}: {error}",
            expected="a file of certificates in PEM",
            hint="set tls_ca (ANEW_TLS_CA)",
        ) from error


def tls_error(error: Exception, found: str) -> Unreachable | None:
    """The error of a connection that failed for want of trust, None when it failed otherwise."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ if cause.__cause__ is not None else cause.__context__
    if cause is None:
        return None
    untrusted = isinstance(cause, ssl.SSLCertVerificationError)
    return Unreachable(
        "tls_untrusted" if untrusted else "tls_failed",
        "the server's certificate is not trusted" if untrusted else "no TLS connection could be made",
        found=found,
        expected="a server whose certificate a trusted authority signed" if untrusted else "a server that speaks TLS",
        hint=_TLS_HINT if untrusted else "does the address begin with https where the server speaks TLS?",
    )
