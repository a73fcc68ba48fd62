"""How the tests run Java: JVMs that start in half the time, because they find their classes loaded and checked."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from anew.jars.fetching import KAFKA_BROKER, cached
from anew.runtime.jars import jar_cache
from tests.needs import cache_folder

_BRIEFLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that ends before its second compiler has paid off takes half the processor time without it."""
_QUIETLY = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""What an archive does not fit is run without it: that is not worth a word among a command's."""
_MAKING_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Program:
    """What runs on Java: ``python -m LOADING FOLDER OPTIONS`` loads its classes, which are in ``jars``."""

    name: str
    loading: str
    jars: Callable[[], Sequence[Path]]

    @property
    def options(self) -> str:
        """The options of its JVMs in tests; they are good, although slower, while there is no archive."""
        return f"{_BRIEFLY} {_QUIETLY} -XX:SharedArchiveFile={self.archive}"

    @property
    def archive(self) -> Path:
        """Where its archive is, or would be: Java takes one for no other files than those it was made of."""
        home = os.environ.get("JAVA_HOME")
        java = shutil.which("java", path=f"{home}/bin" if home else None)
        binary = Path(java or "java").resolve()
        when = binary.stat().st_mtime_ns if java else 0
        jars = " ".join(f"{jar} {jar.stat().st_mtime_ns}" for jar in self.jars())
        made_for = hashlib.sha256(f"{binary} {when} {jars} {_BRIEFLY}".encode()).hexdigest()
        return cache_folder() / f"classes-{self.name}-{made_for[:16]}.jsa"

    def make_archive(self) -> str:
        """Make the archive of the classes that it loads, unless it is there; empty, or why that failed."""
        if self.archive.exists():
            return ""
        self.archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.archive.parent) as folder:
            made = Path(folder) / self.archive.name
            done = subprocess.run(
                [sys.executable, "-m", self.loading, folder, f"{_BRIEFLY} {_QUIETLY} -XX:ArchiveClassesAtExit={made}"],
                cwd=Path(__file__).parents[1],
                capture_output=True,
                text=True,
                timeout=_MAKING_SECONDS,
                check=False,
            )
            if done.returncode != 0 or not made.exists():
                return done.stderr[-2_000:] or "this Java makes no archive"
            made.replace(self.archive)
        return ""


def _of_spark() -> Sequence[Path]:
    return sorted(Path(pyspark.__file__).parent.glob("jars/*.jar"))


def _of_kafka() -> Sequence[Path]:
    return cached(KAFKA_BROKER, jar_cache())


SPARK = Program("spark", "tests.spark.loading", _of_spark)
KAFKA = Program("kafka", "tests.kafka.loading", _of_kafka)
