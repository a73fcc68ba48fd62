"""Ending a process with all that it started, as a group."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

_GROUP_SECONDS = 0.01


def end_group(leader: int, deadline: float) -> None:
    """Wait for what an ended process had at its side, which ends by itself a moment later; kill what does not.

    Args:
        leader: The process, which led the group of all that it started.
        deadline: Until when to wait, in `time.monotonic`'s seconds.
    """
    pause = threading.Event()
    is_over = False
    while not is_over:
        # Orphans become ours where nobody else adopts them: as the first process of a container.
        with suppress(ChildProcessError):
            os.waitpid(-leader, os.WNOHANG)
        # Looked at once: what is found to be over is killed, and not only asked whether it lives.
        is_over = time.monotonic() >= deadline
        try:
            os.killpg(leader, signal.SIGKILL if is_over else 0)
        except (ProcessLookupError, PermissionError):  # the second is what some systems say of zombies alone
            return
        pause.wait(_GROUP_SECONDS)
