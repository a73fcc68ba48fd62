"""What ``anew kafka up`` says on a machine that lacks something, with the real Maven where that is at fault."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.cluster.commands import Anew
from tests.needs import missing

_OFFLINE = "<settings><offline>true</offline></settings>"
_NOBODY_LISTENS = """\
<settings><mirrors><mirror>
  <id>nobody</id><mirrorOf>*</mirrorOf><url>http://127.0.0.1:1/</url>
</mirror></mirrors></settings>
"""


@pytest.fixture
def bare(tmp_path: Path) -> Anew:
    """A home without brokers, and a cache without jars."""
    return Anew(tmp_path / "home", {"XDG_CACHE_HOME": str(tmp_path / "cache")})


def test_without_jars_and_maven_up_says_what_to_install(bare: Anew, tmp_path: Path) -> None:
    """Exit 4, and nothing is made in the home."""
    java = shutil.which("java")
    assert java is not None
    (tmp_path / "java").symlink_to(java)
    answer = bare.run("kafka", "up", environment={"PATH": str(tmp_path)})
    assert (answer.code, answer.error["code"], answer.error["found"]) == (4, "maven_missing", "no mvn on the PATH")
    assert "apt-get install maven" in answer.error["hint"]
    assert not (bare.home / "kafka").exists()


@pytest.mark.parametrize(
    ("settings", "reason"), [(_OFFLINE, "offline"), (_NOBODY_LISTENS, "refused")], ids=["offline", "nobody listens"]
)
def test_a_registry_that_cannot_be_reached_is_told(bare: Anew, tmp_path: Path, settings: str, reason: str) -> None:
    """Exit 4 with Maven's own reason, in one line; nothing counts as fetched, and nothing is made in the home."""
    if shutil.which("mvn") is None:
        missing("Maven", "install it (Debian, Ubuntu: apt-get install maven)")
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(settings, encoding="ascii")
    options = f"{os.environ.get('MAVEN_OPTS', '')} -Duser.home={tmp_path}"
    answer = bare.run("kafka", "up", environment={"MAVEN_OPTS": options})
    assert (answer.code, answer.error["code"]) == (4, "jars_unreachable")
    assert reason in answer.error["found"]
    assert [noise for noise in ("\n", "[ERROR]", "[Help") if noise in answer.error["found"]] == []
    assert "settings.xml" in answer.error["hint"]
    assert [path.suffix for path in (tmp_path / "cache" / "anew" / "jars").iterdir()] == [".lock"]
    assert not (bare.home / "kafka").exists()


def test_a_missing_java_is_told(bare: Anew) -> None:
    """Exit 4 with what to install, before anything is fetched."""
    answer = bare.run("kafka", "up", environment={"JAVA_HOME": "/no/java"})
    assert (answer.code, answer.error["code"], answer.error["message"]) == (4, "java_missing", "Kafka needs Java")
    assert not (bare.home / "kafka").exists()
