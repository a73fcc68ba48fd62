"""The brokers that tests use leave nothing behind, and are not missed in silence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.brokers import ENVIRONMENT, broker_home, check_needs, running_brokers
from tests.cluster.commands import Anew, wait_until
from tests.component.outliving import Victim, check_ends_with
from tests.needs import COMPLETE
from tests.processes import gone


@pytest.mark.parametrize("victim", ["starter", "guard"])
def test_brokers_never_outlive_their_test_run(victim: Victim) -> None:
    """When the test run, or the guard between them, is ended by SIGKILL, the broker ends; its directory goes too."""
    check_needs()
    check_ends_with("tests.brokers", "running_brokers", victim)


def test_brokers_that_a_command_started_end_with_the_home() -> None:
    """They have no tie to the test but the home."""
    with broker_home() as home:
        anew = Anew(home.path, ENVIRONMENT)
        anew.done("kafka", "up")
        (broker,) = anew.done("kafka", "status")["brokers"]
        assert not gone(broker["pid"])
    wait_until(lambda: gone(broker["pid"]), "the broker's end")
    assert not home.directory.exists()


@pytest.mark.parametrize("variable", [COMPLETE, "CI"])
def test_without_jars_and_maven_tests_are_skipped_here_and_fail_where_all_must_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    """With one line that says what to install."""
    programs = tmp_path / "bin"
    programs.mkdir()
    java = shutil.which("java")
    assert java is not None
    (programs / "java").symlink_to(java)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(programs))
    for name in (COMPLETE, "CI"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"Kafka is missing here: .*apt-get install maven") as skipped:
        running_brokers().__enter__()
    assert "\n" not in str(skipped.value)
    monkeypatch.setenv(variable, "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install maven"):
        running_brokers().__enter__()
