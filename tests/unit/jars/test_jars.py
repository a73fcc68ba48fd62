"""The POMs, and where jars are kept."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

from anew.core.errors import Refused
from anew.jars.fetching import NAMES, SPARK_KAFKA, last_words
from anew.runtime.jars import jar_cache, main


@pytest.mark.parametrize("name", NAMES)
def test_each_pom_is_a_part_of_the_package_and_pins_what_it_names(name: str) -> None:
    """So that a machine fetches what another one did; none says from where: that is the machine's business."""
    pom = ElementTree.fromstring(files("anew.jars").joinpath(f"{name}.pom.xml").read_text(encoding="utf-8"))
    versions = [version.text for version in pom.iterfind("dependencies/dependency/version")]
    assert versions
    assert all(version and version[0].isdigit() and "," not in version for version in versions)
    assert [pom.find(part) for part in ("repositories", "pluginRepositories", "distributionManagement")] == [None] * 3


def test_the_connector_is_that_of_the_spark_that_is_installed() -> None:
    """The same version as PySpark, and nothing twice that PySpark brings."""
    pom = ElementTree.fromstring(files("anew.jars").joinpath(f"{SPARK_KAFKA}.pom.xml").read_text(encoding="utf-8"))
    named = {d.findtext("artifactId"): d.findtext("version") for d in pom.iterfind("dependencies/dependency")}
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.submodule_search_locations is not None
    there = [jar.name for folder in spark.submodule_search_locations for jar in Path(folder, "jars").glob("*.jar")]
    assert f"spark-sql_2.13-{named['spark-sql-kafka-0-10_2.13']}.jar" in there
    assert [jar for jar in there for artifact in named if jar.startswith(f"{artifact}-")] == []
    assert all(d.findtext("exclusions/exclusion/artifactId") == "*" for d in pom.iterfind("dependencies/dependency"))


@pytest.mark.parametrize(("given", "expected"), [("/some/cache", "/some/cache"), ("", "/the/home/.cache"), (None, "")])
def test_jars_are_kept_in_the_user_s_cache(monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str) -> None:
    """``XDG_CACHE_HOME`` decides where it is set to something; otherwise the home does."""
    monkeypatch.setenv("HOME", "/the/home")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if given is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert jar_cache() == Path(expected if expected else "/the/home/.cache", "anew", "jars")


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As services are run: they name a cache of their own."""

    def nowhere() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(Refused, match="XDG_CACHE_HOME") as caught:
        jar_cache()
    assert caught.value.code == "cache_unusable"


def test_the_command_says_what_it_could_not_fetch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, and with the exit code of the reason."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 4
    shown = capsys.readouterr()
    assert (shown.out, "apt-get install maven" in shown.err) == ("", True)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], ""),
        (["\x1b[0m\x1b[0m[ERROR] in red -> [Help 1]"], "in red"),
        (["", "Unable to find java"], "Unable to find java"),
        (["[ERROR] the reason -> [Help 1]", "[ERROR] ", "[ERROR] [Help 1] http://x"], "the reason"),
        (["[INFO] fine", "[FATAL] first", "[ERROR] second"], "first"),
        (["[ERROR] [Help 1] http://x"], ""),
    ],
)
def test_maven_s_last_words_are_its_reason(lines: list[str], expected: str) -> None:
    """The first error, without advice; without errors the last line."""
    assert last_words(lines) == expected
