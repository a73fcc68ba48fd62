"""What a test needs of the machine: skipped with one clear line where it is missing, failed where that must not be."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

COMPLETE = "TESTS_COMPLETE"
"""Set to ``true`` (as ``CI`` is by many services), a test that would be skipped for want of something fails."""


def missing(what: str, hint: str) -> NoReturn:
    """Skip the test that asks, because the machine lacks something; fail it where all tests must run."""
    line = f"{what} is missing here: {hint}"
    if "true" in (os.environ.get(COMPLETE), os.environ.get("CI")):
        pytest.fail(f"{line}; no test may be skipped, because {COMPLETE} or CI is true", pytrace=False)
    pytest.skip(line)


def made_once(target: Path, make: Callable[[Path], str]) -> str:
    """Make something for this machine, unless it is there; any number of processes may ask at once.

    Args:
        target: Where it is to be.
        make: Makes it as ``made`` in a folder that it is given; returns why that cannot be, in a line, or nothing.

    Returns:
        What ``make`` says.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return ""
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            said = make(Path(folder))
            if not said:
                (Path(folder) / "made").rename(target)
            return said


def cache_folder() -> Path:
    """Where things lie that are made once for a machine."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "anew"
