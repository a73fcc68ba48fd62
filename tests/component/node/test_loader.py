"""The loader's process at its work: a job that gets on may take long, one that hangs is told of."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path

import pytest

from anew.loops.guarded import Loops, Trouble
from anew.node.loader import Loader
from tests.component.node.harness import wait_for

pytestmark = pytest.mark.processes

_STALL_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class _Reads:
    """Reads a file whose bytes do not come, as of a server that does not answer."""

    file: str

    @property
    def name(self) -> str:
        """What it reads."""
        return self.file

    def run(self) -> bytes:
        """Wait for the bytes."""
        return Path(self.file).read_bytes()


@dataclass(frozen=True, slots=True)
class _Computes:
    """Works for longer than a step may stand still."""

    seconds: float
    name: str = "sums"

    def run(self) -> int:
        """Compute until the time is over."""
        until, found = time.monotonic() + self.seconds, 0
        while time.monotonic() < until:
            found += sum(range(1000))
        return found


@pytest.fixture
def loops() -> Loops:
    """The loops of a node, where a step may stand still for three seconds."""
    made = Loops(lambda: 0)
    made.loop("loader", stall_seconds=_STALL_SECONDS)
    return made


@pytest.fixture
def loader(loops: Loops) -> Iterator[Loader]:
    """A loader at its side."""
    made = Loader(loops=loops)
    yield made
    made.close()


def test_a_job_that_hangs_is_told_of(loops: Loops, loader: Loader, tmp_path: Path) -> None:
    """With what it works on; once it gets on all is well."""
    pipe = tmp_path / "base-0.parquet"
    os.mkfifo(pipe)
    answer: Future[bytes] = loader.submit(_Reads(str(pipe)))
    [trouble] = wait_for("the trouble", loops.troubles)
    assert trouble.error.startswith("no progress for 3 s with ")
    assert trouble.error.endswith("/base-0.parquet")
    pipe.write_bytes(b"rows")
    assert answer.result(10) == b"rows"
    wait_for("no trouble", lambda: not loops.troubles())


def test_a_job_that_works_for_long_is_not(loops: Loops, loader: Loader) -> None:
    """It computes, and so it gets on."""
    answer, told = loader.submit(_Computes(2 * _STALL_SECONDS)), list[Trouble]()
    while not answer.done():
        told += loops.troubles()
        wait([answer], 0.05)
    assert answer.result() > 0
    assert not told
