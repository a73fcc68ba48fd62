"""S3 for tests of the deep store: an environment that leads to the test run's own server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from anew.deepstore.s3client import s3_client
from tests.component.deepstore.faults import FaultyProxy
from tests.minio import OF_OTHERS, MinioServer

Lead = Callable[[str | None], None]
"""Leads this process to the server's own URL (None) or to another one."""


@pytest.fixture
def lead(minio: MinioServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lead]:
    """Sets the environment of the S3 client of this process."""

    def lead_to(url: str | None) -> None:
        for name in OF_OTHERS:
            monkeypatch.delenv(name, raising=False)
        for name, value in minio.environment(url).items():
            monkeypatch.setenv(name, value)
        s3_client.cache_clear()

    yield lead_to
    s3_client.cache_clear()


@pytest.fixture(scope="session")
def bucket(minio: MinioServer) -> str:
    """One bucket for all tests that take a prefix of their own."""
    return minio.new_bucket()


@pytest.fixture
def proxy(minio: MinioServer, lead: Lead) -> Iterator[FaultyProxy]:
    """A way to the server that does what a test says; this process's S3 client takes it."""
    with FaultyProxy(minio.port) as made:
        lead(made.url)
        yield made
