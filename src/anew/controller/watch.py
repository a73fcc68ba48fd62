"""Waiting for the catalog to move: woken at once by changes made here, within moments by those made elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_POLL_SECONDS = 0.25


class Watch:
    """Lets long polls and the reconciler wait for a newer revision of the catalog."""

    def __init__(self, revision: Callable[[], int]) -> None:
        """Watch the number that ``revision`` gives."""
        self._revision = revision
        self._changed = threading.Condition()
        self._closed = False
        self._is_noted = False

    def notify(self) -> None:
        """Something may have changed: everybody who waits looks again."""
        with self._changed:
            self._is_noted = True
            self._changed.notify_all()

    def repeat(self, act: Callable[[], None], most: int) -> int:
        """Act as long as each time the catalog moves, at most so often; whoever waits for it hears of it at once.

        Returns:
            How often it acted.
        """
        for number in range(1, most + 1):
            before = self._revision()
            act()
            if self._revision() == before:
                return number
            with self._changed:
                self._changed.notify_all()
        return most

    def close(self) -> None:
        """Let everybody go."""
        self._closed = True
        self.notify()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def wait_beyond(self, revision: int, seconds: float) -> bool:
        """Wait until the catalog is beyond ``revision``; False when it is not within ``seconds``."""
        deadline = time.monotonic() + seconds
        while True:
            if self._revision() > revision:
                return True
            left = deadline - time.monotonic()
            if left <= 0 or self._closed:
                return False
            with self._changed:
                self._changed.wait(min(left, _POLL_SECONDS))

    def pause(self, seconds: float) -> None:
        """Wait for a notification, or for so long; one that came since the last pause counts. For one thread."""
        with self._changed:
            if not self._closed and not self._is_noted:
                self._changed.wait(seconds)
            self._is_noted = False
