"""Waiting where there is no condition to wait for, such as between two tries."""

from __future__ import annotations

import threading


def wait_seconds(seconds: float) -> None:
    """Let other threads go on for so long."""
    threading.Event().wait(seconds)
