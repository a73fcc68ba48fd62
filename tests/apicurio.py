"""A real schema registry for tests: Apicurio, which has the REST face of Confluent's; Maven fetches it once.

``python -m tests.apicurio`` fetches it and says where it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from anew.runtime.java import find_java
from tests.guarded import PortServer
from tests.needs import cache_folder, made_once, missing

VERSION = "3.0.9"
"""The last one that runs on Java 17."""
_ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"
"""Later ones cannot say where to put what they get, and their ``copy`` wants POMs that not every registry has."""
_FETCH_SECONDS = 900


class Apicurio(PortServer):
    """A registry that keeps everything in memory."""

    def __init__(self, folder: Path) -> None:
        """Nothing runs yet."""
        super().__init__("apicurio")
        self._folder = folder

    @property
    def url(self) -> str:
        """Where it has the face of Confluent's registry."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def forbid_incompatible(self) -> None:
        """Let subjects take only schemas that can read what was written by the ones before."""
        rule = {"compatibility": "BACKWARD"}
        httpx.put(f"{self.url}/config", json=rule, timeout=30).raise_for_status()

    def _command(self) -> list[str]:
        (jar,) = self._folder.glob("*-runner.jar")
        # Without -Xrs a JVM answers the guard's SIGQUIT with a list of its threads.
        return [
            str(find_java("the schema registry").program),
            "-Xrs",
            "-Xmx384m",
            "-XX:TieredStopAtLevel=1",
            "-jar",
            str(jar),
        ]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(self.port)}

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/subjects", timeout=5).is_success
        except httpx.TransportError:
            return False


def cached_folder() -> Path:
    """Where the registry is, once it was fetched."""
    return cache_folder() / f"apicurio-{VERSION}"


def fetch() -> str:
    """Fetch the registry into the cache, unless it is there; empty, or one line that says why that cannot be."""
    folder = cached_folder()
    if folder.exists():
        return ""
    maven = shutil.which("mvn")
    if maven is None:
        return "install maven"

    def fetch_into(made: Path) -> str:
        archive = made / "app.tar.gz"
        options = [f"-Dartifact={_ARTIFACT}", "-Dtransitive=false", f"-Ddest={archive}"]
        command = [maven, "-q", "-B", _GOAL, *options]
        try:
            done = subprocess.run(
                command, cwd=made, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"Maven did not fetch it within {_FETCH_SECONDS} s"
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).strip().splitlines()
            return f"Maven cannot fetch it: {lines[0] if lines else 'it says nothing'}"
        with tarfile.open(archive) as packed:
            packed.extractall(made / "made", filter="data")
        return ""

    return made_once(folder, fetch_into)


@contextmanager
def running_apicurio() -> Iterator[Apicurio]:
    """A running registry; the test is skipped, or fails where none may be, when the machine cannot fetch it."""
    reason = fetch()
    if reason:
        missing("Apicurio", reason)
    server = Apicurio(cached_folder())
    try:
        server.start()
        yield server
    finally:
        server.remove()


if __name__ == "__main__":
    said = fetch()
    print(said or cached_folder())
    sys.exit(1 if said else 0)
