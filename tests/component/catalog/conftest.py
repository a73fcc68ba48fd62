"""Catalogs on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgresql import PostgresServer


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return f"sqlite:///{tmp_path}/catalog.sqlite"


@pytest.fixture
def postgresql_url(postgresql: PostgresServer) -> Iterator[str]:
    """An empty database."""
    url = postgresql.new_database()
    yield url
    postgresql.drop(url)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def catalog_url(request: pytest.FixtureRequest) -> str:
    """An empty catalog on each kind of database."""
    return str(request.getfixturevalue(f"{request.param}_url"))
