"""The S3 server that tests use leaves nothing behind, and is not missed in silence."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests import minio as minio_module
from tests.component.outliving import Victim, check_ends_with
from tests.minio import MinioServer, build, running_minio
from tests.needs import COMPLETE

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("victim", ["starter", "guard"])
def test_a_server_never_outlives_its_test_run(minio: MinioServer, victim: Victim) -> None:
    """When the test run, or the guard between them, is ended by SIGKILL, the server ends; its directory goes too."""
    assert minio.pid
    check_ends_with("tests.minio", "running_minio", victim)


def test_the_server_listens_on_this_machine_alone(minio: MinioServer) -> None:
    """Nobody else can reach it."""
    listening = [c.laddr.ip for c in psutil.Process(minio.pid).net_connections("tcp") if c.status == "LISTEN"]
    assert set(listening) <= {"127.0.0.1", "::1"}
    assert "127.0.0.1" in listening


@pytest.mark.parametrize("variable", [COMPLETE, "CI"])
def test_a_server_that_cannot_be_built_is_skipped_here_and_fails_where_all_must_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    """Without a built server and without Go the tests are skipped with one line; where all must run they fail."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in (COMPLETE, "CI"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"MinIO is missing here: install go 1\.24") as skipped:
        running_minio().__enter__()
    assert "\n" not in str(skipped.value)
    monkeypatch.setenv(variable, "true")
    with pytest.raises(pytest.fail.Exception, match=r"install go 1\.24"):
        running_minio().__enter__()


def test_a_build_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The last line that Go printed is in the reason, and nothing half built is taken for the server."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "go").write_text("#!/bin/sh\necho 'go: no such module' >&2\nexit 1\n", encoding="ascii")
    (programs / "go").chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    assert "go: no such module" in build()
    assert not minio_module.cached_binary().exists()
