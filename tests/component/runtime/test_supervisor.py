"""What a supervisor leaves behind: nothing, also of what its processes had at their side."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from anew.runtime.supervisor import end_group

_LEADER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.read(1)
print(child.pid, flush=True)
sys.stdin.read()
"""
_SLOW = "import sys, time; print(flush=True); sys.stdin.read(); time.sleep(0.5)"
_DEAF = "import threading; print(flush=True); threading.Event().wait()"


@pytest.mark.parametrize(("helper", "seconds", "is_killed"), [(_SLOW, 30.0, False), (_DEAF, 0.2, True)])
def test_what_ended_processes_had_at_their_side_ends_too(helper: str, seconds: float, *, is_killed: bool) -> None:
    """It is waited for, and killed when it stays."""
    leader = subprocess.Popen(
        [sys.executable, "-c", _LEADER, helper],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with leader:
        assert leader.stdout is not None
        at_side = psutil.Process(int(leader.stdout.readline()))
        assert leader.stdin is not None
        leader.stdin.close()
        leader.wait()
        begun = time.monotonic()
        end_group(leader.pid, begun + seconds)
        assert (time.monotonic() - begun >= seconds) is is_killed
        gone, _ = psutil.wait_procs([at_side], timeout=5 if is_killed else 0)
        assert gone == [at_side]
