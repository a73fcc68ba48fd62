"""Homes that cannot be used, and what is said of a cluster that does not run."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anew.cli import embedded
from anew.cli.main import run_command
from anew.core.errors import Unreachable
from anew.runtime.home import ClusterFile, Home

_COMMANDS = (
    ["up", "--detach"],
    ["down"],
    ["status"],
    ["node", "add"],
    ["push", "users", "in.csv", "--key", "id"],
    ["catalog", "restore"],
    ["kafka", "up"],
    ["kafka", "down"],
    ["kafka", "status"],
)


def _error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = run_command([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)["error"]


@pytest.fixture(autouse=True)
def _no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANEW_URL", raising=False)


@pytest.mark.parametrize("below", ["", "deeper/home"])
@pytest.mark.parametrize("arguments", _COMMANDS, ids=" ".join)
def test_a_file_in_the_place_of_the_home_is_refused(
    arguments: list[str],
    below: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whichever command needs the home: exit 3, with the file that is in the way and what to do."""
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("ANEW_HOME", str(file / below))
    code, error = _error(arguments, capsys)
    assert (code, error["code"], error["found"]) == (3, "home_unusable", f"{file} is a file")
    assert "ANEW_HOME" in error["hint"]


@pytest.mark.parametrize("cause", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_home_that_cannot_be_made_is_refused(
    cause: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No permission, a file system that is read only or full: exit 3, with the directory and the system's own words."""
    home = tmp_path / "home"
    monkeypatch.setenv("ANEW_HOME", str(home))

    def refused(self: Path, **_how: object) -> None:
        raise OSError(cause, os.strerror(cause), str(self))

    monkeypatch.setattr(Path, "mkdir", refused)
    code, error = _error(["up", "--detach"], capsys)
    assert (code, error["code"], error["found"]) == (3, "home_unusable", f"{home}: {os.strerror(cause)}")


def _found(home: Home) -> str:
    with pytest.raises(Unreachable) as caught:
        home.running()
    return str(caught.value.found)


def test_a_cluster_that_was_killed_was_not_stopped(tmp_path: Path) -> None:
    """Where the supervisor's process ended before it could say that it was stopped, nobody says so for it."""
    home = Home(tmp_path)
    cluster = ClusterFile("dc-0", "127.0.0.1", 7717, {}, 0, {})
    assert _found(home) == "no cluster was made there"
    home.write_cluster(replace(cluster, supervisor=4711))
    assert _found(home) == "its process 4711 ended without anew down: it was killed, or the machine went down"
    home.write_cluster(cluster)
    assert _found(home) == "it was stopped"


@pytest.mark.parametrize("text", ["no_such_setting = 1\n", "nodes = \n", 'nodes = "many"\n'])
def test_broken_settings_do_not_keep_a_cluster_up(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster of the home ends all the same, with a warning that names what is wrong; its start is refused."""
    (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("ANEW_HOME", str(tmp_path))
    stopped: list[Path] = []

    def stop(home: Home) -> bool:
        stopped.append(home.path)
        return True

    monkeypatch.setattr(embedded, "stop", stop)
    assert run_command(["down"]) == 0
    shown = capsys.readouterr()
    assert (stopped, shown.out) == ([tmp_path], "down\n")
    assert shown.err.startswith("warning: the settings cannot be read")
    assert run_command(["up", "--detach"]) == 2
