"""The settings of processes: where each value comes from, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anew.cli.main import run_command
from anew.core.errors import InvalidRequest
from anew.core.settings import Kind
from anew.runtime.settings import PROCESS_SETTINGS, ProcessSettings, resolve, variable_of


def _resolved(
    home: Path, *, flags: dict[str, Any] | None = None, environment: dict[str, str] | None = None, file: str = ""
) -> ProcessSettings:
    (home / "settings.toml").write_text(file, encoding="utf-8")
    said = {} if environment is None else environment
    return resolve({} if flags is None else flags, {"ANEW_HOME": str(home), **said})


def _refused(home: Path, **said: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        _resolved(home, **said)
    return caught.value


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    """Each source counts where none before it says anything, and the answer names the source."""
    port: dict[str, Any] = {"environment": {"ANEW_PORT": "2"}, "file": "port = 3"}
    found = [
        _resolved(tmp_path, flags={"port": 1}, **port),
        _resolved(tmp_path, **port),
        _resolved(tmp_path, file="port = 3"),
        _resolved(tmp_path),
    ]
    assert [(s.number("port"), s.resolved["port"].source) for s in found] == [
        (1, "flag"),
        (2, "environment"),
        (3, "file"),
        (7717, "default"),
    ]
    assert [s.was_given("port") for s in found] == [True, True, True, False]


def test_presence_counts_and_not_truth(tmp_path: Path) -> None:
    """False, zero and the empty text, which means none, win over what comes after them."""
    opposite = {"ANEW_LOG_DURABLE": "true", "ANEW_RECLAIM_GRACE_SECONDS": "9", "ANEW_FABRIC": "dc-9"}
    flags = {"log_durable": False, "reclaim_grace_seconds": 0, "fabric": ""}
    settings = _resolved(tmp_path, flags=flags, environment=opposite)
    assert (settings.flag("log_durable"), settings.number("reclaim_grace_seconds"), settings.optional("fabric")) == (
        False,
        0,
        None,
    )
    negations = {"ANEW_LOG_DURABLE": "false", "ANEW_FABRIC": ""}
    settings = _resolved(tmp_path, environment=negations, file='log_durable = true\nfabric = "dc-9"')
    assert (settings.flag("log_durable"), settings.optional("fabric")) == (False, None)
    settings = _resolved(tmp_path, file="log_durable = false\nreclaim_grace_seconds = 0")
    assert (settings.flag("log_durable"), settings.number("reclaim_grace_seconds")) == (False, 0)


def test_the_file_lies_in_the_home_that_was_named(tmp_path: Path) -> None:
    """The flag's home is where the file is read, not the environment's; without a file the defaults hold."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "settings.toml").write_text("nodes = 7", encoding="utf-8")
    settings = _resolved(tmp_path, flags={"home": str(other)}, file="nodes = 5")
    assert (settings.home, settings.number("nodes")) == (other, 7)
    assert _resolved(tmp_path, flags={"home": str(tmp_path / "none")}, file="nodes = 5").number("nodes") == 2


@pytest.mark.parametrize(
    ("line", "hint"), [("prot = 1", "did you mean port?"), ("zzz = 1", None), ('home = "x"', "set ANEW_HOME")]
)
def test_an_unknown_name_in_the_file_is_refused(tmp_path: Path, line: str, hint: str | None) -> None:
    """The refusal names the file, the name, all known ones and the nearest; the home cannot be set in its own file."""
    error = _refused(tmp_path, file=line)
    assert (error.code, error.found) == ("unknown_setting", line.split(" ")[0])
    assert str(tmp_path / "settings.toml") in error.message
    assert "home" not in error.expected.split(", ")
    assert error.hint is None if hint is None else hint in str(error.hint)


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    """The refusal says where the file breaks."""
    error = _refused(tmp_path, file="port = = 1")
    assert (error.code, "line 1" in error.found) == ("bad_settings_file", True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "0"),
        ("port", "65001"),
        ("port", "high"),
        ("port", ""),
        ("nodes", "0"),
        ("lease_seconds", "4"),
        ("log_durable", "yes"),
        ("log_level", "trace"),
    ],
)
def test_a_value_out_of_bounds_is_refused_from_wherever_it_comes(tmp_path: Path, name: str, value: str) -> None:
    """Flag, environment and file are held to the same bounds; the refusal says what is accepted."""
    for said in (
        {"flags": {name: value}},
        {"environment": {variable_of(name): value}},
        {"file": f'{name} = "{value}"'},
    ):
        error = _refused(tmp_path, **said)
        assert (error.code, error.found, error.expected) == ("bad_setting", value, PROCESS_SETTINGS[name].expected)


@pytest.mark.parametrize("value", ["1.5", "true", "[1]"])
def test_a_value_of_another_kind_in_the_file_is_refused(tmp_path: Path, value: str) -> None:
    """What TOML reads as no whole number is not made one."""
    assert _refused(tmp_path, file=f"port = {value}").code == "bad_setting"


def test_bounds_themselves_and_defaults_are_accepted(tmp_path: Path) -> None:
    """Each setting accepts its default and both its bounds."""
    for name, setting in PROCESS_SETTINGS.items():
        for value in (setting.default, setting.least, setting.most):
            if value is not None:
                assert _resolved(tmp_path, flags={name: value}).resolved[name].value == value, name
        assert setting.meaning
        assert (setting.kind is Kind.CHOICE) == bool(setting.choices)


def test_settings_show_prints_where_each_value_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``anew settings show`` has every setting with its value and its source, as JSON and as text."""
    for name in PROCESS_SETTINGS:
        monkeypatch.delenv(variable_of(name), raising=False)
    monkeypatch.setenv("ANEW_HOME", str(tmp_path))
    monkeypatch.setenv("ANEW_NODES", "3")
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "settings.toml").write_text("log_durable = false", encoding="utf-8")
    assert run_command(["settings", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == list(PROCESS_SETTINGS)
    assert shown["home"] == {"value": str(tmp_path), "source": "environment"}
    assert shown["nodes"] == {"value": 3, "source": "environment"}
    assert shown["log_durable"] == {"value": False, "source": "file"}
    assert shown["url"] == {"value": None, "source": "default"}
    assert run_command(["settings", "show"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["log_durable", "False", "file"] in [line[:3] for line in lines]


@pytest.mark.parametrize("given", ["127.0.0.1:7717", "localhost:7717", "anew", "ftp://here", "http://", "http://h:x"])
def test_an_address_of_no_controller_is_refused(tmp_path: Path, given: str) -> None:
    """Before anything is asked, with the form that a controller's URL has; an empty one names none."""
    error = _refused(tmp_path, environment={"ANEW_URL": given})
    assert (error.code, error.found, "http://HOST:PORT" in error.expected) == ("bad_url", given, True)
    assert "://" in given or error.hint == f"set url (ANEW_URL) to http://{given}"
    for url in ("http://127.0.0.1:7717", "https://anew.example/cluster/"):
        assert _resolved(tmp_path, environment={"ANEW_URL": url}).optional("url") == url
    assert _resolved(tmp_path, environment={"ANEW_URL": ""}).optional("url") is None


def test_a_password_in_a_bad_address_is_not_repeated(tmp_path: Path) -> None:
    """Wherever the URL breaks."""
    for given in ("http://me:s3cret@here:port", "me:s3cret@here:7717"):
        error = _refused(tmp_path, environment={"ANEW_URL": given})
        assert (error.code, "s3cret" in f"{error} {error.to_json()}") == ("bad_url", False)


@pytest.mark.parametrize("given", ["s3://AKIA:s3cret@bucket/prefix", "s3://bucket/prefix?secret_key=s3cret"])
def test_a_deep_store_with_keys_in_its_uri_is_refused_and_not_repeated(tmp_path: Path, given: str) -> None:
    """Wherever it is said: the refusal tells where keys belong, and holds none."""
    for said in (
        {"flags": {"deep_store": given}},
        {"environment": {"ANEW_DEEP_STORE": given}},
        {"file": f'deep_store = "{given}"'},
    ):
        error = _refused(tmp_path, **said)
        assert error.code == "bad_deep_store"
        assert "AWS_SECRET_ACCESS_KEY" in str(error)
        assert "s3cret" not in f"{error} {error.to_json()}"


def test_a_deep_store_is_shown_as_it_was_given(tmp_path: Path) -> None:
    """A place without keys is no secret; a relative directory is shown in full."""
    setting = PROCESS_SETTINGS["deep_store"]
    given = _resolved(tmp_path, environment={"ANEW_DEEP_STORE": "s3://bucket/prefix/"})
    assert setting.show(given.optional("deep_store")) == "s3://bucket/prefix"
    assert setting.show("deep") == str(Path("deep").absolute())
