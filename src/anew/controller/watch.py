"""Waiting for the catalog to move: woken at once by changes made here, within moments by those made elsewhere."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

_POLL_SECONDS = 0.25


class Watch:
    """Lets long polls and the reconciler wait for a newer revision of the catalog.

    However many wait for the catalog, one of them looks for all: each node of a cluster waits here, and each of their
    reports is a reason to look.
    """

    def __init__(self, revision: Callable[[], int]) -> None:
        """Watch the number that ``revision`` gives."""
        self._revision = revision
        lock = threading.Lock()
        self._noted, self._moved = threading.Condition(lock), threading.Condition(lock)
        self._closed = False
        self._is_noted = False
        self._is_looking = False
        self._is_due = False
        self._seen = -1
        self._looked_at_seconds = -math.inf

    def notify(self) -> None:
        """Something may have changed: it is looked at again."""
        with self._noted:
            self._is_noted = self._is_due = True
            self._noted.notify_all()
            self._moved.notify()

    def repeat(self, act: Callable[[], None], most: int) -> int:
        """Act as long as each time the catalog moves, at most so often; whoever waits for it hears of it at once.

        Returns:
            How often it acted.
        """
        for number in range(1, most + 1):
            before = self._look()
            act()
            if self._look() == before:
                return number
        return most

    def close(self) -> None:
        """Let everybody go."""
        self._closed = True
        self.notify()
        with self._moved:
            self._moved.notify_all()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def wait_beyond(self, revision: int, seconds: float) -> bool:
        """Wait until the catalog is beyond ``revision``; False when it is not within ``seconds``."""
        deadline = time.monotonic() + seconds
        if self._look() > revision:
            return True
        while True:
            with self._moved:
                if self._seen > revision:
                    return True
                now = time.monotonic()
                due_seconds = 0.0 if self._is_due else self._looked_at_seconds + _POLL_SECONDS - now
                if self._is_looking or due_seconds > 0:
                    if now >= deadline or self._closed:
                        return False
                    self._moved.wait(min(deadline - now, _POLL_SECONDS if self._is_looking else due_seconds))
                    continue
                self._is_looking = True
            try:
                self._look()
            finally:
                with self._moved:
                    self._is_looking = False

    def _look(self) -> int:
        """The catalog's revision now; those who wait for it hear of it."""
        began = time.monotonic()
        with self._moved:
            # What is notified from here on may come too late for this look.
            self._is_due = False
        revision = self._revision()
        with self._moved:
            if began >= self._looked_at_seconds:
                if revision != self._seen:
                    self._moved.notify_all()
                self._seen, self._looked_at_seconds = revision, began
        return revision

    def pause(self, seconds: float) -> None:
        """Wait for a notification, or for so long; one that came since the last pause counts. For one thread."""
        with self._noted:
            if not self._closed and not self._is_noted:
                self._noted.wait(seconds)
            self._is_noted = False
