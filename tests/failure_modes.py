"""The tests that docs/failure-modes.md names: ``python -m tests.failure_modes [--times 3]`` runs them all."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
PAGE = _ROOT / "docs" / "failure-modes.md"
_TEST = re.compile(r"`([\w/]+\.py(?:::\w+){1,2})`")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the page: what happens, and the tests that show what follows, each ``tests/FILE::NAME``."""

    what: str
    tests: tuple[str, ...]


def rows() -> Iterator[Row]:
    """Every row of every table."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[-1] != "test":
            yield Row(cells[0], tuple(f"tests/{test}" for test in _TEST.findall(cells[-1])))


def main() -> int:
    """Run all tests of the page so many times in a row; the first time that one fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="processes that share the tests, whole files each")
    arguments = parser.parse_args()
    times, shared = arguments.times, ["-n", str(arguments.workers), "--dist", "loadfile", "--no-loadscope-reorder"]
    tests = list(dict.fromkeys(test for row in rows() for test in row.tests))
    for time in range(1, times + 1):
        print(f"run {time} of {times}: {len(tests)} tests", flush=True)
        code = pytest.main(["-q", "--rootdir", str(_ROOT), *shared, *tests])
        if code != 0:
            return int(code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
