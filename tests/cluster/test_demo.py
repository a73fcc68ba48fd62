"""The demo plays on a real PostgreSQL server as its catalog and a real S3 server as its deep store, again and again."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.cluster.commands import Anew
from tests.minio import MinioServer
from tests.ports import port_of
from tests.postgresql import PostgresServer


@pytest.mark.timeout(900)
def test_the_demo_plays_on_postgresql_and_s3(tmp_path: Path, postgresql: PostgresServer, minio: MinioServer) -> None:
    """With its catalog in PostgreSQL and its base files in S3 every check passes; nothing is in the next demo's way."""
    url, bucket = postgresql.new_database(), minio.new_bucket()
    given = {"ANEW_PORT": str(port_of("demo")), "ANEW_CATALOG": url, "ANEW_DEEP_STORE": f"s3://{bucket}/demo"}
    anew = Anew(tmp_path / "home", given | minio.environment())
    summary = anew.here("demo", "stores", "--every", "16")
    assert summary["passed"] is True
    assert [check["version"] for check in summary["checks"]] == [2, 1, 2]
    assert not anew.home.exists()
    with psycopg.connect(url) as catalog:
        assert catalog.execute("SELECT name, live_name, next_version FROM stores").fetchall() == [("flights", None, 3)]
        began = catalog.execute("SELECT count(*) FROM history WHERE what LIKE 'begin %'").fetchone()
        assert began == (2,)
    assert minio.client().list_objects_v2(Bucket=bucket)["KeyCount"] == 0
