"""The demo plays on a real PostgreSQL server as its catalog, again and again."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.cluster.commands import Anew
from tests.postgresql import PostgresServer


@pytest.mark.timeout(900)
def test_the_demo_plays_on_postgresql(tmp_path: Path, postgresql: PostgresServer) -> None:
    """The whole story with its catalog in PostgreSQL: every check passes; nothing is left in the way of the next."""
    url = postgresql.new_database()
    anew = Anew(tmp_path / "home", {"ANEW_PORT": "7860", "ANEW_CATALOG": url})
    summary = anew.here("demo", "stores")
    assert summary["passed"] is True
    assert [check["version"] for check in summary["checks"]] == [2, 1, 2]
    assert not anew.home.exists()
    with psycopg.connect(url) as catalog:
        assert catalog.execute("SELECT name, live_name, next_version FROM stores").fetchall() == [("flights", None, 3)]
        began = catalog.execute("SELECT count(*) FROM history WHERE what LIKE 'begin %'").fetchone()
        assert began == (2,)
