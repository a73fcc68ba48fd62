"""The PostgreSQL server that tests use leaves nothing behind, and is not missed in silence."""

from __future__ import annotations

import psutil
import pytest

from tests import postgresql as postgresql_module
from tests.component.outliving import Victim, check_ends_with
from tests.needs import COMPLETE
from tests.postgresql import PostgresServer, running_server


@pytest.mark.parametrize("victim", ["starter", "guard"])
def test_a_server_never_outlives_its_test_run(postgresql: PostgresServer, victim: Victim) -> None:
    """When the test run, or the guard between them, is ended by SIGKILL, the server ends; its directory goes too."""
    assert postgresql.pid
    check_ends_with("tests.postgresql", "running_server", victim)


def test_the_server_does_not_run_as_root(postgresql: PostgresServer) -> None:
    """Started by root or not, the server's user is another one, and nobody else may look into its data."""
    process = psutil.Process(postgresql.pid)
    assert process.uids().real != 0
    assert (postgresql.directory / "data").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("variable", [COMPLETE, "CI"])
def test_a_missing_server_is_skipped_here_and_fails_where_all_must_run(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Without the server's programs the tests are skipped with one line that says what to install; in CI they fail."""
    monkeypatch.setattr(postgresql_module, "find_binaries", lambda: None)
    for name in (COMPLETE, "CI"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install postgresql") as skipped, running_server():
        pass
    assert "\n" not in str(skipped.value)
    monkeypatch.setenv(variable, "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install postgresql"), running_server():
        pass
