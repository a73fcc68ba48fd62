"""Fetching the jars that a checked-in POM names: by Maven, once for a machine, into a cache.

What lies in the cache, for a POM ``kafka-broker.pom.xml`` (its hash is a part of each name)::

    kafka-broker-HASH/            the jars, and ``contents``: each one's size and name; counts only when all are there
    kafka-broker-HASH.lock        who fetches holds it
    kafka-broker-HASH.*.part/     what a fetch makes before it is renamed; one that was killed leaves it to the next
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from anew.core.errors import AnewError, Failed, Refused, Unreachable

KAFKA_BROKER = "kafka-broker"
SPARK_KAFKA = "spark-kafka"
NAMES = (KAFKA_BROKER, SPARK_KAFKA)

_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_CONTENTS = "contents"
_FETCH_SECONDS = 900.0
_NOISE = re.compile(r"\[Help \d+\]|Re-run Maven|To see the full stack trace|For more information")
_HELP = re.compile(r" ?-> \[Help \d+\]$")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LEVEL = re.compile(r"^\[(?:ERROR|FATAL)\] ?")
_GOAL_FAILED = re.compile(r"^Failed to execute goal .*? on project \S+: ")


def cached(name: str, cache: Path) -> tuple[Path, ...]:
    """The jars of a POM that were fetched before, sorted; none when there are not all of them.

    Args:
        name: The POM's, one of `NAMES`.
        cache: Where fetched jars are kept.
    """
    folder = _folder(name, cache)
    try:
        lines = (folder / _CONTENTS).read_text(encoding="utf-8").splitlines()
        wanted = {folder / jar: int(size) for size, _, jar in (line.partition(" ") for line in lines)}
        whole = all(jar.stat().st_size == size for jar, size in wanted.items())
    except (OSError, ValueError):
        return ()
    return tuple(sorted(wanted)) if whole else ()


def fetch(name: str, cache: Path, *, timeout_seconds: float = _FETCH_SECONDS) -> tuple[Path, ...]:
    """The jars of a POM, sorted; Maven fetches them unless the cache has them all.

    Any number of processes may ask at once: one fetches, the others wait for it.

    Args:
        name: The POM's, one of `NAMES`.
        cache: Where fetched jars are kept; made where it is missing.
        timeout_seconds: How long Maven may take, and how long to wait for another process that fetches.

    Raises:
        Unreachable: ``maven_missing``; ``jars_unreachable``: Maven could not fetch them, or not in time.
        Refused: ``cache_unusable``: it cannot be written, or others may write into it.
    """
    deadline = time.monotonic() + timeout_seconds
    if jars := cached(name, cache):
        _check_private(cache)
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise Unreachable(
            "maven_missing",
            f"the jars of {name} are not in {cache}, and there is no Maven to fetch them",
            found="no mvn on the PATH",
            expected="Maven 3.6 or newer",
            hint="install it (Debian, Ubuntu: apt-get install maven), or copy that directory from another machine",
        )
    folder = _folder(name, cache)
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(cache)
        with _lock(folder, deadline):
            if jars := cached(name, cache):
                return jars
            _remove_parts(folder)
            with _part(folder) as part:
                _run_maven(maven, name, part, deadline)
                _put(part, folder)
    except OSError as error:
        raise _unusable(cache, error.strerror if error.strerror else str(error)) from error
    jars = cached(name, cache)
    if not jars:
        raise Failed("jars_incomplete", f"the jars of {name} are not whole", found=str(folder), hint="remove it")
    return jars


def _pom(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.pom.xml")


def _folder(name: str, cache: Path) -> Path:
    return cache / f"{name}-{hashlib.sha256(_pom(name).read_bytes()).hexdigest()[:16]}"


def _check_private(cache: Path) -> None:
    """What lies there is executed: nobody else may write it."""
    found = cache.stat()
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unusable(cache, f"owner {found.st_uid}, mode {stat.filemode(found.st_mode)}")


def _unusable(cache: Path, found: str) -> AnewError:
    return Refused(
        "cache_unusable",
        f"jars cannot be kept in {cache}",
        found=found,
        expected="a directory that this user, and nobody else, may write",
        hint="chmod go-w it, make room, or set XDG_CACHE_HOME",
    )


@contextmanager
def _lock(folder: Path, deadline: float) -> Iterator[None]:
    with folder.with_name(f"{folder.name}.lock").open("a", encoding="utf-8") as held:
        pause = threading.Event()
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _too_late(f"another process fetches into {folder}, for too long") from None
                pause.wait(0.1)
                continue
            yield
            return


@contextmanager
def _part(folder: Path) -> Iterator[Path]:
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}.", suffix=".part"))
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _remove_parts(folder: Path) -> None:
    for part in folder.parent.glob(f"{folder.name}.*.part"):
        shutil.rmtree(part, ignore_errors=True)


def _run_maven(maven: str, name: str, part: Path, deadline: float) -> None:
    # A file and no pipe: whatever Maven leaves running could hold a pipe open past its end.
    said = part / "maven.out"
    # A copy: Maven writes beside a POM, and an installed package may not be written.
    pom = part / "pom.xml"
    shutil.copyfile(_pom(name), pom)
    command = [maven, "-q", "-B", "-f", str(pom), _GOAL, "-DincludeScope=runtime"]
    with said.open("wb") as output:
        try:
            done = subprocess.run(
                [*command, f"-DoutputDirectory={part / 'jars'}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=max(1.0, deadline - time.monotonic()),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _too_late(f"Maven did not end within {error.timeout:.0f} s") from None
    if done.returncode != 0 or not list((part / "jars").glob("*.jar")):
        words = last_words(said.read_text(encoding="utf-8", errors="replace").splitlines())
        raise _unreachable(f"Maven could not fetch the jars of {name}", words or f"exit code {done.returncode}")


def last_words(lines: Sequence[str]) -> str:
    """What Maven said of why it failed, without the advice that it adds to everything."""
    plain = [_COLOURS.sub("", line).strip() for line in lines]
    errors = [_LEVEL.sub("", line) for line in plain if _LEVEL.match(line)]
    told = [_HELP.sub("", line) for line in (errors if errors else plain)]
    kept = [_GOAL_FAILED.sub("", line) for line in told if line and not _NOISE.match(line)]
    # The first error is the reason, the others say it again; what is said without a level ends with the reason.
    return "" if not kept else kept[0] if errors else kept[-1]


def _put(part: Path, folder: Path) -> None:
    """Make what was fetched count, in one step: what lay there before was not whole."""
    jars = part / "jars"
    listed = sorted(jars.glob("*.jar"))
    (jars / _CONTENTS).write_text("".join(f"{jar.stat().st_size} {jar.name}\n" for jar in listed), encoding="utf-8")
    if folder.exists():
        folder.rename(part / "before")
    jars.rename(folder)


def _too_late(found: str) -> Unreachable:
    return _unreachable("the jars were not fetched in time", found)


def _unreachable(message: str, found: str) -> Unreachable:
    return Unreachable(
        "jars_unreachable",
        message,
        found=found,
        expected="a registry that Maven reaches and that has them",
        hint="look at Maven's settings.xml (mirrors, proxies) and at the network, then run this again",
    )
