"""What a tier costs: ``python -m tests.budget unit spark`` runs tiers one after another and tells processor seconds.

Counted is the time on a processor, user and system, of the tests and of everything that they start: also of services
that left their starter, because this process adopts and awaits them. It says the same on a busy machine as on a quiet
one, which no duration does. Linux alone. What follows ``--`` is passed to pytest.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.conftest import TIERS

_ADOPT_ORPHANS = 36
"""``PR_SET_CHILD_SUBREAPER`` of prctl(2)."""
_LEFT_SECONDS = 30.0
"""For what still ends after its tests."""
_COUNT = re.compile(r"(\d+) passed")
_ROW = "| {:<12} | {:>6} | {:>17} | {:>12} |"


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run of pytest."""

    code: int
    passed: int
    processor_seconds: float
    wall_seconds: float


def measure(arguments: Sequence[str]) -> Cost:
    """Run pytest with arguments and wait for all that it started."""
    began, before = time.monotonic(), _spent()
    run = subprocess.Popen([sys.executable, "-m", "pytest", *arguments], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    told = [0]
    teller = threading.Thread(target=_pass_on, args=(run.stdout, told))
    teller.start()
    run.returncode = _reap(run.pid)
    wall_seconds = time.monotonic() - began
    teller.join(_LEFT_SECONDS)
    _reap_orphans()
    return Cost(run.returncode, told[-1], _spent() - before, wall_seconds)


def _pass_on(output: IO[str], told: list[int]) -> None:
    """Show what pytest says, and remember what it says of how many passed."""
    for line in output:
        sys.stderr.write(line)
        if found := _COUNT.search(line):
            told.append(int(found[1]))


def _reap(pid: int) -> int:
    """The exit code of a child; meanwhile what ends of those that were adopted is let go, as init would do."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _reap_orphans() -> None:
    """Wait for what still ends after its tests, within reason."""
    deadline = time.monotonic() + _LEFT_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                threading.Event().wait(0.1)


def _spent() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def main() -> int:
    """Measure each tier that is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.budget", description=__doc__)
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"of {', '.join(TIERS)}; default: all")
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    tiers: list[str] = parser.parse_args(given[:cut]).tiers or list(TIERS)
    if unknown := sorted(set(tiers) - set(TIERS)):
        parser.error(f"found {', '.join(unknown)}; expected {', '.join(TIERS)}")
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    print(_ROW.format("tier", "tests", "processor seconds", "wall seconds"), flush=True)
    worst = 0
    for tier in tiers:
        cost = measure([str(Path(__file__).parent / tier), *given[cut + 1 :]])
        numbers = cost.passed, round(cost.processor_seconds), round(cost.wall_seconds)
        print(_ROW.format(tier, *numbers), flush=True)
        worst = max(worst, cost.code)
    return worst


if __name__ == "__main__":
    sys.exit(main())
