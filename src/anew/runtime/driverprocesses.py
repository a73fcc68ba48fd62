"""The drivers of stream jobs that a home's controller started: found on this machine, and ended with the cluster.

A controller that is started again keeps them. A cluster that is brought down does not need them, and would not be
answered by them: each would go on asking for its controller for minutes, with a JVM at its side.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from anew.core.jobs.rebuild import JOB
from anew.runtime.processgroups import end_group

MODULE = "anew.runtime.scheduled"
_PROCESSES = Path("/proc")
_END_SECONDS = 5.0


def job_drivers(logs: Path) -> list[int]:
    """The processes that drive generations of jobs and log into a folder; none where a system does not tell."""
    if sys.platform != "linux":
        return []
    return [int(process.name) for process in _PROCESSES.glob("[0-9]*") if _is_driver(process, logs)]


def end_job_drivers(logs: Path) -> list[int]:
    """End them with all that they have at their side; a batch that one is at runs again (rule R20)."""
    found = job_drivers(logs)
    for pid in found:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + _END_SECONDS
    for pid in found:
        end_group(pid, deadline)
    return found


def _is_driver(process: Path, logs: Path) -> bool:
    """Whether a process was started as `anew.runtime.scheduled.launcher` starts them."""
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is somebody else's
        return False
    if MODULE.encode() not in words:
        return False
    given = words[words.index(MODULE.encode()) + 1 :]
    return len(given) > 4 and given[1] == JOB.encode() and Path(os.fsdecode(given[4])).parent == logs
