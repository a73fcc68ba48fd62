"""A generation that is driven in the foreground of a terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable

from anew.core.errors import AnewError


def driven_beside(drive: Callable[[], None], stop: Callable[[], object]) -> None:
    """Drive a generation in a thread of its own; Ctrl-C stops it after the batch that it is at, a second one at once.

    Args:
        drive: Drives it until it is to stop.
        stop: Tells the controller that it is to stop.

    Raises:
        AnewError: Why it ended.
    """
    failed: list[BaseException] = []

    def run() -> None:
        try:
            drive()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    # Not in the main thread, where Spark would answer Ctrl-C: it cancels what runs.
    driving = threading.Thread(target=run, name="driver", daemon=True)
    try:
        driving.start()
        driving.join()
    except KeyboardInterrupt:
        stop()
        driving.join()
        # It was stopped before it had begun: that is what was asked for.
        failed = [error for error in failed if not isinstance(error, AnewError) or error.code != "generation_stopped"]
    if failed:
        raise failed[0]
