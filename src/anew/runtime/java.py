"""Finding the Java that Spark and Kafka need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from anew.core.errors import Unreachable

LEAST_VERSION = 17
_HINT = "install a Java 17 runtime (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its program, and its major version."""

    program: Path
    major: int


def check_java() -> int:
    """The major version of the Java that Spark would run.

    Raises:
        Unreachable: ``java_missing``, ``java_too_old``.
    """
    return find_java("Spark").major


def find_java(user: str) -> Java:
    """The Java that a user of it would run: that of ``JAVA_HOME``, or the one on the PATH.

    Args:
        user: Who needs it, for the message.

    Raises:
        Unreachable: ``java_missing``, ``java_too_old``.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME = {home}" if home else "no java on the PATH"
        raise Unreachable(
            "java_missing", f"{user} needs Java", found=where, expected=f"Java {LEAST_VERSION}", hint=_HINT
        )
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable("java_missing", "Java does not run", found=str(error), expected=java, hint=_HINT) from error
    matched = re.search(r'version "(\d+)(?:\.(\d+))?', shown)
    major = 0 if matched is None else int(matched[2] if matched[1] == "1" and matched[2] else matched[1])
    if major < LEAST_VERSION:
        raise Unreachable(
            "java_too_old",
            f"{user} needs a newer Java",
            found=shown.splitlines()[0] if shown else "no version",
            expected=f"Java {LEAST_VERSION} or newer",
            hint=_HINT,
        )
    return Java(Path(java), major)
