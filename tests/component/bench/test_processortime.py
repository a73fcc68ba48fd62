"""What processes used is counted also when they are over."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from bench.processortime import ProcessorTime
from tests.cluster.commands import wait_until

pytestmark = pytest.mark.processes

_SECONDS = 0.5
# The kernel counts in ticks of a hundredth of a second: a little more is used than is looked for.
_BURN = f"""
import time
print("begun", flush=True)
while time.process_time() < {_SECONDS} + 0.2:
    pass
input()
"""
_PARENT = """
import signal, subprocess, sys
ways = {"ignores": signal.SIG_IGN, "waits": signal.SIG_DFL}
signal.signal(signal.SIGCHLD, ways.get(sys.argv[1], signal.SIG_DFL))
child = subprocess.Popen([sys.executable, "-c", sys.argv[2]])
print(child.pid, flush=True)
if sys.argv[1] == "waits":
    child.wait()
signal.pause()
"""


@contextmanager
def _family(way: str) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A process that treats the end of its child in a way, and the child, which ends when a line comes."""
    command = [sys.executable, "-c", _PARENT, way, _BURN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        try:
            lines = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
            (pid,) = lines - {"begun"}
            yield parent, psutil.Process(int(pid))
        finally:
            parent.kill()


@pytest.mark.parametrize("way", ["ignores", "waits", "ends"])
def test_what_a_process_used_stays_when_it_has_ended(way: str) -> None:
    """Whether its parent waits for it, ignores its end, or ended before it: the sum never becomes less."""
    used = ProcessorTime([psutil.Process()])
    before = used.seconds()
    with _family(way) as (parent, child):
        wait_until(lambda: sum(child.cpu_times()[:2]) >= _SECONDS, "the child to have used its time")
        sums = [used.seconds()]
        if way == "ends":
            parent.kill()
            wait_until(lambda: parent.poll() is not None, "the parent to end")
            sums.append(used.seconds())
        assert parent.stdin is not None
        parent.stdin.write("end\n")
        parent.stdin.close()
        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the child to end")
        sums += [used.seconds(), used.seconds()]
    sums.append(used.seconds())
    assert sums == sorted(sums)
    assert sums[0] - before >= _SECONDS
    own = sum(psutil.Process().cpu_times()[:2])
    assert sums[-1] - before < own + 4 * _SECONDS, "nothing counts twice"


def test_a_child_that_was_never_seen_counts_through_its_parent() -> None:
    """What begins and ends between two looks is in what the kernel tells of its parent."""
    used = ProcessorTime([psutil.Process()])
    before = used.seconds()
    subprocess.run([sys.executable, "-c", _BURN], input="end\n", text=True, check=True, stdout=subprocess.DEVNULL)
    assert used.seconds() - before >= _SECONDS
