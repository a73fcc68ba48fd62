"""Ends the brokers of a directory when it is told to end itself: ``python broker_keeper.py DIR``.

It runs under `tests.server_guard`, which tells it so when the test run is gone, however it went.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

from anew.brokers.cluster import find, stop
from anew.core.errors import Refused, Unreachable

READY = "keeping"
_ENDING = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def main(directory: Path) -> None:
    """Wait for a signal, then end what runs."""
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    for number in _ENDING:
        # A mask would not do: the kernel may tell of the guard's end twice, and libraries have threads without it.
        signal.signal(number, _go_on)
    print(READY, flush=True)
    os.read(told, 1)
    with suppress(Unreachable):  # there are none
        cluster = find(directory)
        for broker in cluster.record.brokers:
            with suppress(Refused):  # it does not run
                cluster.kill(broker)
    # Whoever was starting them has failed by now.
    stop(directory)


def _go_on(_number: int, _frame: FrameType | None) -> None:
    """What is begun is done, whatever else is told."""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
