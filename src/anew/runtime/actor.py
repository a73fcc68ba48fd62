"""Who acts: this process's user, and drivers of rebuilds by a name that no other has."""

from __future__ import annotations

import getpass
import os
import socket

from anew.runtime.clock import new_id


def user_name() -> str:
    """The user of this process, ``unknown`` where the system does not say."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def driver_name(log: str) -> str:
    """Unique: who repeats a request must not be taken for the driver at work on it; see `anew.core.rebuild.Driver`."""
    return f"{user_name()}@{socket.gethostname()}:{os.getpid()}/{new_id()[-6:]} {log}".rstrip()
