"""URLs of catalogs: which are accepted, and that no password is ever shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anew.catalog.url import parse_catalog_url, secrets_of, shown_catalog_url
from anew.cli.main import run_command
from anew.core.errors import InvalidRequest
from anew.runtime.settings import resolve

_GOOD = "postgresql://ann:s3cret@db.example:5433/catalog"


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("sqlite:////var/lib/catalog.sqlite", "sqlite"),
        (_GOOD, "postgresql+psycopg"),
        ("postgres://ann@db/catalog", "postgresql+psycopg"),
        ("postgresql+psycopg:///catalog?host=/run/postgresql", "postgresql+psycopg"),
    ],
)
def test_sqlite_and_postgresql_are_accepted(text: str, driver: str) -> None:
    """Whatever way the URL of a PostgreSQL database is written, one driver is used for it."""
    assert parse_catalog_url(text).drivername == driver


@pytest.mark.parametrize(
    "text",
    [
        "mysql://ann:s3cret@db/catalog",
        "postgresql://ann:s3cret@db",
        "postgresql://ann:s3cr@et@db/catalog",
        "postgresql://ann:s3cret@db:port/catalog",
        "postgresql+asyncpg://ann:s3cret@db/catalog",
        "s3cret",
        "//s3cret",
    ],
)
def test_anything_else_is_refused_without_showing_it(text: str) -> None:
    """The refusal says what is expected, and repeats nothing of what may be a password."""
    with pytest.raises(InvalidRequest) as caught:
        parse_catalog_url(text)
    assert caught.value.code == "bad_catalog"
    assert "s3cr" not in str(caught.value)
    assert "postgresql://" in str(caught.value.expected)
    assert "s3cr" not in shown_catalog_url(text)


def test_a_shown_url_has_no_secrets() -> None:
    """User, host and database are shown; a password is not, wherever in the URL it stands."""
    assert shown_catalog_url(_GOOD) == "postgresql://ann:***@db.example:5433/catalog"
    hidden = shown_catalog_url("postgresql://ann@db/catalog?password=s3cret&sslmode=require&sslpassword=s3cret2")
    assert "s3cret" not in hidden
    assert "sslmode=require" in hidden


def test_secrets_are_found_wherever_they_stand() -> None:
    """What must not appear in a message: decoded, from the user part and from the query."""
    url = parse_catalog_url("postgresql://ann:a%40b@db/catalog?sslpassword=c")
    assert secrets_of(url) == ("a@b", "c")
    assert secrets_of(parse_catalog_url("sqlite:///x")) == ()


def test_settings_show_hides_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`anew settings show` shows the URL without its password, as text and as JSON; processes get all of it."""
    monkeypatch.setenv("ANEW_HOME", str(tmp_path))
    monkeypatch.setenv("ANEW_CATALOG", _GOOD)
    assert run_command(["settings", "show", "--json"]) == 0
    assert run_command(["settings", "show"]) == 0
    printed = capsys.readouterr().out
    assert "s3cret" not in printed
    shown = json.loads(printed.splitlines()[0])["catalog"]
    assert shown == {"value": shown_catalog_url(_GOOD), "source": "environment"}
    assert resolve({}).optional("catalog") == _GOOD


def test_a_bad_url_in_the_settings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command ends with exit code 2 and shows nothing of the URL but its scheme; an empty text is none."""
    monkeypatch.setenv("ANEW_HOME", str(tmp_path))
    monkeypatch.setenv("ANEW_CATALOG", "mysql://ann:s3cret@db/catalog")
    assert run_command(["settings", "show", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["found"]) == ("bad_catalog", "mysql://…")
    monkeypatch.setenv("ANEW_CATALOG", "")
    assert resolve({}).optional("catalog") is None
