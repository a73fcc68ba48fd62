"""The entry point: exit codes, and one JSON document whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer

from anew.cli import main
from anew.cli.main import run, run_command


@pytest.fixture(autouse=True)
def _no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without a cluster, so that no command finds one of the machine's."""
    monkeypatch.setenv("ANEW_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ANEW_URL", raising=False)


def test_the_release_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """``--version`` prints the installed release, with ``--json`` as a document."""
    assert run_command(["--version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": version("anew")}
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"anew {version('anew')}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["repsuh", "flights"],
        ["repush"],
        ["repush", "flights", "--no-such-option"],
        ["up", "--nodes", "many"],
        ["store", "create", "flights"],
        ["store", "nonsense"],
        ["history", "--limit"],
    ],
)
def test_usage_errors_are_one_document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown commands and options, missing arguments and bad values: exit 2, one document on stdout, silent stderr."""
    assert run_command([*arguments, "--json"]) == 2
    shown = capsys.readouterr()
    error = json.loads(shown.out)["error"]
    assert (error["code"], list(error)) == ("usage", ["code", "message", "found", "expected", "hint"])
    assert error["found"] == " ".join([*arguments, "--json"])
    assert error["message"]
    assert shown.err == ""


def test_each_command_is_found_where_it_is_said_to_be() -> None:
    """A command alone has the words and options that it has among all of them, and no command is left out."""
    everything = main._parser(None)
    listed = {command for commands in main._COMMANDS.values() for command in commands}
    assert set(everything.commands) == listed
    for command in listed:
        alone = main._parser(command).commands[command]
        assert _described(alone) == _described(everything.commands[command])


def _described(command: Any) -> str:
    return str(command.get_help(command.make_context(command.name, [], resilient_parsing=True)))


def test_usage_errors_for_people_are_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Without ``--json`` stdout stays empty; the message names what is wrong."""
    assert run_command(["repush", "flights", "--no-such-option"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, "--no-such-option" in shown.err, "(usage)" in shown.err) == ("", True, True)


def test_without_a_cluster_commands_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 4 with a hint, under ``--json`` as a document."""
    assert run_command(["status", "--json"]) == 4
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], "anew up" in error["hint"]) == ("no_cluster", True)


def test_a_bad_setting_in_the_environment_is_a_wrong_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings are checked before anything is done."""
    monkeypatch.setenv("ANEW_PORT", "high")
    assert run_command(["settings", "show", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "bad_setting"


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` of the program and of a command prints its usage and ends well."""
    assert run_command(["--help"]) == 0
    assert "repush" in capsys.readouterr().out
    assert run_command(["repush", "--help"]) == 0
    assert "--dry-run" in capsys.readouterr().out


@pytest.mark.parametrize("ending", [KeyboardInterrupt, typer.Abort])
def test_an_interrupt_has_its_own_exit_code(
    ending: type[BaseException], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """130, and still exactly one document under ``--json``."""

    def interrupted(*_: object, **__: object) -> None:
        raise ending

    monkeypatch.setattr(main, "_parser", lambda _command: interrupted)
    assert run_command(["status", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "interrupted"
    assert run_command(["status"]) == 130
    assert capsys.readouterr().out == ""


def test_the_console_script_ends_with_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """What a command returns becomes the process's exit code."""
    with pytest.raises(SystemExit) as caught:
        run(["nonsense", "--json"])
    assert caught.value.code == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


def test_a_closed_connection_does_not_end_a_command() -> None:
    """A write to a peer that has gone is an error to handle: the signal that would end the process stays ignored."""
    before = signal.getsignal(signal.SIGPIPE)
    assert before is signal.SIG_IGN
    run_command(["--version"])
    assert signal.getsignal(signal.SIGPIPE) is before


@pytest.mark.parametrize("arguments", [["settings", "show", "--json"], ["settings", "show"], ["--version"]])
def test_a_reader_that_goes_away_ends_a_command_quietly(arguments: list[str]) -> None:
    """Output into a pipe that nobody reads any more: no traceback, nothing on stderr."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "anew.cli", *arguments]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writing)
    assert done.stderr == b""
    assert done.returncode >= 0, "not by a signal"
