"""How the tests run Java: JVMs that start in half the time, because they find Spark's classes loaded and checked.

``python -m tests.java`` makes the archive of the classes, unless it is there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from tests.needs import cache_folder

BRIEFLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that ends before its second compiler has paid off takes half the processor time without it."""
_QUIETLY = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""What an archive does not fit is run without it: that is not worth a word among a command's."""
_MAKING_SECONDS = 300


def options() -> str:
    """The options of every JVM of the tests; they are good, although slower, while there is no archive."""
    return f"{BRIEFLY} {_QUIETLY} -XX:SharedArchiveFile={_archive()}"


def make_archive() -> str:
    """Make the archive of the classes that a push and repushes load, unless it is there; empty, or why that failed."""
    archive = _archive()
    if archive.exists():
        return ""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        noting = f"{BRIEFLY} {_QUIETLY} -XX:ArchiveClassesAtExit={made}"
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.loading", folder],
            env={**os.environ, "SPARK_SUBMIT_OPTS": noting},
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=_MAKING_SECONDS,
            check=False,
        )
        if done.returncode != 0 or not made.exists():
            return done.stderr[-2_000:] or "this Java makes no archive"
        made.replace(archive)
    return ""


def _archive() -> Path:
    # An archive fits one Java and one class path, both of which it knows; by its name there is one for each.
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    binary = Path(java or "java").resolve()
    when = binary.stat().st_mtime_ns if java else 0
    made_for = f"{binary} {when} {pyspark.__file__} {pyspark.__version__} {BRIEFLY}"
    return cache_folder() / f"classes-{hashlib.sha256(made_for.encode()).hexdigest()[:16]}.jsa"


if __name__ == "__main__":
    if not _archive().exists():
        print("making an archive of Spark's classes, once for this machine", flush=True)
    if said := make_archive():
        print(f"there is none, so that the tests take longer: {said}")
