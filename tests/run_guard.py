"""Ends what a run of the tests leaves when it is killed: ``python run_guard.py STARTER MARK``.

Started as a program of its own, with the standard library alone. Clusters and brokers outlive the command that starts
them, as they should; but whatever carries the run's mark in its environment has no business without the run. Told to
end (SIGTERM), this leaves everything alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

VARIABLE = "TESTS_RUN"
_PR_SET_PDEATHSIG = 1
_STARTER_IS_GONE, _END = signal.SIGUSR1, signal.SIGTERM
_ROUNDS, _PAUSE_SECONDS = 50, 0.1
"""What ends may be starting something just then."""


def main(starter: int, mark: str) -> None:
    """Wait for the end of the run, in order or not."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {_STARTER_IS_GONE, _END, signal.SIGINT, signal.SIGHUP})
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _STARTER_IS_GONE)
    if os.getppid() == starter and signal.sigwait({_STARTER_IS_GONE, _END}) == _END:
        return
    for _ in range(_ROUNDS):
        left = marked(mark)
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait({_END}, _PAUSE_SECONDS)


def marked(mark: str) -> list[int]:
    """The processes with the run's mark in their environment, without this one."""
    wanted, found = f"{VARIABLE}={mark}".encode(), []
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - keeps this file's start short
        # It may have just ended, or be another user's.
        with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environment:  # noqa: PTH123 - the same
            if wanted in environment.read().split(b"\0"):
                found.append(int(pid))
    return [pid for pid in found if pid != os.getpid()]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
