"""Ending processes as a machine that is gone does."""

from __future__ import annotations

from contextlib import suppress

import psutil

_GONE_SECONDS = 30


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def drives(pid: int) -> bool:
    """Whether a process is a driver that a controller has started: numbers of processes are given again."""
    try:
        return "anew.runtime.scheduled" in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def kill_family(pid: int) -> None:
    """SIGKILL to a process and everything that it started; nothing when it is gone."""
    with suppress(psutil.NoSuchProcess):
        _kill([psutil.Process(pid), *psutil.Process(pid).children(recursive=True)])


def kill_children(pid: int) -> None:
    """SIGKILL to everything that a process started, not to itself."""
    _kill(psutil.Process(pid).children(recursive=True))


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=_GONE_SECONDS)
