"""Fetching jars: once, whole or not at all, and with a clear word where that cannot be. Maven is a script here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from anew.core.errors import Refused, Unreachable
from anew.jars.fetching import KAFKA_BROKER, NAMES, cached, fetch
from tests.cluster.commands import wait_until

pytestmark = pytest.mark.processes

_MAVEN = """#!/bin/sh
for argument; do case $argument in -DoutputDirectory=*) jars=${{argument#*=}} ;; esac; done
echo called >>{calls}
{before}
mkdir -p "$jars" && echo one >"$jars/b-1.jar" && echo three >"$jars/a-2.jar"
"""
_FETCH = "import sys, pathlib; from anew.jars.fetching import fetch; fetch('kafka-broker', pathlib.Path(sys.argv[1]))"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Where jars are kept; not there yet."""
    return tmp_path / "cache" / "jars"


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """A line for each call of Maven."""
    return tmp_path / "calls"


@pytest.fixture
def maven(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven on the PATH that makes two jars, before which it runs what a test writes into it."""
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    _write(program, calls)
    return program


def _write(program: Path, calls: Path, before: str = "") -> None:
    program.write_text(_MAVEN.format(calls=calls, before=before), encoding="ascii")
    program.chmod(0o755)


def _count(calls: Path) -> int:
    return len(calls.read_text(encoding="ascii").splitlines())


@pytest.mark.usefixtures("maven")
def test_jars_are_fetched_once(cache: Path, calls: Path) -> None:
    """Sorted, in a directory named by the POM's content; the second time Maven is not even looked for."""
    assert cached(KAFKA_BROKER, cache) == ()
    jars = fetch(KAFKA_BROKER, cache)
    assert [jar.name for jar in jars] == ["a-2.jar", "b-1.jar"]
    assert jars[0].read_text(encoding="ascii") == "three\n"
    assert fetch(KAFKA_BROKER, cache) == cached(KAFKA_BROKER, cache) == jars
    assert _count(calls) == 1
    assert cache.stat().st_mode & 0o777 == 0o700
    folders = {fetch(name, cache)[0].parent for name in NAMES}
    assert len(folders) == len(NAMES)
    assert {path.name for path in cache.iterdir()} == {f.name for f in folders} | {f"{f.name}.lock" for f in folders}


@pytest.mark.parametrize("harm", ["jar gone", "jar cut", "list gone", "list cut"])
@pytest.mark.usefixtures("maven")
def test_a_directory_that_is_not_whole_does_not_count(cache: Path, calls: Path, harm: str) -> None:
    """However it came to be; it is replaced by one that is."""
    jars = fetch(KAFKA_BROKER, cache)
    harmed = jars[0] if harm.startswith("jar") else jars[0].with_name("contents")
    if harm.endswith("gone"):
        harmed.unlink()
    else:
        harmed.write_bytes(harmed.read_bytes()[:2])
    assert cached(KAFKA_BROKER, cache) == ()
    assert fetch(KAFKA_BROKER, cache) == jars
    assert (_count(calls), jars[0].read_text(encoding="ascii")) == (2, "three\n")


def test_a_fetch_that_was_killed_leaves_nothing_that_counts(cache: Path, calls: Path, maven: Path) -> None:
    """SIGKILL while Maven works: the next fetch does all of it again, and clears away what was left."""
    _write(maven, calls, 'mkdir -p "$jars" && echo half >"$jars/b-1.jar" && exec sleep 600')
    with subprocess.Popen([sys.executable, "-c", _FETCH, str(cache)], start_new_session=True) as fetching:
        wait_until(lambda: bool(list(cache.glob("*.part/jars/b-1.jar"))), "Maven to be in the middle of it")
        os.killpg(fetching.pid, signal.SIGKILL)
    assert cached(KAFKA_BROKER, cache) == ()
    _write(maven, calls)
    assert fetch(KAFKA_BROKER, cache)[1].read_text(encoding="ascii") == "one\n"
    assert list(cache.glob("*.part")) == []


def test_of_several_at_once_one_fetches(cache: Path, calls: Path, maven: Path, tmp_path: Path) -> None:
    """The others wait for it, and find what it fetched."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    _write(maven, calls, f"read line <{gate}")
    processes = [subprocess.Popen([sys.executable, "-c", _FETCH, str(cache)]) for _ in range(3)]
    wait_until(calls.exists, "one to fetch")
    gate.write_text("go on\n", encoding="ascii")
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert _count(calls) == 1


def test_who_waits_for_another_gives_up_at_its_deadline(cache: Path, calls: Path, maven: Path) -> None:
    """Rather than wait for ever."""
    _write(maven, calls, "exec sleep 600")
    with subprocess.Popen([sys.executable, "-c", _FETCH, str(cache)], start_new_session=True) as fetching:
        try:
            wait_until(calls.exists, "the other to fetch")
            with pytest.raises(Unreachable, match="another process fetches"):
                fetch(KAFKA_BROKER, cache, timeout_seconds=0.2)
        finally:
            os.killpg(fetching.pid, signal.SIGKILL)


def test_without_maven_it_is_said_what_to_install(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 4, and nothing is made."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unreachable) as caught:
        fetch(KAFKA_BROKER, cache)
    assert (caught.value.code, caught.value.exit_code, caught.value.found) == ("maven_missing", 4, "no mvn on the PATH")
    assert "apt-get install maven" in str(caught.value.hint)
    assert not cache.exists()


def test_what_maven_said_is_told_without_its_advice(cache: Path, calls: Path, maven: Path) -> None:
    """One line with the reason; nothing that it made before it failed counts."""
    said = (
        "[WARNING] something else",
        "[ERROR] Failed to execute goal org.a:p:3:copy (default-cli) on project kafka-broker: Could not resolve it:"
        " Connection refused -> [Help 1]",
        "[ERROR] ",
        "[ERROR] To see the full stack trace of the errors, re-run Maven with the -e switch.",
        "[ERROR] Re-run Maven using the -X switch to enable full debug logging.",
        "[ERROR] For more information about the errors and possible solutions, please read the following articles:",
        "[ERROR] [Help 1] http://example.org/NoSuchThing",
    )
    text = "\n".join(said)
    _write(maven, calls, f"mkdir -p $jars; echo half >$jars/a.jar; cat <<'END'\n{text}\nEND\nexit 1")
    with pytest.raises(Unreachable) as caught:
        fetch(KAFKA_BROKER, cache)
    assert (caught.value.code, caught.value.found) == ("jars_unreachable", "Could not resolve it: Connection refused")
    assert "settings.xml" in str(caught.value.hint)
    assert cached(KAFKA_BROKER, cache) == ()
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("echo 'JAVA_HOME is wrong' >&2; exit 1", "JAVA_HOME is wrong"),
        ("exit 7", "exit code 7"),
        ("exit 0", "exit code 0"),
    ],
)
def test_a_maven_that_fails_otherwise_is_told(cache: Path, calls: Path, maven: Path, before: str, found: str) -> None:
    """With its last line, or its exit code; one that ends well and has made nothing has failed."""
    _write(maven, calls, before)
    with pytest.raises(Unreachable) as caught:
        fetch(KAFKA_BROKER, cache)
    assert caught.value.found == found


def test_a_maven_that_does_not_end_is_ended(cache: Path, calls: Path, maven: Path) -> None:
    """At the deadline, with exit 4."""
    _write(maven, calls, "exec sleep 600")
    begun = time.monotonic()
    with pytest.raises(Unreachable, match="not fetched in time") as caught:
        fetch(KAFKA_BROKER, cache, timeout_seconds=1)
    assert time.monotonic() - begun < 30
    assert caught.value.exit_code == 4


@pytest.mark.usefixtures("maven")
def test_a_cache_that_others_may_write_is_refused(cache: Path, calls: Path) -> None:
    """What lies there is executed: neither filled, nor used when it is full."""
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.raises(Refused) as caught:
        fetch(KAFKA_BROKER, cache)
    assert (caught.value.code, "rwxrwxrwx" in caught.value.found, calls.exists()) == ("cache_unusable", True, False)
    cache.chmod(0o700)
    fetch(KAFKA_BROKER, cache)
    cache.chmod(0o770)
    with pytest.raises(Refused, match="cannot be kept"):
        fetch(KAFKA_BROKER, cache)


@pytest.mark.usefixtures("maven")
def test_a_cache_that_cannot_be_made_is_refused(cache: Path) -> None:
    """With the system's reason."""
    cache.parent.write_text("a file", encoding="ascii")
    with pytest.raises(Refused) as caught:
        fetch(KAFKA_BROKER, cache)
    assert (caught.value.code, caught.value.found) == ("cache_unusable", "Not a directory")


def test_threads_of_one_process_take_turns_as_well(cache: Path, calls: Path, maven: Path) -> None:
    """Whoever of them comes first fetches."""
    _write(maven, calls)
    threads = [threading.Thread(target=fetch, args=(KAFKA_BROKER, cache)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert _count(calls) == 1
    assert cached(KAFKA_BROKER, cache)
