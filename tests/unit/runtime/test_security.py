"""What the settings say about safety: which addresses, tokens and keys are accepted, and where none may show."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from anew.cli.main import run_command
from anew.core.errors import AnewError, InvalidRequest, Refused
from anew.core.grants import Right
from anew.runtime.detached import planned_cluster
from anew.runtime.home import ClusterFile, Home
from anew.runtime.scheduled import launcher
from anew.runtime.security import (
    check_server,
    cluster_credentials,
    credentials_of,
    is_loopback,
    server_security,
    write_cluster_token,
)
from anew.runtime.settings import ProcessSettings, resolve
from anew.runtime.supervisor import server_environment
from anew.runtime.tokens import list_tokens, make_token, remove_token

SECRET = "anew_very-secret"


def _settings(home: Path, **said: str) -> ProcessSettings:
    return resolve({}, {"ANEW_HOME": str(home), **{f"ANEW_{name.upper()}": value for name, value in said.items()}})


def _private(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def _code(act: Any) -> str:
    with pytest.raises(AnewError) as caught:
        act()
    assert SECRET not in str(caught.value)
    return caught.value.code


@pytest.fixture
def tokens(tmp_path: Path) -> ProcessSettings:
    """Settings that name a tokens file, which is not there yet."""
    return _settings(tmp_path, tokens_file=str(tmp_path / "etc" / "tokens.toml"))


def test_loopback_addresses_are_known() -> None:
    """All of 127/8, ::1 and localhost; no name besides, for a name may lead anywhere."""
    assert all(is_loopback(bind) for bind in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(is_loopback(bind) for bind in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""))


def test_an_open_address_takes_tokens_or_a_word_of_its_own(tmp_path: Path, tokens: ProcessSettings) -> None:
    """Listening beyond the machine is refused unless tokens are asked for, or the setting says so."""
    home = Home(tmp_path)
    assert planned_cluster(_settings(tmp_path), home, ()).bind == "127.0.0.1"
    open_settings = _settings(tmp_path, bind="0.0.0.0")
    with pytest.raises(Refused) as caught:
        planned_cluster(open_settings, home, ())
    assert (caught.value.code, caught.value.exit_code) == ("open_bind", 3)
    assert "anew token make" in str(caught.value.hint)
    assert not (tmp_path / "cluster.json").exists()
    allowed = _settings(tmp_path, bind="0.0.0.0", allow_open_bind="true", advertise="db.example")
    assert planned_cluster(allowed, home, ()).url == "http://db.example:7717"
    make_token(tokens, "chief", Right.OPERATE)
    check_server(tokens, "0.0.0.0")


def test_an_open_address_of_an_earlier_start_is_judged_anew(tmp_path: Path) -> None:
    """The address that the last start had is no excuse."""
    home = Home(tmp_path)
    home.write_cluster(ClusterFile("dc-0", "0.0.0.0", 7717, {"node-1": 7718}, 0, {}))
    assert _code(lambda: planned_cluster(_settings(tmp_path), home, ())) == "open_bind"


def test_a_cluster_does_not_start_on_files_that_are_not_right(tmp_path: Path, tokens: ProcessSettings) -> None:
    """A tokens file that is missing, broken or public; a certificate without its key, or with a public one."""
    assert _code(lambda: check_server(tokens, "127.0.0.1")) == "no_tokens_file"
    file = Path(tokens.text("tokens_file"))
    make_token(tokens, "chief", Right.OPERATE)
    file.chmod(0o640)
    assert _code(lambda: check_server(tokens, "127.0.0.1")) == "file_not_private"
    _private(file, "nonsense")
    assert _code(lambda: check_server(tokens, "127.0.0.1")) == "bad_tokens_file"
    key = _private(tmp_path / "key.pem", "key", 0o644)
    one = _settings(tmp_path, tls_certificate=str(key))
    assert _code(lambda: check_server(one, "127.0.0.1")) == "tls_incomplete"
    both = _settings(tmp_path, tls_certificate=str(key), tls_key=str(key))
    assert _code(lambda: check_server(both, "127.0.0.1")) == "file_not_private"
    key.chmod(0o600)
    check_server(both, "127.0.0.1")
    assert planned_cluster(both, Home(tmp_path), ()).url.startswith("https://")
    away = _settings(tmp_path, tls_certificate=str(key), tls_key=str(tmp_path / "none"))
    assert _code(lambda: check_server(away, "127.0.0.1")) == "no_tls_file"


def test_tokens_are_made_listed_and_removed(tokens: ProcessSettings) -> None:
    """The file holds their hashes alone, readable by its owner alone, whatever the umask; each token is another one."""
    before = os.umask(0)
    try:
        token, grant = make_token(tokens, "chief", Right.OPERATE, expires_at_ms=5)
        second, _ = make_token(tokens, "reader", Right.READ, stores=("people",))
    finally:
        os.umask(before)
    file = Path(tokens.text("tokens_file"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (file.parent, *file.parent.iterdir())}
    assert modes == {"etc": 0o700, "tokens.toml": 0o600, "tokens.toml.lock": 0o600}
    text = file.read_text(encoding="utf-8")
    assert token not in text
    assert token != second
    assert len(token) >= 43, "256 bits"
    assert grant.sha256.hex() in text
    assert [g.name for g in list_tokens(tokens)] == ["chief", "reader"]
    remove_token(tokens, "chief")
    assert [g.name for g in list_tokens(tokens)] == ["reader"]


def test_the_command_prints_a_token_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``token make`` prints it, ``token list`` and ``settings show`` never do."""

    def run(*arguments: str) -> Any:
        assert run_command([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    monkeypatch.setenv("ANEW_HOME", str(tmp_path))
    monkeypatch.setenv("ANEW_TOKENS_FILE", str(tmp_path / "tokens.toml"))
    made = run("token", "make", "ada", "--right", "read", "--store", "people", "--days", "1")
    assert (made["name"], made["right"], made["stores"]) == ("ada", "read", ["people"])
    assert made["expires_at_ms"] is not None
    monkeypatch.setenv("ANEW_TOKEN", made["token"])
    listed, shown = run("token", "list"), run("settings", "show")
    assert [entry["name"] for entry in listed] == ["ada"]
    assert made["token"] not in json.dumps([listed, shown])
    assert shown["token"] == {"value": "***", "source": "environment"}
    assert run("token", "remove", "ada") == {"removed": "ada"}
    assert run_command(["token", "remove", "ada", "--json"]) == 2
    monkeypatch.delenv("ANEW_TOKENS_FILE")
    capsys.readouterr()
    assert run_command(["token", "list", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "no_tokens_file"


def test_a_client_shows_the_token_of_its_environment(tmp_path: Path) -> None:
    """From ANEW_TOKEN, or from the file that ANEW_TOKEN_FILE names, which others may not read."""
    assert credentials_of(_settings(tmp_path)).token is None
    found = credentials_of(_settings(tmp_path, token=SECRET))
    assert found.token == SECRET
    assert SECRET not in repr(found)
    file = _private(tmp_path / "token", SECRET + "\n")
    assert credentials_of(_settings(tmp_path, token_file=str(file))).token == SECRET
    for text in ("", "two words", f"{SECRET}\n{SECRET}"):
        _private(file, text)
        assert _code(lambda: credentials_of(_settings(tmp_path, token_file=str(file)))) == "bad_token_file"
    _private(file, SECRET, 0o644)
    assert _code(lambda: credentials_of(_settings(tmp_path, token_file=str(file)))) == "file_not_private"
    assert _code(lambda: credentials_of(_settings(tmp_path, token_file=str(tmp_path / "none")))) == "bad_token_file"
    assert _code(lambda: _settings(tmp_path, token=SECRET + " x")) == "bad_token"


def test_the_settings_file_takes_no_token(tmp_path: Path) -> None:
    """Others may read that file: a token in it is refused, and the refusal does not hold it."""
    _private(tmp_path / "settings.toml", f'token = "{SECRET}"', 0o644)
    with pytest.raises(InvalidRequest) as caught:
        _settings(tmp_path)
    assert (caught.value.code, SECRET in str(caught.value)) == ("unknown_setting", False)


def test_each_run_of_a_cluster_has_a_token_of_its_own(tmp_path: Path, tokens: ProcessSettings) -> None:
    """Where tokens are asked for its processes share one, in a private file; elsewhere there is none."""
    home = Home(tmp_path)
    write_cluster_token(tokens, home)
    first = cluster_credentials(tokens, home).token
    assert stat.S_IMODE(home.cluster_token.stat().st_mode) == 0o600
    accepted = server_security(tokens, home).tokens
    assert accepted is not None
    assert accepted.cluster == first is not None
    write_cluster_token(tokens, home)
    assert cluster_credentials(tokens, home).token not in (first, None)
    write_cluster_token(_settings(tmp_path), home)
    assert not home.cluster_token.exists()
    assert server_security(_settings(tmp_path), home).tokens is None


def test_servers_do_not_inherit_the_users_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user showed to start a cluster is not in the environment of its processes."""
    monkeypatch.setenv("ANEW_TOKEN", SECRET)
    monkeypatch.setenv("ANEW_TOKEN_FILE", "file")
    environment = server_environment(Home(tmp_path))
    assert environment["ANEW_HOME"] == str(tmp_path)
    assert not {"ANEW_TOKEN", "ANEW_TOKEN_FILE"}.intersection(environment)


def test_scheduled_drivers_show_the_clusters_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are told the file, and never the token itself: neither arguments nor environment hold it."""
    started: list[Any] = []

    class _Child:
        def __init__(self, command: list[str], **options: Any) -> None:
            started.append((command, options["env"]))

    monkeypatch.setattr("anew.runtime.scheduled.subprocess.Popen", _Child)
    file = _private(tmp_path / "cluster.token", SECRET)
    launcher("http://127.0.0.1:1", tmp_path / "logs", file)("store", "people", "r1")
    command, environment = started[0]
    assert environment["ANEW_TOKEN_FILE"] == str(file)
    assert SECRET not in " ".join(command)
    assert SECRET not in environment.values()


def test_a_home_of_an_earlier_release_is_closed_to_others(tmp_path: Path) -> None:
    """Whatever its directories were made with."""
    (tmp_path / "home" / "logs").mkdir(parents=True, mode=0o755)
    Home(tmp_path / "home").make()
    for path in ("home", "home/logs", "home/nodes"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o700
