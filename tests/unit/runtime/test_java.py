"""Looking for the Java that Spark needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.core.errors import Unreachable
from anew.runtime.java import check_java


def _java(home: Path, said: str) -> Path:
    """A ``java`` that says this of its version, on stderr as the real one does."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n[ \"$1\" = -version ] || exit 9\ncat >&2 <<'END'\n{said}\nEND\n", encoding="utf-8")
    java.chmod(0o755)
    return home


def _refused() -> Unreachable:
    with pytest.raises(Unreachable) as caught:
        check_java()
    return caught.value


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.12" 2024-07-16\nOpenJDK Runtime Environment', 17),
        ('java version "21" 2023-09-19 LTS', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.1" 2021-10-19', 17),
    ],
)
def test_a_java_that_is_new_enough_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, major: int
) -> None:
    """The major version is read from what ``java -version`` says, whatever stands around it."""
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path, said)))
    assert check_java() == major


@pytest.mark.parametrize(
    "said", ['java version "1.8.0_392"', 'openjdk version "11.0.21" 2023-10-17', 'openjdk version "16"', "no idea", ""]
)
def test_an_older_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """1.8 is 8; an older one, or one that names no version, is refused with what it said and what to install."""
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path, said)))
    error = _refused()
    assert (error.code, error.exit_code, error.expected) == ("java_too_old", 4, "Java 17 or newer")
    assert said in error.found
    assert "Java 17" in str(error.hint)


def test_a_wrong_java_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME decides alone, as it does for Spark: a java on the PATH does not stand in for it."""
    monkeypatch.setenv("PATH", str(_java(tmp_path / "good", 'openjdk version "17"') / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "wrong"))
    error = _refused()
    assert (error.code, error.found) == ("java_missing", f"JAVA_HOME = {tmp_path / 'wrong'}")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "wrong"))
    assert _refused().found == "no java on the PATH"


def test_a_java_on_the_path_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without JAVA_HOME the java on the PATH is asked."""
    home = _java(tmp_path, 'openjdk version "18"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
    assert check_java() == 18


def test_a_java_that_cannot_be_run_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is executable but no program is a missing Java, with the reason."""
    java = _java(tmp_path, "") / "bin" / "java"
    java.write_bytes(b"\x00 no program")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    error = _refused()
    assert (error.code, error.expected) == ("java_missing", str(java))
