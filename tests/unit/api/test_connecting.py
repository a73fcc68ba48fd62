"""What clients trust: read for those who need it, and for them as strictly as ever."""

from __future__ import annotations

import ssl

import httpx
import pytest

from anew.api import connecting
from anew.api.connecting import trust_of
from anew.api.security import NOBODY


def test_authorities_are_read_for_the_first_connection_that_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making clients reads none; all connections of a process read them once."""
    read: list[ssl.SSLContext] = []

    def counted() -> ssl.SSLContext:
        read.append(httpx.create_ssl_context())
        return read[-1]

    monkeypatch.setattr(connecting, "httpx", type("httpx", (), {"create_ssl_context": staticmethod(counted)}))
    connecting._usual_authorities.cache_clear()
    trusts = [trust_of(NOBODY) for _ in range(3)]
    assert read == []
    for trust in trusts:
        connection = trust.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="anew.example")
        assert connection.context is read[0]
    assert len(read) == 1
    assert (read[0].verify_mode, read[0].check_hostname) == (ssl.CERT_REQUIRED, True)
    assert read[0].cert_store_stats()["x509_ca"] > 0
    connecting._usual_authorities.cache_clear()
